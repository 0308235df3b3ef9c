"""Server-sent events whose cursor is the event's `seq`: backlog from the database, then live from the hub, without a gap or a repeat.

A stream checks every few seconds that its token still works, says that it lives when nothing happens, and ends when the process stops
or the database goes away: the reader comes again with `Last-Event-ID` and misses nothing.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from gpuyard_runtime.faults import Unavailable
from pydantic_core import to_json

from gpuyard_api.domain.access import Principal
from gpuyard_api.domain.model import Event
from gpuyard_api.http.context import Yard
from gpuyard_api.hub import Watcher

MEDIA_TYPE = "text/event-stream"
PAGE = 500
RETRY_MS = 2000
ENDS = frozenset({"job.ended", "job.rejected"})

Page = Callable[[int, int], Awaitable[list[Event]]]
"""Events above a `seq`, at most so many."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to stream: one job, one tenant, or (neither) everything, above `after`.

    `is_until_end`: stop after the job's end; `is_over`: it had ended when the stream began, so the backlog is all there is.
    """

    page: Page
    after: int
    job_id: str | None = None
    tenant: str | None = None
    is_until_end: bool = False
    is_over: bool = False


def frame(event: Event) -> bytes:
    """One event. The stored body goes out as it is."""
    head = {
        "seq": event.seq,
        "event_id": event.event_id,
        "name": event.name,
        "type": event.type,
        "source": event.source,
        "at": event.at,
        "tenant": event.tenant,
        "job_id": event.job_id,
        "causation_id": event.causation_id,
        "traceparent": event.traceparent,
    }
    body = event.body.replace("\n", " ").encode()
    return b'id: %d\nevent: %b\ndata: %b,"data":%b}\n\n' % (event.seq, event.name.encode(), to_json(head)[:-1], body)


async def stream(yard: Yard, who: Principal, wanted: Wanted) -> AsyncIterator[bytes]:
    """The frames of a stream, until it ends."""
    clock = asyncio.get_running_loop().time
    with yard.hub.watch(job_id=wanted.job_id, tenant=wanted.tenant) as watcher:
        watcher.is_behind = True  # the backlog lies in the database
        yield b"retry: %d\n\n" % RETRY_MS
        last, spoke_at = wanted.after, clock()
        while True:
            try:
                events = await _next(wanted, watcher, last)
            except Unavailable:
                yield b": the database does not answer; come again\n\n"
                return
            if not yard.is_live(who):
                yield b": this token does not work any more\n\n"
                return
            for event in events:
                last, spoke_at = event.seq, clock()
                yield frame(event)
                if wanted.is_until_end and event.name in ENDS and not wanted.is_over:
                    return
            if events:
                continue
            if watcher.is_closing or (wanted.is_until_end and wanted.is_over):
                return
            if clock() - spoke_at >= yard.pace.heartbeat:
                spoke_at = clock()
                yield b": heartbeat\n\n"
            await watcher.wait(min(yard.pace.check, yard.pace.heartbeat))


async def _next(wanted: Wanted, watcher: Watcher, last: int) -> list[Event]:
    """The next events above `last`: from the database while the watcher has not got them all, else from the watcher."""
    taken = watcher.take()
    if not watcher.is_behind:
        return [event for event in taken if event.seq > last]
    watcher.caught_up()  # before reading: what commits from here on is kept
    found = await wanted.page(last, PAGE)
    if len(found) == PAGE:
        watcher.is_behind = True
    return found
