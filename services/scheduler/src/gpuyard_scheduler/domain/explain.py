"""Why one job waits: its place in the order, who is ahead, and the verdict of every node.

Reads the same snapshot that decisions are made on.
"""

from bisect import bisect_left
from typing import NamedTuple

from gpuyard_scheduler.domain import verdicts
from gpuyard_scheduler.domain.capacity import settled
from gpuyard_scheduler.domain.fit import Failed, judge_all
from gpuyard_scheduler.domain.model import Ask, Job, Verdict
from gpuyard_scheduler.domain.order import Place, in_order, place_of, weighted_share
from gpuyard_scheduler.domain.policy import Policy
from gpuyard_scheduler.domain.queue import Group
from gpuyard_scheduler.domain.reserve import may_backfill
from gpuyard_scheduler.domain.snapshot import Snapshot

MOST_NODES = 200
"""So many nodes are told of at most: those nearest to a fit."""
MOST_AHEAD = 10


class Explanation(NamedTuple):
    """What is known of one job. `position` counts from 1; None where it stands in no line."""

    reason: Verdict | None
    position: int | None
    ahead: tuple[str, ...]
    nodes: tuple[tuple[str, Failed | None], ...]


def explain(job: Job, snapshot: Snapshot, policy: Policy) -> Explanation:
    """Why the job waits; for a job that does not wait only that it does not."""
    if job.state != "queued":
        return Explanation(None, None, (), ())
    ask = settled(job.ask, snapshot.fleet, snapshot.tenants.get(job.tenant))
    spot = snapshot.queue.spots.get(job.job_id)
    if spot is None:
        reason = Verdict("retry-pause", f"waits until {job.not_before:%H:%M:%S} UTC before it is tried again")
        return Explanation(reason, None, (), tuple(judge_all(ask, snapshot.fleet)[:MOST_NODES]))
    group, aged_us = spot
    mine = _place(group, aged_us, job.job_id, snapshot, policy)
    nodes = judge_all(ask, snapshot.fleet, _kept_from(job.job_id, ask, mine, snapshot, policy))[:MOST_NODES]
    return Explanation(reason_of(group, snapshot), 1 + _before(mine, snapshot, policy), _ahead(mine, snapshot, policy), tuple(nodes))


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
    share = weighted_share(tenant, snapshot.usage.of(group.tenant), fleet.total_milli, fleet.total_mib)
    return place_of(tenant, group.priority, aged_us, job_id, share, snapshot.now_ms, policy)


def _before(mine: Place, snapshot: Snapshot, policy: Policy) -> int:
    """How many jobs go before: places only grow along a line, so each line is halved and not walked."""
    count = 0
    for group in snapshot.queue.groups.values():

        def place_at(at: int, group: Group = group) -> Place:
            return _place(group, *group.line[at], snapshot, policy)

        count += bisect_left(range(len(group.line)), mine, key=place_at)
    return count


def _ahead(mine: Place, snapshot: Snapshot, policy: Policy) -> tuple[str, ...]:
    found: list[str] = []
    for where, _ in in_order(snapshot, policy):
        if where >= mine or len(found) >= MOST_AHEAD:
            break
        found.append(where[5])
    return tuple(found)


def _kept_from(job_id: str, ask: Ask, mine: Place, snapshot: Snapshot, policy: Policy) -> frozenset[str]:
    nodes: set[str] = set()
    for kept in snapshot.reservations.values():
        spot = snapshot.queue.spots.get(kept.job_id)
        if spot is None or kept.job_id == job_id or may_backfill(ask, kept, snapshot.now_ms, policy):
            continue
        if _place(spot[0], spot[1], kept.job_id, snapshot, policy) < mine:
            nodes |= kept.nodes
    return frozenset(nodes)
