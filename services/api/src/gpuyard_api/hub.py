"""Live events, from the one unit that committed them to all who watch: streams, and requests that wait for the scheduler's answer.

The promise: a watcher that subscribes first and reads the database second misses nothing, as what commits in between reaches it here;
it drops what it has seen by `seq`. The other half is kept by the projection, which publishes in the order of commits. A watcher that
does not keep up loses its queue, is told so (`is_behind`) and reads on from the database: nobody else waits for it.
"""

import asyncio
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from gpuyard_api.domain.model import Event

MAX_PENDING = 1000


class Watcher:
    """One who watches. `pending` is what came since :meth:`take`; `is_closing`: the process stops."""

    __slots__ = ("_pending", "_woken", "is_behind", "is_closing")

    def __init__(self) -> None:
        self._pending: list[Event] = []
        self._woken = asyncio.Event()
        self.is_behind = False
        self.is_closing = False

    def offer(self, event: Event) -> None:
        """Add one event, or drop all where too many wait."""
        if len(self._pending) >= MAX_PENDING:
            self._pending.clear()
            self.is_behind = True
        if not self.is_behind:
            self._pending.append(event)
        self._woken.set()

    def close(self) -> None:
        """Wake the watcher to go."""
        self.is_closing = True
        self._woken.set()

    def take(self) -> list[Event]:
        """What came; empty where `is_behind`, which the caller answers by :meth:`caught_up`."""
        taken, self._pending = self._pending, []
        self._woken.clear()
        return taken

    def caught_up(self) -> None:
        """The caller is about to read the database: what comes from now on is kept again."""
        self.is_behind = False

    async def wait(self, seconds: float) -> None:
        """Return when something came, the process stops, or the time is over."""
        if not self.is_closing and not self._woken.is_set():
            try:
                async with asyncio.timeout(seconds):
                    await self._woken.wait()
            except TimeoutError:
                return


class Hub:
    """All watchers, by what they watch."""

    def __init__(self) -> None:
        self._by_job: dict[str, list[Watcher]] = {}
        self._by_tenant: dict[str, list[Watcher]] = {}
        self._of_all: list[Watcher] = []
        self._is_closing = False

    @contextmanager
    def watch(self, *, job_id: str | None = None, tenant: str | None = None) -> Generator[Watcher]:
        """Watch one job, one tenant, or (neither given) everything."""
        watcher = Watcher()
        watcher.is_closing = self._is_closing
        groups, key = (self._by_job, job_id) if job_id is not None else (self._by_tenant, tenant)
        place = self._of_all if key is None else groups.setdefault(key, [])
        place.append(watcher)
        try:
            yield watcher
        finally:
            place.remove(watcher)
            if key is not None and not place:
                groups.pop(key, None)

    def publish(self, events: Sequence[Event]) -> None:
        """Hand committed events on."""
        if not (self._by_job or self._by_tenant or self._of_all):
            return
        for event in events:
            for watcher in self._by_job.get(event.job_id or "", ()):
                watcher.offer(event)
            for watcher in self._by_tenant.get(event.tenant or "", ()):
                watcher.offer(event)
            for watcher in self._of_all:
                watcher.offer(event)

    def close(self) -> None:
        """The process stops: all streams end, so that their readers come again elsewhere or later."""
        self._is_closing = True
        for place in (*self._by_job.values(), *self._by_tenant.values(), self._of_all):
            for watcher in place:
                watcher.close()

    @property
    def watchers(self) -> int:
        """How many watch."""
        return sum(map(len, self._by_job.values())) + sum(map(len, self._by_tenant.values())) + len(self._of_all)
