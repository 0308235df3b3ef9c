"""Between messages, rows and the domain: the only file that knows two of them."""

from collections.abc import Iterable
from datetime import datetime

from gpuyard_contracts.messages.asks import IncidentsReplyV1, IncidentV1, WatchedGpuV1
from gpuyard_contracts.messages.monitor import IncidentClosedV1, IncidentOpenedV1
from gpuyard_contracts.messages.node import GpuSampleV1
from gpuyard_contracts.messages.placement import NodeFactsV1
from gpuyard_contracts.types import incident_id_of

from gpuyard_monitor.domain.model import Card, Incident, Opening
from gpuyard_monitor.store import NodeWatch


def cards_of(facts: NodeFactsV1) -> tuple[Card, ...]:
    """The cards of a node as its facts tell them."""
    return tuple(Card(gpu.uuid, gpu.model, gpu.index) for gpu in facts.gpus)


def new_errors_of(sample: GpuSampleV1, before: GpuSampleV1 | None) -> int:
    """Uncorrectable ECC errors since the sample before it in the same boot. A counter that fell has started anew and tells nothing."""
    if before is None or sample.ecc_uncorrectable is None or before.ecc_uncorrectable is None:
        return 0
    return max(0, sample.ecc_uncorrectable - before.ecc_uncorrectable)


def incident_of(opening: Opening, node_id: str, boot_id: str, at: datetime) -> Incident:
    """The row of a fault that opens at this instant."""
    return Incident(
        incident_id=incident_id_of(node_id, opening.kind, opening.gpu_uuid or "", at),
        kind=opening.kind,
        node_id=node_id,
        gpu_uuid=opening.gpu_uuid,
        action=opening.action,
        evidence=opening.evidence,
        boot_id=boot_id,
        opened_at=at,
    )


def opened_of(row: Incident) -> IncidentOpenedV1:
    """What is said of an incident that opens."""
    return IncidentOpenedV1(
        incident_id=row.incident_id,
        kind=row.kind,
        node_id=row.node_id,
        gpu_uuid=row.gpu_uuid,
        action=row.action,
        evidence=row.evidence,
        boot_id=row.boot_id,
        opened_at=row.opened_at,
    )


def closed_of(row: Incident) -> IncidentClosedV1:
    """What is said of an incident that is over."""
    return IncidentClosedV1(
        incident_id=row.incident_id,
        kind=row.kind,
        node_id=row.node_id,
        gpu_uuid=row.gpu_uuid,
        evidence=row.closing_evidence,
        opened_at=row.opened_at,
        closed_at=row.closed_at or row.opened_at,
    )


def incidents_reply(rows: Iterable[Incident]) -> IncidentsReplyV1:
    """Incidents as they are told."""
    return IncidentsReplyV1(
        incidents=tuple(
            IncidentV1(
                incident_id=row.incident_id,
                kind=row.kind,
                node_id=row.node_id,
                gpu_uuid=row.gpu_uuid,
                action=row.action,
                evidence=row.evidence,
                opened_at=row.opened_at,
                closed_at=row.closed_at,
                closing_evidence=row.closing_evidence,
            )
            for row in rows
        )
    )


def watched_of(node_id: str, watch: NodeWatch, sample: GpuSampleV1, *, is_stale: bool) -> WatchedGpuV1:
    """A card as it is told; of a stale one only that it is there."""
    shown = GpuSampleV1(gpu_uuid=sample.gpu_uuid, is_lost=sample.is_lost) if is_stale else sample
    return WatchedGpuV1(node_id=node_id, sample=shown, at=watch.at, is_stale=is_stale)
