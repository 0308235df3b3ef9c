"""What waits: jobs in lines, one line for each tenant, priority and ask.

The jobs of a line differ in age only, so one verdict holds for all of them: a cycle touches heads, never the whole queue. Jobs in a pause
stand aside until it is over. Follows the changes of jobs; nothing here is stored.
"""

from bisect import bisect_left, insort
from collections import ChainMap
from collections.abc import Iterable, Iterator, MutableMapping
from heapq import heappop, heappush

from gpuyard_scheduler.domain.model import Ask, Job, Verdict, Waits, micros, millis
from gpuyard_scheduler.domain.policy import rank_of

GroupKey = tuple[str, str, Ask]
Stamp = tuple[int, ...]
_COMPACT = 512


class Line:
    """(aged µs, job id) in order; cheap at both ends."""

    __slots__ = ("_items", "_start")

    def __init__(self) -> None:
        self._items: list[tuple[int, str]] = []
        self._start = 0

    def __len__(self) -> int:
        return len(self._items) - self._start

    def __getitem__(self, at: int) -> tuple[int, str]:
        return self._items[self._start + at]

    def __iter__(self) -> Iterator[tuple[int, str]]:
        return (self._items[at] for at in range(self._start, len(self._items)))

    def copy(self) -> "Line":
        """The same items in a line of their own."""
        made = Line()
        made._items = self._items[self._start :]
        return made

    def add(self, item: tuple[int, str]) -> None:
        """Put an item to its place."""
        if not self._items or item > self._items[-1]:
            self._items.append(item)
        else:
            insort(self._items, item, lo=self._start)

    def remove(self, item: tuple[int, str]) -> int:
        """Take an item out; returns where it stood."""
        at = bisect_left(self._items, item, lo=self._start)
        if at == self._start:
            self._start += 1
            if self._start > _COMPACT and self._start * 2 > len(self._items):
                del self._items[: self._start]
                self._start = 0
            return 0
        del self._items[at]
        return at - self._start


class Group:
    """One line. `verdict` holds while `stamp` does; `is_untold`: someone near the head may not know the reason yet."""

    __slots__ = ("ask", "is_untold", "line", "priority", "stamp", "tenant", "verdict")

    def __init__(self, tenant: str, priority: str, ask: Ask) -> None:
        self.tenant = tenant
        self.priority = priority
        self.ask = ask
        self.line = Line()
        self.verdict: Verdict | None = None
        self.stamp: Stamp = ()
        self.is_untold = False

    def copy(self) -> "Group":
        """The same jobs with the same verdict in a line of their own."""
        made = Group(self.tenant, self.priority, self.ask)
        made.line, made.verdict, made.stamp = self.line.copy(), self.verdict, self.stamp
        return made

    @property
    def reason(self) -> Waits:
        """Why every job of the line waits."""
        return self.verdict.reason if self.verdict is not None else "not-considered-yet"

    @property
    def rank(self) -> int:
        """How strong its jobs are."""
        return rank_of(self.priority, is_spot=self.ask.is_spot)

    @property
    def key(self) -> GroupKey:
        """What the jobs of the line have in common."""
        return self.tenant, self.priority, self.ask


class Queue:
    """All waiting jobs."""

    def __init__(self) -> None:
        self.groups: dict[GroupKey, Group] = {}
        self.paused: dict[str, Job] = {}
        self.spots: MutableMapping[str, tuple[Group, int]] = {}
        """For every job that stands in a line: the line, and where its waiting counts from (µs)."""
        self._waiting: dict[str, int] = {}
        self._by_tenant: dict[str, dict[GroupKey, Group]] = {}
        self._pauses: list[tuple[int, str]] = []

    @classmethod
    def of(cls, jobs: Iterable[Job]) -> "Queue":
        """A queue of these jobs."""
        made = cls()
        for job in jobs:
            made.move(None, job)
        return made

    def instead(self, job: Job) -> "Queue":
        """The queue in which the job stands as it is given, in place of the one of its id if there is one.

        Made to be decided on and not to be changed: it shares all lines that the job is not in.
        """
        made = Queue()
        made.groups, made._by_tenant, made._waiting = dict(self.groups), dict(self._by_tenant), dict(self._waiting)
        mine = made._by_tenant[job.tenant] = dict(made._by_tenant.get(job.tenant, {}))
        spot = self.spots.get(job.job_id)
        if spot is None:
            made._waiting[job.tenant] = self.waiting(job.tenant) + 1
        else:
            left = spot[0].copy()
            left.line.remove((spot[1], job.job_id))
            made.groups[left.key] = mine[left.key] = left
            if not len(left.line):
                del made.groups[left.key], mine[left.key]
        key = (job.tenant, job.spec.priority, job.ask)
        joined = made.groups[key].copy() if key in made.groups else Group(*key)
        aged_us = micros(job.aged_at)
        joined.line.add((aged_us, job.job_id))
        made.groups[key] = mine[key] = joined
        made.spots = ChainMap({job.job_id: (joined, aged_us)}, self.spots)
        return made

    def tenants(self) -> list[str]:
        """Tenants with at least one job in a line, in the order of their names."""
        return sorted(self._by_tenant)

    def lines_of(self, tenant: str) -> list[Group]:
        """The lines of a tenant."""
        return list(self._by_tenant.get(tenant, {}).values())

    def waiting(self, tenant: str) -> int:
        """How many jobs of the tenant wait, pauses included."""
        return self._waiting.get(tenant, 0)

    def __len__(self) -> int:
        return sum(self._waiting.values())

    def reasons(self, tenant: str | None = None) -> dict[Waits, int]:
        """How many jobs (of one tenant, where named) wait for each reason: each job is counted once, so the counts sum to the length."""
        counts: dict[Waits, int] = {}
        for group in self.groups.values() if tenant is None else self.lines_of(tenant):
            counts[group.reason] = counts.get(group.reason, 0) + len(group.line)
        paused = len(self.paused) if tenant is None else sum(1 for job in self.paused.values() if job.tenant == tenant)
        if paused:
            counts["retry-pause"] = counts.get("retry-pause", 0) + paused
        return counts

    def move(self, old: Job | None, new: Job | None) -> None:
        """Follow one job: `old` became `new` (None: there is none)."""
        before = old is not None and old.state == "queued"
        after = new is not None and new.state == "queued"
        if before and after and _spot(old) == _spot(new):
            if new is not None and new.job_id in self.paused:
                self.paused[new.job_id] = new
            return
        if before and old is not None:
            self._remove(old)
        if after and new is not None:
            self._add(new)

    def wake(self, now_ms: int) -> None:
        """Let jobs whose pause is over into their lines."""
        while self._pauses and self._pauses[0][0] <= now_ms:
            until, job_id = heappop(self._pauses)
            job = self.paused.get(job_id)
            if job is not None and job.not_before is not None and millis(job.not_before) == until:
                del self.paused[job_id]
                self._line_up(job)

    def _add(self, job: Job) -> None:
        self._waiting[job.tenant] = self._waiting.get(job.tenant, 0) + 1
        if job.not_before is None:
            self._line_up(job)
        else:
            self.paused[job.job_id] = job
            heappush(self._pauses, (millis(job.not_before), job.job_id))

    def _line_up(self, job: Job) -> None:
        key = (job.tenant, job.spec.priority, job.ask)
        group = self.groups.get(key)
        if group is None:
            group = self.groups[key] = Group(*key)
            self._by_tenant.setdefault(job.tenant, {})[key] = group
        aged_us = micros(job.aged_at)
        group.line.add((aged_us, job.job_id))
        self.spots[job.job_id] = (group, aged_us)
        group.is_untold = True

    def _remove(self, job: Job) -> None:
        left = self._waiting[job.tenant] - 1
        if left:
            self._waiting[job.tenant] = left
        else:
            del self._waiting[job.tenant]
        if self.paused.pop(job.job_id, None) is not None:
            return
        group, aged_us = self.spots.pop(job.job_id)
        key = group.key
        group.line.remove((aged_us, job.job_id))
        group.is_untold = True  # someone has come nearer to the head
        if not len(group.line):
            del self.groups[key]
            mine = self._by_tenant[job.tenant]
            del mine[key]
            if not mine:
                del self._by_tenant[job.tenant]


def _spot(job: Job | None) -> tuple[object, ...]:
    return () if job is None else (job.aged_at, job.not_before, job.ask)
