"""When a waiting job starts, as far as can be said: what runs ends at its time limit at the latest, so the future is played forward.

Two ends of an interval: the start if nobody goes before the job, and the start if all jobs ahead that want the same cards go first. Nothing
is said where that hangs on a job without a limit. What was said is held against what came (:class:`Accuracy`), so that a reader knows how
much it is worth. The fleet is left as it was.
"""

from collections import deque
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from itertools import count
from typing import NamedTuple

from gpuyard_scheduler.domain.ask import need, takes
from gpuyard_scheduler.domain.capacity import ever_fits, settled
from gpuyard_scheduler.domain.fleet import Kinds
from gpuyard_scheduler.domain.model import Ask, Job, RankPlan, millis
from gpuyard_scheduler.domain.place import place
from gpuyard_scheduler.domain.policy import Policy
from gpuyard_scheduler.domain.quota import Used, above_quota
from gpuyard_scheduler.domain.snapshot import Snapshot

MOST_STEPS = 200
"""So often it is looked whether the job fits; where more jobs end, several end in one step."""
REMEMBERED = 256
EXPECTED = 10_000


class Wish(NamedTuple):
    """A job that wants to start: whose, and what it asks for."""

    tenant: str
    ask: Ask


class Estimate(NamedTuple):
    """Milliseconds since 1970; None: nobody knows, and `assumption` says why."""

    earliest_ms: int | None
    latest_ms: int | None
    assumption: str


def estimate(mine: Wish, ahead: Sequence[Wish], is_more: bool, snapshot: Snapshot, policy: Policy) -> Estimate:
    """When the job starts. `ahead`: the jobs before it, in order; `is_more`: there are others before it that are not among these."""
    fleet = snapshot.fleet
    if snapshot.is_blind or mine.tenant not in snapshot.tenants:
        return Estimate(None, None, "nothing starts now, and nobody knows until when")
    if not ever_fits(settled(mine.ask, fleet, snapshot.tenants[mine.tenant]), fleet, snapshot.tenants[mine.tenant]):
        return Estimate(None, None, "it would not fit if nothing ran")
    kinds = {kind for kind, _ in fleet.kinds(mine.ask)}
    rivals = [wish for wish in ahead if any(kind in kinds for kind, _ in fleet.kinds(wish.ask))]
    earliest, unlimited = _played([mine], snapshot, policy)
    if earliest is None:
        return Estimate(None, None, _unknown(unlimited))
    assumed = "running jobs end at their time limits; sooner ends make it sooner"
    if not rivals and not is_more:
        return Estimate(earliest, earliest, assumed)
    if is_more:
        return Estimate(earliest, None, f"{assumed}; more than {len(ahead)} jobs are ahead, too many to say when it starts at the latest")
    latest, unlimited = _played([*rivals, mine], snapshot, policy)
    first = f"the {len(rivals)} jobs ahead that take" if len(rivals) > 1 else "the job ahead that takes"
    if latest is None:
        return Estimate(earliest, None, f"{assumed}; with {first} such cards going first {_unknown(unlimited)}")
    return Estimate(earliest, latest, f"{assumed}; at the latest, {first} such cards go first" if latest > earliest else assumed)


def _unknown(unlimited: int) -> str:
    if not unlimited:
        return "nobody knows: it does not fit even when all that runs has ended"
    return f"nobody knows: {unlimited} running {'job has' if unlimited == 1 else 'jobs have'} no time limit"


class _Ends:
    """What is to end: (instant, number, whose, plans), the next first. `unlimited` counts what has no limit."""

    def __init__(self, snapshot: Snapshot) -> None:
        tenants = {live.allocation_id: live.tenant for live in snapshot.lives.by_job.values()}
        plans: dict[str, list[RankPlan]] = {}
        until: dict[str, int | None] = {}
        for planned in snapshot.fleet.planned.values():
            for (allocation_id, _), found in planned.items():
                plans.setdefault(allocation_id, []).append(found.plan)
                until[allocation_id] = found.until_ms
        self._numbers = count()
        self.unlimited = sum(1 for end in until.values() if end is None)
        self.heap = [
            (end, next(self._numbers), tenants.get(allocation_id, ""), tuple(plans[allocation_id]))
            for allocation_id, end in sorted(until.items())
            if end is not None
        ]
        heapify(self.heap)
        self.at_once = len(self.heap) // MOST_STEPS + 1

    def add(self, until_ms: int | None, tenant: str, plans: tuple[RankPlan, ...]) -> None:
        """Another job has started."""
        if until_ms is None:
            self.unlimited += 1
        else:
            heappush(self.heap, (until_ms, next(self._numbers), tenant, plans))


def _played(wishes: list[Wish], snapshot: Snapshot, policy: Policy) -> tuple[int | None, int]:
    """When the last of the wishes starts (None: never) after all before it have started; and how many have no limit."""
    fleet, now = snapshot.fleet, snapshot.now_ms
    ends, used, waiting = _Ends(snapshot), dict(snapshot.usage.by_tenant), list(wishes)
    mark = fleet.mark()
    try:
        while True:
            waiting = _begin(waiting, now, ends, used, snapshot, policy)
            if not waiting:
                return now, ends.unlimited
            if not ends.heap:
                return None, ends.unlimited
            for _ in range(min(ends.at_once, len(ends.heap))):
                until, _, tenant, plans = heappop(ends.heap)
                now = max(now, until)
                for plan in plans:
                    fleet.lift(plan)
                _count(used, tenant, plans, -1)
    finally:
        fleet.undo(mark)


def _begin(waiting: list[Wish], now: int, ends: _Ends, used: dict[str, Used], snapshot: Snapshot, policy: Policy) -> list[Wish]:
    """Start what fits now, the last one only after all others; returns those that still wait."""
    left: list[Wish] = []
    failed: set[Wish] = set()
    for number, wish in enumerate(waiting):
        is_last = number == len(waiting) - 1
        if wish in failed or (is_last and left):
            left.append(wish)
            continue
        found = place(wish.ask, snapshot.fleet, _affordable(wish, used, snapshot))
        if isinstance(found, int):
            failed.add(wish)
            left.append(wish)
            continue
        limit = wish.ask.max_seconds
        ends.add(None if limit is None else now + (limit + policy.start_slack) * 1000, wish.tenant, found)
        _count(used, wish.tenant, found, 1)
    return left


def _affordable(wish: Wish, used: dict[str, Used], snapshot: Snapshot) -> Kinds:
    tenant = snapshot.tenants.get(wish.tenant)
    if tenant is None:
        return ()
    mine = used.get(wish.tenant, Used())
    return tuple(item for item in snapshot.fleet.kinds(wish.ask) if above_quota(tenant, mine, *need(wish.ask, item[0])) is None)


def _count(used: dict[str, Used], tenant: str, plans: tuple[RankPlan, ...], sign: int) -> None:
    milli, mib = takes(tuple(plan.slices for plan in plans))
    before = used.get(tenant, Used())
    used[tenant] = before._replace(milli=before.milli + sign * milli, mib=before.mib + sign * mib)


class Measured(NamedTuple):
    """How far estimates were from what came; without any (`number` 0) it is not measured yet."""

    number: int
    median_ms: int
    p90_ms: int


class Accuracy:
    """The last estimates held against the starts that came. In memory only: after a restart it is measured anew."""

    def __init__(self) -> None:
        self._expected: dict[str, int] = {}
        self._errors: deque[int] = deque(maxlen=REMEMBERED)

    def expect(self, job_id: str, start_ms: int) -> None:
        """It was said that the job starts then; the first word counts."""
        self._expected.setdefault(job_id, start_ms)
        if len(self._expected) > EXPECTED:
            del self._expected[next(iter(self._expected))]

    def move(self, old: Job | None, new: Job | None) -> None:
        """Follow one job: it may have started, or be over without a start."""
        if old is None or old.state != "queued" or (new is not None and new.state == "queued"):
            return
        expected = self._expected.pop(old.job_id, None)
        if expected is not None and new is not None and new.state == "placing" and new.ordered_at is not None:
            self._errors.append(abs(millis(new.ordered_at) - expected))

    def measured(self) -> Measured:
        """The errors' median and ninetieth percentile."""
        errors = sorted(self._errors)
        if not errors:
            return Measured(0, 0, 0)
        return Measured(len(errors), errors[(len(errors) - 1) // 2], errors[(len(errors) * 9 + 9) // 10 - 1])
