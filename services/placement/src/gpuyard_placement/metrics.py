"""What placement shows on /metrics, read from its rows when it is asked for."""

from collections import Counter
from collections.abc import Mapping

from gpuyard_placement.store import PlacementStore

Labels = tuple[tuple[str, str], ...]


def gauges(store: PlacementStore) -> Mapping[str, float | Mapping[Labels, float]]:
    """Nodes by status, live allocations by state, cards and what is held of them, cordons, sight, and what was ignored, by reason."""
    sight = store.sight()
    return {
        "placement_nodes": _counted("status", Counter(node.status for node in store.nodes.values())),
        "placement_allocations": _counted("state", Counter(found.state for found in store.allocations.values())),
        "placement_gpus": float(sum(len(node.facts.gpus) for node in store.nodes.values())),
        "placement_gpus_lost": float(sum(len(node.lost_gpus) for node in store.nodes.values())),
        "placement_gpu_milli_held": float(sum(found.milli for found in store.held.values())),
        "placement_cordons": float(len(store.cordons)),
        "placement_fleet_blind": float(sight is not None and sight.is_blind),
        "placement_ignored": _counted("reason", store.ignored),
    }


def _counted(label: str, counts: Mapping[str, int]) -> dict[Labels, float]:
    return {((label, value),): float(count) for value, count in sorted(counts.items())}
