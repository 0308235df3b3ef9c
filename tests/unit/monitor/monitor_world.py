"""Messages and a service that monitor's tests are made of."""

from datetime import UTC, datetime, timedelta
from typing import Any

from gpuyard_contracts.envelope import Payload
from gpuyard_contracts.messages.monitor import IncidentClosedV1, IncidentOpenedV1
from gpuyard_contracts.messages.node import GpuSampleV1, HealthEventV1, TelemetryV1
from gpuyard_contracts.messages.placement import GpuV1, NodeEnrolledV1, NodeFactsV1, NodeStatusChangedV1
from gpuyard_monitor.app import service
from gpuyard_monitor.settings import MonitorSettings
from gpuyard_monitor.store import MonitorStore
from gpuyard_runtime.testing import Harness

START = datetime(2030, 1, 1, 12, 0, tzinfo=UTC)


def harness(**settings: Any) -> Harness[MonitorStore]:
    """Monitor alone, at START."""
    made = Harness(service(MonitorSettings(**settings)))
    made.clock.advance((START - made.clock.now()).total_seconds())
    made.restart()  # so that it listens since START
    return made


class Fleet:
    """Nodes that tell samples; every call is one tick of two seconds of the harness's clock."""

    def __init__(self, made: Harness[MonitorStore], node_id: str = "n1", boot: str = "b1") -> None:
        self.made = made
        self.node_id = node_id
        self.boot = boot
        self.sequence = 0

    def tell(self, *samples: GpuSampleV1, seconds: float = 2.0) -> list[Payload]:
        """One message; returns what monitor says."""
        self.sequence += 1
        return self.made.feed(self.message(*samples, at=self.made.clock.advance(seconds)))

    def message(self, *samples: GpuSampleV1, at: datetime) -> TelemetryV1:
        """A telemetry message of this node."""
        return TelemetryV1(node_id=self.node_id, boot_id=self.boot, sequence=self.sequence, at=at, gpus=samples)

    def health(
        self, kind: Any, gpu: str | None = "GPU-a", *, at: datetime | None = None, boot: str | None = None, **more: Any
    ) -> list[Payload]:
        """A health event of this node; returns what monitor says."""
        told = at or self.made.clock.now()
        return self.made.feed(HealthEventV1(node_id=self.node_id, boot_id=boot or self.boot, kind=kind, gpu_uuid=gpu, at=told, **more))

    def reboot(self, boot: str, seconds: float = 60.0) -> None:
        """The node boots."""
        self.boot, self.sequence = boot, 0
        self.made.clock.advance(seconds)
        self.health("booted", None)


def sample(celsius: int | None = 50, uuid: str = "GPU-a", **more: Any) -> GpuSampleV1:
    """One card's sample."""
    return GpuSampleV1(gpu_uuid=uuid, temperature_c=celsius, **more)


def lost(uuid: str = "GPU-a") -> GpuSampleV1:
    """A card that does not answer."""
    return GpuSampleV1(gpu_uuid=uuid, is_lost=True)


def enrolled(*cards: tuple[str, str], node_id: str = "n1") -> NodeEnrolledV1:
    """A node with these cards (uuid and model)."""
    gpus = tuple(GpuV1(uuid=uuid, model=model, memory_mib=16_000, index=index) for index, (uuid, model) in enumerate(cards))
    facts = NodeFactsV1(display_name=node_id, address="127.0.0.1", gpus=gpus, cpu_milli=1000, memory_mib=1024)
    return NodeEnrolledV1(node_id=node_id, facts=facts, at=START)


def status(now: Any, was: Any = "ready", *, after_seconds: float = 0, node_id: str = "n1") -> NodeStatusChangedV1:
    """Placement's word on a node."""
    return NodeStatusChangedV1(node_id=node_id, status=now, was=was, at=START + timedelta(seconds=after_seconds))


def opened(said: list[Payload]) -> list[tuple[str, str | None, str]]:
    """Kind, card and action of what opened."""
    return [(event.kind, event.gpu_uuid, event.action) for event in said if isinstance(event, IncidentOpenedV1)]


def closed(said: list[Payload]) -> list[tuple[str, str | None]]:
    """Kind and card of what is over."""
    return [(event.kind, event.gpu_uuid) for event in said if isinstance(event, IncidentClosedV1)]
