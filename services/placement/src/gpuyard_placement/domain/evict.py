"""Whom a drain or a fault moves away.

A fault takes everything off the card at once. A drain goes on step by step, so that it can still be cancelled for what was not told to
stop yet; what has been told leaves in any case.
"""

from collections.abc import Iterable, Sequence

from gpuyard_placement.domain.model import Allocation, Cordon
from gpuyard_placement.domain.states import StopAsked


def of_fault(allocations: Iterable[Allocation], node_id: str, gpu_uuid: str, evidence: str) -> list[tuple[Allocation, StopAsked]]:
    """Everything that holds a part of the card, or of the node where `gpu_uuid` is empty."""
    avoid_gpus, avoid_nodes = ((gpu_uuid,), ()) if gpu_uuid else ((), (node_id,))
    where = f"GPU {gpu_uuid} on node {node_id}" if gpu_uuid else f"node {node_id}"
    cause = StopAsked("gpu-fault", f"{where}: {evidence}", avoid_gpus, avoid_nodes)
    return [(found, cause) for found in _affected(allocations, node_id, gpu_uuid) if found.stop is None]


def of_drains(
    allocations: Sequence[Allocation], node_id: str, drains: Iterable[Cordon], at_once: int
) -> list[tuple[Allocation, StopAsked]]:
    """The next ones to go from a draining node: at most `at_once` of it are stopping at a time, in order of their ids."""
    room = at_once - sum(1 for found in allocations if found.stop is not None)
    chosen: dict[str, tuple[Allocation, StopAsked]] = {}
    for drain in drains:
        cause = StopAsked("node-drained", f"{_where(drain)} is drained by {drain.holder}" + (f": {drain.reason}" if drain.reason else ""))
        for found in _affected(allocations, node_id, drain.gpu_uuid):
            if found.stop is None and found.allocation_id not in chosen and len(chosen) < room:
                chosen[found.allocation_id] = (found, cause)
    return list(chosen.values())


def _where(drain: Cordon) -> str:
    return f"GPU {drain.gpu_uuid} on node {drain.node_id}" if drain.gpu_uuid else f"node {drain.node_id}"


def _affected(allocations: Iterable[Allocation], node_id: str, gpu_uuid: str) -> list[Allocation]:
    return [found for found in allocations if not gpu_uuid or found.holds_gpu(node_id, gpu_uuid)]
