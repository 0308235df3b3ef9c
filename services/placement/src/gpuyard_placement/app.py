"""Placement, put together."""

from functools import partial
from importlib.resources import files

from gpuyard_contracts.messages.node import HeartbeatV1
from gpuyard_runtime.service import Service

from gpuyard_placement.acts import publish_states
from gpuyard_placement.domain.model import Policy
from gpuyard_placement.handlers import HANDLERS
from gpuyard_placement.heartbeats import on_heartbeat, on_heartbeat_meanwhile
from gpuyard_placement.metrics import gauges
from gpuyard_placement.store import PlacementStore
from gpuyard_placement.ticks import TICKS, on_load


def service(policy: Policy | None = None) -> Service[PlacementStore]:
    """The service under this policy (default: the product's)."""
    return Service(
        name="placement",
        store=partial(PlacementStore, policy or Policy()),
        migrations=files("gpuyard_placement") / "migrations",
        schema="placement",
        handlers=HANDLERS,
        asks={HeartbeatV1: on_heartbeat},
        meanwhile={HeartbeatV1: on_heartbeat_meanwhile},
        ticks=TICKS,
        after_unit=publish_states,
        on_load=on_load,
        gauges=gauges,
    )


SERVICE = service()
"""Placement as the product ships it."""
