"""The SDK's door: :class:`Client`. Everything the `gpuyard` command does, it does through this."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar
from uuid import uuid4

from gpuyard import connection as places
from gpuyard.errors import Unreachable, WaitTimeout
from gpuyard.fleet import Fleet
from gpuyard.money import Money
from gpuyard.results import Event, Explanation, Job, LogLine, Page, Planned, Queue, Trace, build
from gpuyard.transport import Transport, segment

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")

POLL_SECONDS = 0.25
AGAIN_SECONDS = 0.5
PATIENCE_SECONDS = 60.0
"""How long waiting and following bear with an api that does not answer: longer than a restart takes."""


class Client(Fleet, Money):
    """Speaks to one gpuyard. Without arguments it finds the api as described in :mod:`gpuyard.connection`.

    Every method raises errors of :mod:`gpuyard.errors` only. Not for use by several threads at once.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        timeout_seconds: float = 30.0,
        start: Path | None = None,
        handler: "httpx.BaseTransport | None" = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.connection = places.find(url, token, start=start)
        self.transport = Transport(self.connection, timeout_seconds=timeout_seconds, handler=handler, pause=pause)
        self._pause = pause

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Let go of open connections."""
        self.transport.close()

    # Jobs

    def submit(
        self,
        name: str,
        command: Sequence[str],
        *,
        gpu: str | Mapping[str, Any] = "1",
        tenant: str | None = None,
        key: str | None = None,
        wait_seconds: float = 10.0,
        **spec: Any,
    ) -> Job:
        """Ask for a job; `spec` takes the other fields of the api's job (`ranks`, `env`, `cpu_milli`, `memory_mib`, `max_seconds`, …).

        `gpu` is the shorthand (``"A100:2"``, ``"T4:0.25"``). Waits up to `wait_seconds` for the scheduler's answer. `key` makes
        repeating safe: the same key and job again is the same job. With an operator's token `tenant` (or ``GPUYARD_TENANT``) says whose
        job it is. Raises :class:`gpuyard.errors.Rejected`.
        """
        return self.submit_spec(
            {"name": name, "command": list(command), "gpu": gpu, **spec}, tenant=tenant, key=key, wait_seconds=wait_seconds
        )

    def submit_spec(self, spec: Mapping[str, Any], *, tenant: str | None = None, key: str | None = None, wait_seconds: float = 10.0) -> Job:
        """Ask for a job whose body is ready, as :mod:`gpuyard.jobfile` makes it."""
        seconds = max(0.0, wait_seconds)
        content = self.transport.post(
            "/v1/jobs",
            dict(spec),
            key=key or uuid4().hex,
            timeout_seconds=self.transport.timeout_seconds + seconds,
            wait=min(seconds, 60.0) or None,
            tenant=tenant or self.connection.tenant,
        )
        return build(Job, content)

    def get(self, job_id: str) -> Job:
        """One job. Raises :class:`gpuyard.errors.NotFound`."""
        return build(Job, self.transport.get(f"/v1/jobs/{segment(job_id)}"))

    def page(self, *, cursor: str | None = None, limit: int = 200, **query: Any) -> Page:
        """One page of jobs (500 at most), the youngest first; `query`: `state` (one or a list), `tenant`, `name`, `label` (``k=v``)."""
        content = self.transport.get("/v1/jobs", cursor=cursor, limit=limit, **query)
        return Page(items=tuple(build(Job, row) for row in content["jobs"]), next_cursor=content.get("next_cursor"))

    def list(self, **query: Any) -> Iterator[Job]:
        """All jobs, the youngest first, page by page as they are taken."""
        cursor: str | None = None
        while True:
            page = self.page(cursor=cursor, **query)
            yield from page.items
            cursor = page.next_cursor
            if cursor is None:
                return

    def cancel(self, job_id: str, reason: str = "") -> Job:
        """Ask for a job's end. What has ended already stays as it is."""
        return build(Job, self.transport.post(f"/v1/jobs/{segment(job_id)}/cancel", {"reason": reason}))

    def wait(
        self,
        job_id: str,
        *,
        until: Callable[[Job], bool] = lambda job: job.is_ended,
        timeout_seconds: float | None = None,
        seen: Callable[[Job], None] = lambda job: None,
    ) -> Job:
        """Wait until the job has ended (or `until` holds); `seen` is called with the job whenever it is looked at.

        Bears an api that is away for a while. Raises :class:`gpuyard.errors.WaitTimeout`.
        """
        begun = last_answer = time.monotonic()
        while True:
            try:
                job = self.get(job_id)
            except Unreachable:
                if time.monotonic() - last_answer > PATIENCE_SECONDS:
                    raise
            else:
                last_answer = time.monotonic()
                seen(job)
                if until(job):
                    return job
            if timeout_seconds is not None and time.monotonic() - begun > timeout_seconds:
                raise WaitTimeout(
                    f"{job_id} has not come so far within {timeout_seconds:g} s", fix="`gpuyard explain` says what it waits for"
                )
            self._pause(POLL_SECONDS)

    def logs(self, job_id: str, *, follow: bool = False, rank: int | None = None, tail: int | None = None) -> Iterator[LogLine]:
        """What a job wrote, each line once; with `follow` also what it will write, until it ends, over breaks of the connection too."""
        path = f"/v1/jobs/{segment(job_id)}/logs"
        seen: dict[tuple[int, int, str], int] = {}

        def fresh() -> Iterator[LogLine]:
            first = tail if not seen else None
            for row in self.transport.lines(path, follow=follow, rank=rank, tail=first):
                line = build(LogLine, row)
                source = (line.attempt, line.rank, line.stream)
                if line.number > seen.get(source, -1):
                    seen[source] = line.number
                    yield line

        if follow:
            yield from self._until_ended(job_id, fresh)
        else:
            yield from fresh()

    def events(self, job_id: str, *, follow: bool = False, after: int | None = None) -> Iterator[Event]:
        """A job's events in order; with `follow` also those to come, until it has ended. `after`: only those behind this `seq`."""
        path = f"/v1/jobs/{segment(job_id)}/events"
        if not follow:
            yield from self._listed(path, after)
            return
        last = after

        def fresh() -> Iterator[Event]:
            nonlocal last
            for row in self.transport.server_sent(path, after=last, until_end=True):
                event = build(Event, row)
                last = event.seq
                yield event

        yield from self._until_ended(job_id, fresh)

    def all_events(self, *, follow: bool = False, after: int | None = None, tenant: str | None = None) -> Iterator[Event]:
        """Every event that the token may see: from the oldest kept one on; with `follow` those to come, for ever. `after` as above."""
        if not follow:
            yield from self._listed("/v1/events", after, tenant=tenant)
            return
        last, broken_at = after, None
        while True:
            try:
                for row in self.transport.server_sent("/v1/events", after=last, tenant=tenant):
                    event = build(Event, row)
                    last, broken_at = event.seq, None
                    yield event
            except Unreachable:
                broken_at = broken_at or time.monotonic()
                if time.monotonic() - broken_at > PATIENCE_SECONDS:
                    raise
            self._pause(AGAIN_SECONDS)

    def _listed(self, path: str, after: int | None, **query: Any) -> Iterator[Event]:
        place = after
        while True:
            content = self.transport.get(path, after=place, **query)
            yield from (build(Event, row) for row in content["events"])
            place = content.get("next_after")
            if place is None:
                return

    def _until_ended(self, job_id: str, fresh: Callable[[], Iterator[T]]) -> Iterator[T]:
        """Read a stream again and again, from where it broke, until it ends with its job. An api that stays away is raised in the end."""
        broken_at: float | None = None
        while True:
            try:
                is_last = self.get(job_id).is_ended
                for part in fresh():
                    broken_at = None
                    yield part
                if is_last:
                    return
            except Unreachable:
                broken_at = broken_at or time.monotonic()
                if time.monotonic() - broken_at > PATIENCE_SECONDS:
                    raise
            if not self._has_ended(job_id):
                self._pause(AGAIN_SECONDS)

    def _has_ended(self, job_id: str) -> bool:
        try:
            return self.get(job_id).is_ended
        except Unreachable:
            return False

    def explain(self, job_id: str, *, at: datetime | None = None) -> Explanation:
        """Why a job waits and what would start it, or why it runs where it does; with `at` what was in force at that past instant."""
        when = None if at is None else at.astimezone(UTC).isoformat()
        return build(Explanation, self.transport.get(f"/v1/jobs/{segment(job_id)}/explain", at=when))

    def plan(self, spec: Mapping[str, Any], *, tenant: str | None = None) -> Planned:
        """What would become of a job if it were submitted now; nothing is submitted. `spec` as for :meth:`submit_spec`."""
        return build(Planned, self.transport.post("/v1/plan", dict(spec), tenant=tenant or self.connection.tenant))

    def trace(self, job_id: str) -> Trace:
        """A job's way from the request to the ledger, step by step."""
        return build(Trace, self.transport.get(f"/v1/jobs/{segment(job_id)}/trace"))

    def queue(self) -> Queue:
        """What waits, and for what."""
        return build(Queue, self.transport.get("/v1/queue"))

    def whoami(self) -> Mapping[str, Any]:
        """Whose token this is."""
        content: Mapping[str, Any] = self.transport.get("/v1/me")
        return content
