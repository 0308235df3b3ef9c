"""Numbers for /metrics, read when somebody asks."""

from collections.abc import Mapping

from gpuyard_scheduler.store import SchedulerStore

Labelled = Mapping[tuple[tuple[str, str], ...], float]


def gauges(store: SchedulerStore) -> Mapping[str, float | Labelled]:
    """The queue by reason (what others call ``training_queue_length``), live jobs by state, tenants' use, the fleet."""
    queue, fleet = store.queue, store.fleet
    found: dict[str, float | Labelled] = {
        "scheduler_queue_length": float(len(queue)),
        "scheduler_queue_lines": float(len(queue.groups)),
        "scheduler_reservations": float(sum(1 for kept in store.reservations.values() if kept.job_id)),
        "scheduler_parked_requests": float(len(store.parked)),
        "scheduler_fleet_nodes": float(sum(1 for node in fleet.nodes.values() if not node.facts.is_removed)),
        "scheduler_fleet_gpu_milli": float(fleet.total_milli),
    }
    waiting = {(("reason", str(reason)),): float(number) for reason, number in sorted(queue.reasons().items())}
    live = {(("state", str(state)),): float(store.by_state.count(state)) for state in sorted(map(str, store.by_state.values()))}
    used = {(("tenant", tenant),): float(use.milli) for tenant, use in sorted(store.usage.by_tenant.items())}
    labelled: dict[str, Labelled] = {"scheduler_waiting_jobs": waiting, "scheduler_jobs": live, "scheduler_used_gpu_milli": used}
    return found | {name: values for name, values in labelled.items() if values}
