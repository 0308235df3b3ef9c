"""Monitor, put together."""

from functools import partial
from importlib.resources import files

from gpuyard_contracts.messages.asks import GpusAskV1, IncidentsAskV1
from gpuyard_contracts.messages.node import HealthEventV1, TelemetryV1
from gpuyard_contracts.messages.placement import NodeEnrolledV1, NodeStatusChangedV1
from gpuyard_runtime.service import Service, Tick

from gpuyard_monitor import answers, handlers, ticks
from gpuyard_monitor.metrics import gauges
from gpuyard_monitor.settings import MonitorSettings, rules_of
from gpuyard_monitor.store import MonitorStore
from gpuyard_monitor.telemetry import on_telemetry_heard

LOOK_SECONDS = 2.0


def service(settings: MonitorSettings) -> Service[MonitorStore]:
    """The service, under the rules that the settings make."""
    rules = rules_of(settings)
    return Service(
        name="monitor",
        store=MonitorStore,
        migrations=files("gpuyard_monitor") / "migrations",
        schema="monitor",
        handlers={
            HealthEventV1: partial(handlers.on_health_told, rules=rules),
            NodeEnrolledV1: handlers.on_node_enrolled,
            NodeStatusChangedV1: handlers.on_node_status_changed,
        },
        hears={TelemetryV1: partial(on_telemetry_heard, rules=rules)},
        inquiries={GpusAskV1: partial(answers.read_gpus, rules=rules), IncidentsAskV1: answers.read_incidents},
        ticks=(Tick("look", LOOK_SECONDS, partial(ticks.every_look, rules=rules)),),
        on_load=ticks.begin_listening,
        gauges=gauges,
    )
