"""Nodes, cards, incidents and the queue as they are seen over HTTP."""

from datetime import datetime
from typing import Literal

from gpuyard_contracts.messages.asks import QueueReplyV1
from gpuyard_contracts.messages.node import GpuSampleV1
from gpuyard_contracts.messages.placement import CordonV1, NodeStateV1
from gpuyard_contracts.types import SHARE_FULL_MILLI, GpuUuid, Line, Reason
from pydantic import ConfigDict

from gpuyard_api.domain.model import Incident
from gpuyard_api.views.shapes import AT, GPU, JOB, NODE, TENANT, Answer, Body, example

_CORDON_EXAMPLE = {"holder": "operator/admin", "reason": "new fan", "gpu_uuid": None, "is_drain": False, "at": AT}
_NODE_EXAMPLE = {
    "node_id": NODE,
    "display_name": "rack 4, Größe L",
    "status": "ready",
    "is_cordoned": True,
    "cordons": [_CORDON_EXAMPLE],
    "zone": "default",
    "labels": {},
    "gpus": 8,
    "gpu_milli": 8000,
    "free_gpu_milli": 6500,
    "models": {"A100-80GB": 8},
    "lost_gpus": [],
    "cpu_milli": 64000,
    "free_cpu_milli": 60000,
    "memory_mib": 524288,
    "free_memory_mib": 500000,
    "jobs": [JOB],
    "last_heard_at": AT,
    "version": 118,
    "agent_version": "0.1.0",
    "backend": "nvml",
}


class CordonView(Answer):
    """Why nothing new is placed: one for each holder. `gpu_uuid` narrows it to one card."""

    holder: str
    reason: str
    gpu_uuid: str | None
    is_drain: bool
    at: datetime


class NodeView(Answer):
    """A node as placement knows it. Free capacity is what the holds leave; a silent node is ``unknown``, not gone."""

    model_config = ConfigDict(frozen=True, json_schema_extra=example(**_NODE_EXAMPLE))

    node_id: str
    display_name: str
    status: Literal["ready", "unknown", "lost"]
    is_cordoned: bool
    """The whole node, by at least one holder."""
    cordons: list[CordonView]
    zone: str
    labels: dict[str, str]
    gpus: int
    gpu_milli: int
    free_gpu_milli: int
    models: dict[str, int]
    lost_gpus: list[str]
    cpu_milli: int
    free_cpu_milli: int
    memory_mib: int
    free_memory_mib: int
    jobs: list[str]
    last_heard_at: datetime
    version: int
    agent_version: str
    backend: str


class NodeList(Answer):
    """All nodes, by id."""

    model_config = ConfigDict(frozen=True, json_schema_extra=example(nodes=[_NODE_EXAMPLE]))

    nodes: list[NodeView]


class HolderView(Answer):
    """Who holds a part of a card."""

    job_id: str
    tenant: str
    allocation_id: str
    rank: int
    milli: int
    memory_mib: int


Telemetry = Literal["live", "stale", "absent", "no-answer"]
"""`live`: the sample is fresh. `stale`: monitor has one that is too old to be believed, so it is not shown. `absent`: monitor has none.
`no-answer`: monitor itself did not answer."""


class GpuView(Answer):
    """A card: what it is, who holds it, and how it is. What the hardware does not tell is absent, never zero."""

    model_config = ConfigDict(
        frozen=True,
        json_schema_extra=example(
            uuid=GPU,
            node_id=NODE,
            model="A100-80GB",
            vendor="nvidia",
            memory_mib=81920,
            index=0,
            status="ready",
            is_lost=False,
            cordons=[],
            used_milli=500,
            used_memory_mib=20480,
            holders=[{"job_id": JOB, "tenant": TENANT, "allocation_id": f"{JOB}-1", "rank": 0, "milli": 500, "memory_mib": 20480}],
            telemetry="live",
            sampled_at=AT,
            sample={"gpu_uuid": GPU, "temperature_c": 61, "power_mw": 213000, "utilization_percent": 87},
        ),
    )

    uuid: str
    node_id: str
    model: str
    vendor: str
    memory_mib: int
    index: int | None
    status: Literal["ready", "unknown", "lost"]
    """Its node's."""
    is_lost: bool
    cordons: list[CordonView]
    used_milli: int
    used_memory_mib: int
    holders: list[HolderView]
    telemetry: Telemetry
    sampled_at: datetime | None = None
    sample: GpuSampleV1 | None = None


class GpuList(Answer):
    """Cards, by node and index; a node's are never divided. `next_cursor` gives the next page; None: there is none."""

    model_config = ConfigDict(frozen=True, json_schema_extra=example(gpus=[], next_cursor=None))

    gpus: list[GpuView]
    next_cursor: str | None


def _cordon(cordon: CordonV1) -> CordonView:
    return CordonView(holder=cordon.holder, reason=cordon.reason, gpu_uuid=cordon.gpu_uuid, is_drain=cordon.is_drain, at=cordon.at)


def node_view(node: NodeStateV1, *, tenant: str | None) -> NodeView:
    """A node; `tenant` narrows the jobs named to those of one tenant."""
    facts = node.facts
    models: dict[str, int] = {}
    for gpu in facts.gpus:
        models[gpu.model] = models.get(gpu.model, 0) + 1
    used = sum(part.milli for hold in node.holds for part in hold.slices)
    whole = len(facts.gpus) * SHARE_FULL_MILLI
    return NodeView(
        node_id=node.node_id,
        display_name=facts.display_name,
        status=node.status,
        is_cordoned=any(cordon.gpu_uuid is None for cordon in node.cordons),
        cordons=[_cordon(cordon) for cordon in node.cordons],
        zone=facts.zone,
        labels=dict(facts.labels),
        gpus=len(facts.gpus),
        gpu_milli=whole,
        free_gpu_milli=max(0, whole - used),
        models=models,
        lost_gpus=list(node.lost_gpus),
        cpu_milli=facts.cpu_milli,
        free_cpu_milli=max(0, facts.cpu_milli - sum(hold.cpu_milli for hold in node.holds)),
        memory_mib=facts.memory_mib,
        free_memory_mib=max(0, facts.memory_mib - sum(hold.memory_mib for hold in node.holds)),
        jobs=sorted({hold.job_id for hold in node.holds if tenant in (None, hold.tenant)}),
        last_heard_at=node.last_heard_at,
        version=node.version,
        agent_version=facts.agent_version,
        backend=facts.backend,
    )


def gpu_views(
    node: NodeStateV1, samples: dict[str, tuple[Telemetry, datetime, GpuSampleV1]], missing: Telemetry, *, tenant: str | None
) -> list[GpuView]:
    """The cards of a node with their samples; `missing` is said of a card without one. Holders of other tenants are not named."""
    found: list[GpuView] = []
    for gpu in node.facts.gpus:
        parts = [(hold, part) for hold in node.holds for part in hold.slices if part.gpu_uuid == gpu.uuid]
        telemetry, at, sample = samples.get(gpu.uuid, (missing, None, None))
        found.append(
            GpuView(
                uuid=gpu.uuid,
                node_id=node.node_id,
                model=gpu.model,
                vendor=gpu.vendor,
                memory_mib=gpu.memory_mib,
                index=gpu.index,
                status=node.status,
                is_lost=gpu.uuid in node.lost_gpus or (sample is not None and sample.is_lost),
                cordons=[_cordon(cordon) for cordon in node.cordons if cordon.gpu_uuid in (None, gpu.uuid)],
                used_milli=sum(part.milli for _, part in parts),
                used_memory_mib=sum(part.memory_mib for _, part in parts),
                holders=[
                    HolderView(
                        job_id=hold.job_id, tenant=hold.tenant, allocation_id=hold.allocation_id, rank=hold.rank,
                        milli=part.milli, memory_mib=part.memory_mib,
                    )
                    for hold, part in parts
                    if tenant in (None, hold.tenant)
                ],
                telemetry=telemetry,
                sampled_at=at,
                sample=sample if telemetry == "live" else None,
            )
        )  # fmt: skip
    return found


class CordonBody(Body):
    """Why, and whether only one card is meant."""

    model_config = ConfigDict(frozen=True, extra="forbid", json_schema_extra=example(reason="new fan", gpu_uuid=None))

    reason: Reason = ""
    gpu_uuid: GpuUuid | None = None


class UncordonBody(Body):
    """Which holder lets go; without one, the caller's own."""

    model_config = ConfigDict(frozen=True, extra="forbid", json_schema_extra=example(holder="operator/admin", gpu_uuid=None))

    holder: Line | None = None
    gpu_uuid: GpuUuid | None = None


class OrderView(Answer):
    """An order that was given to placement: the node shows its effect within moments."""

    model_config = ConfigDict(
        frozen=True, json_schema_extra=example(order="cordon", node_id=NODE, gpu_uuid=None, holder="operator/admin", node=_NODE_EXAMPLE)
    )

    order: Literal["cordon", "uncordon", "drain"]
    node_id: str
    gpu_uuid: str | None
    holder: str
    node: NodeView
    """As it was when the order was given."""


class IncidentView(Answer):
    """A fault of a card or node with what was seen, open or over."""

    incident_id: str
    kind: str
    node_id: str
    gpu_uuid: str | None
    action: str
    evidence: str
    is_open: bool
    opened_at: datetime
    closed_at: datetime | None
    closing_evidence: str


class IncidentList(Answer):
    """Incidents, the youngest first."""

    model_config = ConfigDict(
        frozen=True,
        json_schema_extra=example(
            incidents=[
                {
                    "incident_id": "inc-3xk5q2m7vtzlnab6",
                    "kind": "gpu-hot",
                    "node_id": NODE,
                    "gpu_uuid": GPU,
                    "action": "evict",
                    "evidence": "91 °C for 3 samples, limit 85",
                    "is_open": True,
                    "opened_at": AT,
                    "closed_at": None,
                    "closing_evidence": "",
                }
            ]
        ),
    )

    incidents: list[IncidentView]


def incident_view(row: Incident) -> IncidentView:
    """An incident."""
    return IncidentView(
        incident_id=row.incident_id,
        kind=row.kind,
        node_id=row.node_id,
        gpu_uuid=row.gpu_uuid,
        action=row.action,
        evidence=row.evidence,
        is_open=row.closed_at is None,
        opened_at=row.opened_at,
        closed_at=row.closed_at,
        closing_evidence=row.closing_evidence,
    )


class QueueView(QueueReplyV1):
    """The queue now; the classes of `reasons` sum to `waiting`."""

    model_config = ConfigDict(
        json_schema_extra=example(
            waiting=17,
            reasons={"no-free-gpus": 15, "quota": 2},
            positions={JOB: 1},
            tenants=[
                {
                    "tenant": TENANT,
                    "waiting": 17,
                    "running": 4,
                    "used_gpu_milli": 4000,
                    "used_gpu_memory_mib": 327680,
                    "dominant_share_ppm": 333333,
                }
            ],
            is_blind=False,
        )
    )
