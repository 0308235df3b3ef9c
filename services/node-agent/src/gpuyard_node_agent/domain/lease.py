"""The lease: how long this node may run work without hearing from placement.

It counts from when the heartbeat was *sent*, on the boot clock, so that a late answer never stretches it. Once it has run out
the work is killed (by the keeper, which is there even when the agent is not) and may have been started elsewhere: orders issued
up to the first answer after that belong to a world that is gone, and are refused.
"""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Lease:
    """`until_ms`: the end on the boot clock; None: never had one. `horizon`: orders issued up to here are too old."""

    until_ms: int | None = None
    horizon: datetime | None = None

    def is_held(self, now_ms: int) -> bool:
        """Work may run now."""
        return self.until_ms is not None and now_ms < self.until_ms

    def is_too_old(self, issued_at: datetime) -> bool:
        """The order is from before the lease that is held now."""
        return self.horizon is not None and issued_at <= self.horizon


def answered(lease: Lease, *, sent_ms: int, lease_ms: int, at: datetime, now_ms: int) -> Lease:
    """The lease after placement's answer to a heartbeat sent at `sent_ms`; `at` is placement's instant of answering.

    An answer that comes after its own lease has run out renews nothing. The lease never shrinks by an older heartbeat's answer.
    """
    until_ms = sent_ms + lease_ms
    if now_ms >= until_ms:
        return lease
    if not lease.is_held(now_ms):
        horizon = at if lease.horizon is None else max(at, lease.horizon)
        return Lease(until_ms, horizon)
    return Lease(max(until_ms, lease.until_ms or 0), lease.horizon)
