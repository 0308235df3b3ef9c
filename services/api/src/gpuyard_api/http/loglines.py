"""A job's output as it goes over HTTP: in order, each line once, to the end or for as long as the job lives."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass

from gpuyard_contracts.messages.node import LogLinesV1
from pydantic_core import to_json

from gpuyard_api.domain.access import Principal
from gpuyard_api.domain.loglines import LineCursor, LogLine, last
from gpuyard_api.domain.model import ENDED, Job
from gpuyard_api.http.context import Yard


@dataclass(frozen=True, slots=True)
class Wanted:
    """Whose output, and how much of it: one rank or all, the last `tail` lines of what is there, and what follows."""

    job: Job
    rank: int | None
    tail: int | None
    is_following: bool


async def lines_of(yard: Yard, who: Principal, wanted: Wanted) -> AsyncIterator[list[LogLine]]:
    """Batches of new lines. The first may be empty; it comes once the bus has answered. Raises Unavailable."""
    clock = asyncio.get_running_loop().time
    cursor = LineCursor()
    held: list[LogLine] | None = None if wanted.tail is None else []
    quiet_since = clock()
    job = wanted.job
    async with aclosing(yard.engine.logs(job.tenant, job.job_id, wanted.rank, is_following=wanted.is_following)) as batches:
        async for batch in batches:
            fresh = cursor.fresh(line for message in batch for line in _lines(message))
            if batch:
                quiet_since = clock()
            if held is not None:
                held = last([*held, *fresh], wanted.tail or 0)
                if batch:
                    continue  # the backlog still comes; a pause ends it
                fresh, held = held, None
            yield fresh
            if not yard.is_live(who):
                return
            if not batch and _is_over(yard, job) and clock() - quiet_since >= yard.pace.log_end:
                return
    if held:
        yield held


def _is_over(yard: Yard, job: Job) -> bool:
    """Whether the job has ended; one that is not in memory any more ended long ago."""
    now = yard.engine.store.jobs.get(job.job_id)
    return now is None or now.state in ENDED


def _lines(message: LogLinesV1) -> list[LogLine]:
    attempt, rank, stream, first, at = message.attempt, message.rank, message.stream, message.first_line, message.at
    found = [LogLine(attempt, rank, stream, first + offset, text, at) for offset, text in enumerate(message.lines)]
    if message.dropped_lines:
        text = f"[{message.dropped_lines} lines were dropped here: the job wrote more than is kept]"
        found.insert(0, LogLine(attempt, rank, stream, first - 1, text, at, message.dropped_lines))
    return found


def plain(*, is_gang: bool) -> Callable[[list[LogLine]], bytes]:
    """Lines as text, with their rank in front where there are several."""

    def render(lines: list[LogLine]) -> bytes:
        return "".join(f"{line.rank}| {line.text}\n" if is_gang else f"{line.text}\n" for line in lines).encode("utf-8", "replace")

    return render


def ndjson(lines: list[LogLine]) -> bytes:
    """Lines as one JSON object each."""
    return b"".join(to_json(line) + b"\n" for line in lines)
