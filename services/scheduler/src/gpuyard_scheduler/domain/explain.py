"""Why one job waits: its place in the order, who is ahead, the verdict of every node, when it may start and what would start it now.

Reads the same snapshot that decisions are made on.
"""

from bisect import bisect_left
from collections import Counter
from typing import NamedTuple

from gpuyard_scheduler.domain import verdicts
from gpuyard_scheduler.domain.capacity import settled
from gpuyard_scheduler.domain.estimate import Estimate, Wish, estimate
from gpuyard_scheduler.domain.fit import CONSTRAINTS, Failed, judge_all
from gpuyard_scheduler.domain.model import Ask, Job, Verdict, Waits
from gpuyard_scheduler.domain.order import Place, in_order, place_of
from gpuyard_scheduler.domain.policy import Policy
from gpuyard_scheduler.domain.queue import Group
from gpuyard_scheduler.domain.reserve import may_backfill
from gpuyard_scheduler.domain.snapshot import Snapshot
from gpuyard_scheduler.domain.suggest import Suggestion, suggest

MOST_NODES = 200
"""So many nodes are told of at most: those nearest to a fit."""
MOST_AHEAD = 10
MOST_WISHES = 20
"""For an estimate so many jobs ahead are looked at."""
MOST_FOLDS = 50
MOST_NAMES = 5
OF_A_KIND = next(step for step, (name, _) in enumerate(CONSTRAINTS) if name == "size")
"""From this constraint on a node is of a kind that the job takes."""
_NOT_THE_NODES: frozenset[Waits] = frozenset({"quota", "fleet-blind", "fleet-empty", "tenant-unknown"})


class Fold(NamedTuple):
    """All nodes of which the same can be said: how many, the first of them by id, and what (None: they fit)."""

    number: int
    node_ids: tuple[str, ...]
    failed: Failed | None


class Binding(NamedTuple):
    """The constraint that most nodes fail on, of those that are of a kind that the job takes: `nodes` of all `of`."""

    constraint: str
    nodes: int
    of: int


class Explanation(NamedTuple):
    """What is known of one job. `position` counts from 1; None where it stands in no line."""

    reason: Verdict | None
    position: int | None = None
    ahead: tuple[str, ...] = ()
    nodes: tuple[tuple[str, Failed | None], ...] = ()
    folds: tuple[Fold, ...] = ()
    binding: Binding | None = None
    suggestions: tuple[Suggestion, ...] = ()
    estimate: Estimate | None = None


def explain(job: Job, snapshot: Snapshot, policy: Policy) -> Explanation:
    """Why the job waits, and what would start it; for a job that does not wait only that it does not."""
    if job.state != "queued":
        return Explanation(None)
    ask = settled(job.ask, snapshot.fleet, snapshot.tenants.get(job.tenant))
    spot = snapshot.queue.spots.get(job.job_id)
    if spot is None:
        reason = Verdict("retry-pause", f"waits until {job.not_before:%H:%M:%S} UTC before it is tried again")
        nodes = judge_all(ask, snapshot.fleet)
        return Explanation(reason, nodes=tuple(nodes[:MOST_NODES]), folds=_folded(nodes))
    group, aged_us = spot
    mine = _place(group, aged_us, job.job_id, snapshot, policy)
    nodes = judge_all(ask, snapshot.fleet, _kept_from(job.job_id, ask, mine, snapshot, policy))
    reason, before = reason_of(group, snapshot), _before(mine, snapshot, policy)
    ahead, wishes = _ahead(mine, snapshot, policy)
    return Explanation(
        reason=reason,
        position=1 + before,
        ahead=ahead,
        nodes=tuple(nodes[:MOST_NODES]),
        folds=_folded(nodes),
        binding=_binding(nodes) if reason.reason not in _NOT_THE_NODES else None,
        suggestions=suggest(job, snapshot, policy),
        estimate=estimate(Wish(job.tenant, ask), wishes, before > len(wishes), snapshot, policy),
    )


def _folded(nodes: list[tuple[str, Failed | None]]) -> tuple[Fold, ...]:
    """Nodes with equal verdicts together, in the order of the nodes; the nearest first."""
    found: dict[Failed | None, list[str]] = {}
    for node_id, failed in nodes:
        found.setdefault(failed, []).append(node_id)
    return tuple(Fold(len(names), tuple(names[:MOST_NAMES]), failed) for failed, names in list(found.items())[:MOST_FOLDS])


def _binding(nodes: list[tuple[str, Failed | None]]) -> Binding | None:
    """What most nodes of the right kind fail on, of equals what is nearer to a fit; of any kind where none is right."""
    steps = [failed.step for _, failed in nodes if failed is not None]
    near = [step for step in steps if step >= OF_A_KIND] or steps
    if not near:
        return None
    step, number = max(Counter(near).items(), key=lambda item: (item[1], item[0]))
    return Binding(next(failed.constraint for _, failed in nodes if failed is not None and failed.step == step), number, len(nodes))


def reason_of(group: Group, snapshot: Snapshot) -> Verdict:
    """Why the line waits, now: its verdict, or what keeps all waiting."""
    whole = verdicts.for_all(snapshot.fleet, group.tenant in snapshot.tenants, is_blind=snapshot.is_blind)
    return whole or group.verdict or Verdict("not-considered-yet", "is looked at in one of the next cycles")


def positions(snapshot: Snapshot, policy: Policy, most: int, tenant: str | None = None) -> dict[str, int]:
    """The place of the first `most` jobs (of one tenant, where named), counted from 1 among all that stand in a line."""
    found: dict[str, int] = {}
    for number, (where, group) in enumerate(in_order(snapshot, policy), 1):
        if tenant is None or group.tenant == tenant:
            found[where[5]] = number
        if number >= most:
            break
    return found


def _place(group: Group, aged_us: int, job_id: str, snapshot: Snapshot, policy: Policy) -> Place:
    tenant = snapshot.tenants.get(group.tenant)
    fleet = snapshot.fleet
    used, totals = snapshot.usage.of(group.tenant), (fleet.total_milli, fleet.total_mib)
    return place_of(tenant, group.rank, aged_us, job_id, used, totals, snapshot.now_ms, policy)


def _before(mine: Place, snapshot: Snapshot, policy: Policy) -> int:
    """How many jobs go before: places only grow along a line, so each line is halved and not walked."""
    count = 0
    for group in snapshot.queue.groups.values():

        def place_at(at: int, group: Group = group) -> Place:
            return _place(group, *group.line[at], snapshot, policy)

        count += bisect_left(range(len(group.line)), mine, key=place_at)
    return count


def _ahead(mine: Place, snapshot: Snapshot, policy: Policy) -> tuple[tuple[str, ...], list[Wish]]:
    """The first jobs that go before, by id, and what the first of them want."""
    found: list[str] = []
    wishes: list[Wish] = []
    for where, group in in_order(snapshot, policy):
        if where >= mine or len(wishes) >= MOST_WISHES:
            break
        found.append(where[5])
        wishes.append(Wish(group.tenant, group.ask))
    return tuple(found[:MOST_AHEAD]), wishes


def _kept_from(job_id: str, ask: Ask, mine: Place, snapshot: Snapshot, policy: Policy) -> frozenset[str]:
    nodes: set[str] = set()
    for kept in snapshot.reservations.values():
        spot = snapshot.queue.spots.get(kept.job_id)
        if spot is None or kept.job_id == job_id or may_backfill(ask, kept, snapshot.now_ms, policy):
            continue
        if kept.evicting or _place(spot[0], spot[1], kept.job_id, snapshot, policy) < mine:
            nodes |= kept.nodes
    return frozenset(nodes)
