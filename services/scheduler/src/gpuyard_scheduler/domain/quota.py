"""What tenants use, and whether one more job stays within what its tenant may use.

Used is the sum over live jobs' plans: what is held, and what is on its way to be held. It is never counted up and down beside them.
"""

from collections.abc import Mapping
from typing import NamedTuple

from gpuyard_scheduler.domain import words
from gpuyard_scheduler.domain.ask import takes
from gpuyard_scheduler.domain.model import Job, Tenant


class Used(NamedTuple):
    """One tenant's live use. `falls` grows whenever it becomes less."""

    milli: int = 0
    mib: int = 0
    live: int = 0
    falls: int = 0


NOTHING = Used()


class Usage:
    """Live use by tenant; follows the changes of jobs."""

    def __init__(self) -> None:
        self.by_tenant: dict[str, Used] = {}

    def of(self, tenant: str) -> Used:
        """What the tenant uses now."""
        return self.by_tenant.get(tenant, NOTHING)

    def move(self, old: Job | None, new: Job | None) -> None:
        """Follow one job: `old` became `new` (None: there is none)."""
        before = old is not None and old.is_live
        after = new is not None and new.is_live
        if before and after and old.ranks == new.ranks:  # pyright: ignore[reportOptionalMemberAccess]  # both are jobs here
            return
        if before and old is not None:
            self._add(old, -1)
        if after and new is not None:
            self._add(new, 1)

    def _add(self, job: Job, sign: int) -> None:
        milli, mib = takes(tuple(plan.slices for plan in job.ranks))
        used = self.of(job.tenant)
        self.by_tenant[job.tenant] = Used(used.milli + sign * milli, used.mib + sign * mib, used.live + sign, used.falls + (sign < 0))


def above_quota(tenant: Tenant, used: Used, milli: int, mib: int) -> str | None:
    """How the limits would be passed with this much more, in words; None where they hold."""
    if tenant.is_suspended:
        return "the tenant is suspended and may use nothing"
    if tenant.quota_milli is not None and used.milli + milli > tenant.quota_milli:
        return f"needs {words.gpus(milli)}; {words.gpus(used.milli)} of the quota of {words.gpus(tenant.quota_milli)} in use"
    if tenant.quota_mib is not None and used.mib + mib > tenant.quota_mib:
        return f"needs {words.memory(mib)} of GPU memory; {words.memory(used.mib)} of the quota of {words.memory(tenant.quota_mib)} in use"
    return None


def quota_in_words(tenant: Tenant) -> str:
    """The tenant's limits; empty where it has none."""
    parts = [
        words.gpus(tenant.quota_milli) if tenant.quota_milli is not None else "",
        f"{words.memory(tenant.quota_mib)} of GPU memory" if tenant.quota_mib is not None else "",
    ]
    return ", ".join(part for part in parts if part)


def dominant_share(used: Used, total_milli: int, total_mib: int) -> tuple[int, int]:
    """The larger of the tenant's parts of all GPUs and of all GPU memory, as an exact fraction (numerator, denominator)."""
    milli, mib = max(total_milli, 1), max(total_mib, 1)
    return max(used.milli * mib, used.mib * milli), milli * mib


def share_ppm(used: Used, total_milli: int, total_mib: int) -> int:
    """The dominant share in millionths, rounded down."""
    above, below = dominant_share(used, total_milli, total_mib)
    return above * 1_000_000 // below


def used_with(used: Mapping[str, Used], tenant: str, base: Used, milli: int, mib: int) -> Used:
    """What a tenant uses once a plan is added to what a cycle has planned so far."""
    now = used.get(tenant, base)
    return Used(now.milli + milli, now.mib + mib, now.live + 1, now.falls)
