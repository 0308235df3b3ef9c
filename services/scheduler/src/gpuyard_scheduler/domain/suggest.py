"""The smallest changes that would start a waiting job now. Each was tried by a real decision on the present state; none is a guess.

What a person changes in a job file is tried as what it is: the job of the new file, asked for now, in place of the old one. A raised quota
and an own job that ends are tried with the job as it stands. All else stays equal, the reservations and the jobs ahead included; the
snapshot is left as it was. The work is bounded: so many decisions, fewer where one costs more.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import NamedTuple

from gpuyard_scheduler.domain import words
from gpuyard_scheduler.domain.ask import ask_of, need, takes
from gpuyard_scheduler.domain.changes import FAMILIES, Change, Family
from gpuyard_scheduler.domain.decide import decide
from gpuyard_scheduler.domain.lives import Live
from gpuyard_scheduler.domain.model import EPOCH, Job, Start, Tenant
from gpuyard_scheduler.domain.policy import Policy
from gpuyard_scheduler.domain.quota import Usage, Used, quota_in_words
from gpuyard_scheduler.domain.snapshot import Snapshot

MOST_TOLD = 5
MOST_DECISIONS = 40
FEWEST_DECISIONS = 3
WORK = 400_000
"""Rows of the board and lines of the queue that all decisions may look at together."""
MOST_OWN_JOBS = 4
_WAKE_ALL = -1
"""A version of the reservations that no verdict was given on: every line is looked at anew."""


class Suggestion(NamedTuple):
    """A change with which the job starts now. `field`: of the job file, or ``quota`` or ``stop``; an empty `to`: leave it out."""

    field: str
    was: str
    to: str
    effect: str


def suggest(job: Job, snapshot: Snapshot, policy: Policy) -> tuple[Suggestion, ...]:
    """What would start the job, at most five things, the smallest first. The job must stand in a line."""
    if snapshot.is_blind or snapshot.fleet.is_empty or job.tenant not in snapshot.tenants:
        return ()
    trials = Trials(job, snapshot, policy)
    found: list[Suggestion] = []
    for suggestion in _all(job, snapshot, policy, trials):
        found.append(suggestion)
        if len(found) == MOST_TOLD:
            break
    return tuple(found)


class Trials:
    """Decisions on what might be, until there have been enough."""

    def __init__(self, job: Job, snapshot: Snapshot, policy: Policy) -> None:
        size = len(snapshot.fleet.board.banks) + 4 * len(snapshot.queue.groups) + 1
        self.left = max(FEWEST_DECISIONS, min(MOST_DECISIONS, WORK // size))
        self._job = job
        self._snapshot = snapshot
        self._policy = policy

    def changed(self, change: Change) -> Start | None:
        """The job's start if it were asked for so."""
        return self.on(replace(self._snapshot, queue=self._snapshot.queue.instead(resubmitted(self._job, change, self._snapshot.now_ms))))

    def on(self, snapshot: Snapshot) -> Start | None:
        """The job's start on this snapshot; None too once there were enough trials."""
        if not self.left:
            return None
        self.left -= 1
        plan = decide(snapshot, self._policy)
        return next((start for start in plan.starts if start.job_id == self._job.job_id), None)


def resubmitted(job: Job, change: Change, now_ms: int) -> Job:
    """The job as it would be if it were asked for now with this change."""
    return replace(job, spec=change.spec, ask=ask_of(change.spec), aged_at=EPOCH + timedelta(milliseconds=now_ms))


def _all(job: Job, snapshot: Snapshot, policy: Policy, trials: Trials) -> Iterator[Suggestion]:
    yield from _by_quota(job, snapshot, trials)
    for family in FAMILIES:
        yield from _of_family(family(job.spec, snapshot, policy), trials)
    yield from _by_own_jobs(job, snapshot, policy, trials)


def _of_family(family: Family, trials: Trials) -> Iterator[Suggestion]:
    changes = family.changes
    if not changes:
        return
    if family.is_ordered:
        found = _first_that_helps(changes, trials)
        if found is not None:
            yield found
        return
    told = 0
    for change in changes:
        start = trials.changed(change)
        if start is not None:
            yield Suggestion(change.field, change.was, change.to, _effect(start))
            told += 1
            if told == family.most:
                return


def _first_that_helps(changes: tuple[Change, ...], trials: Trials) -> Suggestion | None:
    """The smallest of these that helps: the largest is tried first, since where it does not help none does; then by halves."""
    low, high, best = 0, len(changes) - 1, None
    at = high
    while low <= high:
        start = trials.changed(changes[at])
        if start is None:
            low = at + 1
            if best is None:
                return None
        else:
            best, high = Suggestion(changes[at].field, changes[at].was, changes[at].to, _effect(start)), at - 1
        at = (low + high) // 2
    return best


def _by_quota(job: Job, snapshot: Snapshot, trials: Trials) -> Iterator[Suggestion]:
    """As much more quota as the job lacks; else as much as it and its tenant's waiting jobs before it lack."""
    tenant = snapshot.tenants[job.tenant]
    kinds = snapshot.fleet.kinds(job.ask)
    if tenant.is_suspended or not kinds:
        return
    used = snapshot.usage.of(job.tenant)
    milli, mib = min((need(job.ask, kind) for kind, _ in kinds), key=lambda size: (_lacking(tenant, used, size), size))
    before = _needed_before(job, snapshot)
    for more in dict.fromkeys(((milli, mib), (milli + before[0], mib + before[1]))):
        raised = _raised(tenant, used, more)
        if raised is None:
            continue
        start = trials.on(replace(snapshot, tenants={**snapshot.tenants, job.tenant: raised}))
        if start is not None:
            yield Suggestion("quota", quota_in_words(tenant), quota_in_words(raised), _effect(start))
            return


def _lacking(tenant: Tenant, used: Used, size: tuple[int, int]) -> tuple[int, int]:
    milli = 0 if tenant.quota_milli is None else max(0, used.milli + size[0] - tenant.quota_milli)
    mib = 0 if tenant.quota_mib is None else max(0, used.mib + size[1] - tenant.quota_mib)
    return milli, mib


def _raised(tenant: Tenant, used: Used, size: tuple[int, int]) -> Tenant | None:
    """The tenant with enough quota for so much more; None where it has that already."""
    milli, mib = _lacking(tenant, used, size)
    if not milli and not mib:
        return None
    quota_milli = None if tenant.quota_milli is None else tenant.quota_milli + milli
    quota_mib = None if tenant.quota_mib is None else tenant.quota_mib + mib
    return replace(tenant, quota_milli=quota_milli, quota_mib=quota_mib, version=tenant.version + 1)


def _needed_before(job: Job, snapshot: Snapshot) -> tuple[int, int]:
    """What the tenant's jobs need that go before this one and lack quota too."""
    spot = snapshot.queue.spots.get(job.job_id)
    milli = mib = 0
    if spot is None:
        return milli, mib
    mine = (-spot[0].rank, spot[1], job.job_id)
    for group in snapshot.queue.lines_of(job.tenant):
        kinds = snapshot.fleet.kinds(group.ask)
        if group.reason != "quota" or not kinds:
            continue
        size = need(group.ask, kinds[0][0])
        number = sum(1 for item in group.line if (-group.rank, *item) < mine)
        milli, mib = milli + size[0] * number, mib + size[1] * number
    return milli, mib


def _by_own_jobs(job: Job, snapshot: Snapshot, policy: Policy, trials: Trials) -> Iterator[Suggestion]:
    """One of the tenant's own jobs that ends: the smallest first, then the youngest. It would return its cards and its quota."""
    own = [live for live in snapshot.lives.by_job.values() if live.tenant == job.tenant and not live.is_leaving]
    own.sort(key=lambda live: (live.milli, -(live.started_ms or 0), live.job_id))
    least = min((need(job.ask, kind)[0] for kind, _ in snapshot.fleet.kinds(job.ask)), default=0)
    for live in [live for live in own if live.milli * 2 >= least][:MOST_OWN_JOBS]:
        start = _without(live, snapshot, trials)
        if start is not None:
            yield Suggestion("stop", live.job_id, "", f"once it has ended, {_effect(start)}")
            return


def _without(live: Live, snapshot: Snapshot, trials: Trials) -> Start | None:
    """The start if this job had ended. All lines are looked at anew, since what it frees may go to others first."""
    milli, mib = takes(tuple(plan.slices for plan in live.plans))
    used, usage = snapshot.usage.of(live.tenant), Usage()
    usage.by_tenant = {**snapshot.usage.by_tenant, live.tenant: Used(used.milli - milli, used.mib - mib, used.live - 1, used.falls + 1)}
    mark = snapshot.fleet.mark()
    for plan in live.plans:
        snapshot.fleet.lift(plan)
    start = trials.on(replace(snapshot, usage=usage, lives=snapshot.lives.without(live.job_id), reservations_version=_WAKE_ALL))
    snapshot.fleet.undo(mark)
    return start


def _effect(start: Start) -> str:
    nodes = sorted({plan.node_id for plan in start.ranks})
    return f"starts at once on {words.some(nodes)}"
