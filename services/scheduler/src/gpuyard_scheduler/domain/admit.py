"""The door: whether a request is taken at all. What it costs to say no is paid by nobody else."""

from typing import Literal, NamedTuple

from gpuyard_scheduler.domain import verdicts
from gpuyard_scheduler.domain.capacity import ever_fits, is_over_quota_for_ever
from gpuyard_scheduler.domain.fleet import Fleet
from gpuyard_scheduler.domain.model import Ask, Tenant
from gpuyard_scheduler.domain.quota import quota_in_words

MINUTE_MS = 60_000


class Rate(NamedTuple):
    """Requests of one tenant in the minute that began at `since_ms`."""

    since_ms: int = 0
    number: int = 0

    def another(self, now_ms: int) -> "Rate":
        """With one more request now; after a minute the count begins anew."""
        return Rate(now_ms, 1) if now_ms - self.since_ms >= MINUTE_MS else Rate(self.since_ms, self.number + 1)


class Rejection(NamedTuple):
    """Why a request is not taken."""

    reason: Literal["tenant-unknown", "tenant-suspended", "too-many-waiting", "too-many-requests", "never-fits", "over-quota-for-ever"]
    detail: str


def admit(ask: Ask, tenant: Tenant, waiting: int, rate: Rate, fleet: Fleet, *, is_settled: bool) -> Rejection | None:
    """None: the request is taken. `waiting` and `rate` are the tenant's, this request counted in the rate.

    `is_settled`: the fleet's shape has stood still for a while; until then a request that fits nowhere waits: nodes may be on their way.
    """
    if tenant.is_suspended:
        return Rejection("tenant-suspended", "the tenant is suspended")
    if rate.number > tenant.max_requests_per_minute:
        return Rejection("too-many-requests", f"more than {tenant.max_requests_per_minute} requests in a minute; try again later")
    if waiting >= tenant.max_waiting:
        return Rejection("too-many-waiting", f"{waiting} jobs wait already; at most {tenant.max_waiting} may")
    if is_over_quota_for_ever(ask, tenant, fleet, is_settled=is_settled):
        return Rejection("over-quota-for-ever", f"asks for more than the tenant's whole quota ({quota_in_words(tenant)})")
    if is_settled and not fleet.is_empty and not ever_fits(ask, fleet):
        kinds = fleet.kinds(ask)
        verdict = verdicts.no_room(ask, fleet, kinds, 0) if kinds else verdicts.no_kind(ask, fleet)
        return Rejection("never-fits", verdict.detail)
    if is_settled and not fleet.is_empty and not ever_fits(ask, fleet, tenant):
        return Rejection(
            "over-quota-for-ever", f"fits only on cards of which the tenant's whole quota ({quota_in_words(tenant)}) allows too few"
        )
    return None
