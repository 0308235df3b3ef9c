"""What has waited too long: starts that do not come, and stop orders that nobody answers."""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from gpuyard_placement.domain.model import Allocation, NodeStatus, Policy
from gpuyard_placement.domain.states import StopAsked, StopUnanswered


def overdue(
    allocations: Iterable[Allocation], status_of: Callable[[str], NodeStatus | None], at: datetime, policy: Policy
) -> list[tuple[Allocation, StopAsked | StopUnanswered]]:
    """Allocations that must be acted on now. Only nodes that are heard are asked again: for the others the first order still waits."""
    found: list[tuple[Allocation, StopAsked | StopUnanswered]] = []
    for allocation in allocations:
        stop = allocation.stop
        if stop is None:
            if allocation.started_at is None and at >= allocation.terms.start_by:
                found.append((allocation, _late(allocation)))
        elif at - stop.sent_at >= timedelta(milliseconds=allocation.terms.grace_ms) + policy.ask_again:
            ranks = tuple(
                rank
                for rank, state in enumerate(allocation.ranks)
                if not state.is_gone and status_of(allocation.terms.plan[rank].node_id) == "ready"
            )
            if ranks:
                found.append((allocation, StopUnanswered(ranks)))
    return found


def _late(allocation: Allocation) -> StopAsked:
    """Say which ranks did not come, and keep the next try away from their nodes."""
    late = [plan for plan, state in zip(allocation.terms.plan, allocation.ranks, strict=True) if state.started_at is None]
    seconds = (allocation.terms.start_by - allocation.committed_at) // timedelta(seconds=1)
    told = ", ".join(f"rank {plan.rank} on node {plan.node_id}" for plan in late[:5])
    more = f" and {len(late) - 5} more" if len(late) > 5 else ""
    return StopAsked(
        "start-timeout", f"not started after {seconds} s: {told}{more}", avoid_nodes=tuple(sorted({plan.node_id for plan in late}))
    )
