"""What monitor says: incidents with evidence (``EVT_MONITOR``)."""

from typing import ClassVar, Literal

from gpuyard_contracts.envelope import Payload
from gpuyard_contracts.types import Detail, GpuUuid, IncidentId, Instant, NodeId

IncidentKind = Literal["gpu-hot", "ecc-uncorrectable", "xid-fatal", "gpu-lost", "node-silent", "observer-hung", "telemetry-stale"]
IncidentAction = Literal["none", "cordon", "evict"]
"""What placement is asked to do: nothing, keep new work away, or move the work away too."""


class IncidentOpenedV1(Payload):
    """A fault, seen for as long as its rule demands. `evidence` says what was seen, with numbers."""

    SUBJECT: ClassVar[str] = "gpuyard.evt.monitor.incident.opened.v1._.{incident_id}"

    incident_id: IncidentId
    kind: IncidentKind
    node_id: NodeId
    gpu_uuid: GpuUuid | None = None
    action: IncidentAction
    evidence: Detail
    boot_id: str = ""
    opened_at: Instant


class IncidentClosedV1(Payload):
    """The fault is over, by the rule's measure of recovery."""

    SUBJECT: ClassVar[str] = "gpuyard.evt.monitor.incident.closed.v1._.{incident_id}"

    incident_id: IncidentId
    kind: IncidentKind
    node_id: NodeId
    gpu_uuid: GpuUuid | None = None
    evidence: Detail
    opened_at: Instant
    closed_at: Instant
