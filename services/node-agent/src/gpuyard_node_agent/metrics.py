"""The agent's own numbers for /metrics. What the cards say is monitor's to show, under DCGM's names."""

from gpuyard_runtime.metrics import Gauges, Metrics

from gpuyard_node_agent.domain.model import State
from gpuyard_node_agent.journal import Journal
from gpuyard_node_agent.node import Node
from gpuyard_node_agent.observer import Observer
from gpuyard_node_agent.outlet import Outlet
from gpuyard_node_agent.outputs import Outputs

Labelled = dict[tuple[tuple[str, str], ...], float]


def read(node: Node, outlet: Outlet, outputs: Outputs, observer: Observer, journal: Journal) -> Gauges:
    """Everything at this instant."""
    states: Labelled = {(("state", state.value),): 0.0 for state in State}
    for workload in node.store.workloads.values():
        states[("state", workload.state.value),] += 1
    found: dict[str, float | Labelled] = {
        "agent_workloads": states,
        "agent_events_waiting": float(outlet.waiting),
        "agent_events_published_total": float(outlet.published),
        "agent_dropped_log_lines_total": float(outputs.dropped_lines),
        "agent_bad_samples_total": float(observer.bad_samples),
        "agent_cards_lost": float(len(node.lost)),
        "agent_observer_hung": float(node.store.observed.is_hung),
        "agent_lease_held": float(node.store.lease.is_held(node.clock.ms())),
        "agent_journal_broken_lines_total": float(journal.broken_lines),
    }
    if node.counts:
        found["agent_happenings_total"] = {(("what", what),): float(number) for what, number in sorted(node.counts.items())}
    return found


def registry(node: Node, outlet: Outlet, outputs: Outputs, observer: Observer, journal: Journal) -> Metrics:
    """The process's metrics with the agent's numbers in them."""
    metrics = Metrics("node-agent")
    metrics.add_gauges(lambda: read(node, outlet, outputs, observer, journal))
    return metrics
