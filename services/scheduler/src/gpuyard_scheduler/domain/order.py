"""Who goes next: priority class, SLA urgency, weighted dominant share, age, id.

A tenant of weight 0 runs above its guarantee only on what nobody else wants, so its jobs then come after everybody else's. Within one
tenant share and SLA class are the same for all, and urgency only grows with age; so a tenant's jobs are always in the order (rank, age, id)
and a line never has to be sorted again as time passes. The order between tenants is worked out for the heads of the lines only.
"""

from collections.abc import Iterator
from heapq import merge

from gpuyard_scheduler.domain.model import Tenant
from gpuyard_scheduler.domain.policy import Policy
from gpuyard_scheduler.domain.queue import Group
from gpuyard_scheduler.domain.quota import Used, dominant_share
from gpuyard_scheduler.domain.snapshot import Snapshot

Place = tuple[bool, int, int, int, int, str]
"""A job's place in the order; smaller goes first: (is spare, -rank, -urgency, weighted share, aged µs, job id)."""

SCALE = 1_000_000
"""Shares are divided by weights (at most a million) after this multiplication, so that small differences survive the rounding."""


def urgency(waited_ms: int, promised_seconds: int, cap: int) -> int:
    """Waited / promised in quarters, rounded down: 4 is a promise just missed. At most `cap`; a promise of 0 is always missed."""
    if waited_ms <= 0:
        return 0
    return min(cap, 4 * waited_ms // (promised_seconds * 1000)) if promised_seconds > 0 else cap


def weighted_share(tenant: Tenant | None, used: Used, total_milli: int, total_mib: int) -> int:
    """The dominant share above the guarantee over the weight; to be compared only among shares of the same totals.

    Weight 0 is not divided by.
    """
    above, _ = dominant_share(used, total_milli, total_mib)
    if tenant is not None and tenant.guarantee_milli:
        above = max(0, above - tenant.guarantee_milli * max(total_mib, 1))
    weight = tenant.weight if tenant is not None else 0
    return above * SCALE // weight if weight > 0 else above * SCALE


def is_spare(tenant: Tenant | None, used: Used) -> bool:
    """Whether the tenant's next job runs only on what nobody else wants: it has no weight, and uses what it is guaranteed."""
    return tenant is None or (tenant.weight == 0 and used.milli >= tenant.guarantee_milli)


def place_of(
    tenant: Tenant | None, rank: int, aged_us: int, job_id: str, used: Used, totals: tuple[int, int], now_ms: int, policy: Policy
) -> Place:
    """Where a job of this rank stands; `used` is what its tenant uses, `totals` all milli-GPU and MiB of the fleet."""
    promised = policy.promised_wait[tenant.sla if tenant is not None else "bronze"]
    waited = urgency(now_ms - aged_us // 1000, promised, policy.urgency_cap)
    share = weighted_share(tenant, used, *totals)
    return is_spare(tenant, used), -rank, -waited, share, aged_us, job_id


def in_order(snapshot: Snapshot, policy: Policy) -> Iterator[tuple[Place, Group]]:
    """All waiting jobs that are not in a pause, the next first, lazily."""
    queue, fleet = snapshot.queue, snapshot.fleet
    totals = fleet.total_milli, fleet.total_mib

    def line(group: Group) -> Iterator[tuple[Place, Group]]:
        tenant, used = snapshot.tenants.get(group.tenant), snapshot.usage.of(group.tenant)
        for aged_us, job_id in group.line:
            yield place_of(tenant, group.rank, aged_us, job_id, used, totals, snapshot.now_ms, policy), group

    return merge(*(line(group) for group in queue.groups.values()), key=lambda item: item[0])
