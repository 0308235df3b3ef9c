"""What the nodes' clocks say of use, folded so that lost, repeated and reordered ticks all come out at the same.

Each tick tells cumulative sums since the node booted, so the highest ever told per (allocation, rank, boot) is all there is to know.
Evidence is never billed: it confirms how far an interval may be billed before it has ended, and it is shown beside the bill.
"""

from collections.abc import Iterable

from gpuyard_billing.domain.model import Evidence


def fold(old: Evidence | None, told: Evidence) -> Evidence:
    """The higher of both, field by field; `old` itself where nothing is higher."""
    if old is None:
        return told
    gpu_ms, held_ms, confirmed_ms = old.gpu_ms, old.held_ms, old.confirmed_ms
    if told.gpu_ms <= gpu_ms and told.held_ms <= held_ms and told.confirmed_ms <= confirmed_ms:
        return old
    return Evidence(
        old.allocation_id,
        old.rank,
        old.boot_id,
        max(told.gpu_ms, gpu_ms),
        max(told.held_ms, held_ms),
        max(told.confirmed_ms, confirmed_ms),
    )


def confirmed_until(evidence: Iterable[Evidence]) -> int | None:
    """The last instant for which any rank of an allocation is known to have run; None without evidence."""
    return max((row.confirmed_ms for row in evidence), default=None)
