"""Payloads as changes of api's rows: the one place that knows both."""

from datetime import datetime
from typing import Any

from gpuyard_contracts.envelope import Envelope
from gpuyard_contracts.messages.api import TenantStateV1
from gpuyard_contracts.messages.monitor import IncidentClosedV1, IncidentOpenedV1
from gpuyard_contracts.messages.scheduler import (
    JobEndedV1,
    JobPlacingV1,
    JobQueuedV1,
    JobRejectedV1,
    JobRequeuedV1,
    JobRunningV1,
    JobStartingV1,
    JobStoppingV1,
    JobUnknownV1,
    JobWaitingV1,
    RankPlanV1,
)
from gpuyard_contracts.spec import JobSpec
from pydantic_core import to_json

from gpuyard_api.domain.model import Event, Incident, Job, JobAsk, JobState, Tenant
from gpuyard_api.domain.secret import spec_digest
from gpuyard_api.domain.states import Change

_FROM_NODES = "gpuyard.evt.node-agent."
"""Programs on tenants' machines could say more than the fields that we know, and less well."""

NOT_PLACED: dict[str, Any] = {"placement": "[]", "started_at": None, "is_unknown": False}


def change_of(event: Envelope[Any], version: int) -> Change:
    """What one of the scheduler's events says of its job's present state. Raises KeyError for an event that says nothing of it."""
    state, fields = _TOLD[type(event.data)](event)
    return Change(version, event.time, state, fields)


def _queued(event: Envelope[JobQueuedV1]) -> tuple[JobState | None, dict[str, Any]]:
    return "queued", {"reason": "not-considered-yet", "detail": "", "ended_at": None}


def _rejected(event: Envelope[JobRejectedV1]) -> tuple[JobState | None, dict[str, Any]]:
    return "rejected", {"reason": event.data.reason, "detail": event.data.detail, "ended_at": event.time}


def _waiting(event: Envelope[JobWaitingV1]) -> tuple[JobState | None, dict[str, Any]]:
    return "queued", {"reason": event.data.reason, "detail": event.data.detail}


def _placing(event: Envelope[JobPlacingV1]) -> tuple[JobState | None, dict[str, Any]]:
    data = event.data
    return "placing", {"reason": "", "detail": "", "attempt": data.attempt, "placement": _placement(data.ranks)}


def _starting(event: Envelope[JobStartingV1]) -> tuple[JobState | None, dict[str, Any]]:
    return "starting", {"reason": "", "detail": "", "attempt": event.data.attempt}


def _running(event: Envelope[JobRunningV1]) -> tuple[JobState | None, dict[str, Any]]:
    return "running", {"reason": "", "detail": "", "attempt": event.data.attempt, "started_at": event.data.started_at}


def _stopping(event: Envelope[JobStoppingV1]) -> tuple[JobState | None, dict[str, Any]]:
    return "stopping", {"reason": event.data.reason, "detail": event.data.detail, "attempt": event.data.attempt}


def _unknown(event: Envelope[JobUnknownV1]) -> tuple[JobState | None, dict[str, Any]]:
    return None, {"is_unknown": event.data.is_unknown}


def _requeued(event: Envelope[JobRequeuedV1]) -> tuple[JobState | None, dict[str, Any]]:
    data = event.data
    return "queued", {"reason": data.reason, "detail": data.detail, "attempt": data.attempt, **NOT_PLACED}


def _ended(event: Envelope[JobEndedV1]) -> tuple[JobState | None, dict[str, Any]]:
    data = event.data
    told = {"reason": data.reason, "detail": data.detail, "attempt": data.attempt, "exit_code": data.exit_code}
    return data.state, {**told, "ended_at": data.at, "is_unknown": False}


_TOLD = {
    JobQueuedV1: _queued,
    JobRejectedV1: _rejected,
    JobWaitingV1: _waiting,
    JobPlacingV1: _placing,
    JobStartingV1: _starting,
    JobRunningV1: _running,
    JobStoppingV1: _stopping,
    JobUnknownV1: _unknown,
    JobRequeuedV1: _requeued,
    JobEndedV1: _ended,
}

JOB_STATES = tuple(_TOLD)
"""The events that change a job's present state."""


def _placement(ranks: tuple[RankPlanV1, ...]) -> str:
    places = [{"rank": plan.rank, "node_id": plan.node_id, "gpus": [part.gpu_uuid for part in plan.slices]} for plan in ranks]
    return to_json(places).decode()


def gpu_json(spec: JobSpec) -> str:
    """The asked GPUs of one rank, without what was left open."""
    return spec.gpu.model_dump_json(exclude_none=True)


def job_of_spec(job_id: str, tenant: str, spec: JobSpec, asked_at: datetime) -> Job:
    """A job of which nothing is known yet but that it was asked for."""
    return Job(
        job_id=job_id,
        tenant=tenant,
        name=spec.name,
        state="submitted",
        submitted_at=asked_at,
        changed_at=asked_at,
        ranks=spec.ranks,
        priority=spec.priority,
        gpu=gpu_json(spec),
    )


def job_of_stranger(event: Envelope[Any]) -> Job:
    """A job whose first event has not been delivered yet."""
    data = event.data
    name = getattr(data, "name", "") or data.job_id
    return Job(data.job_id, data.tenant, name, "submitted", event.time, event.time)


def ask_of(job_id: str, tenant: str, spec: JobSpec, asked_at: datetime) -> JobAsk:
    """What was asked for."""
    text = spec.model_dump_json(exclude_none=True)
    labels = to_json(dict(spec.labels)).decode()
    return JobAsk(job_id, tenant, text, labels, spec_digest(text), asked_at)


def event_row(event: Envelope[Any], seq: int, *, job_id: str | None = None) -> Event:
    """The event as it is kept; `job_id` where the event itself does not tell it."""
    told = event.data.__dict__  # pydantic's `getattr` of a field that is not there costs more than all the rest
    return Event(
        seq=seq,
        event_id=event.id,
        type=event.type,
        source=event.source,
        at=event.time,
        body=_text(event),
        job_id=job_id or told.get("job_id"),
        tenant=told.get("tenant"),
        causation_id=event.causation_id,
        traceparent=event.traceparent,
    )


def _text(event: Envelope[Any]) -> str:
    """The payload's JSON: from a service as it came, which is what its fields would be written as; from a node only what was understood."""
    raw = None if event.type.startswith(_FROM_NODES) else event.raw
    return (raw or event.body()).decode()


def incident_opened(data: IncidentOpenedV1, known: Incident | None) -> Incident:
    """The incident, opened; one that is known to be over stays over."""
    if known is not None and known.closed_at is not None:
        return Incident(
            data.incident_id, data.kind, data.node_id, data.gpu_uuid, data.action, data.evidence, data.opened_at,
            known.closed_at, known.closing_evidence,
        )  # fmt: skip
    return Incident(data.incident_id, data.kind, data.node_id, data.gpu_uuid, data.action, data.evidence, data.opened_at)


def incident_closed(data: IncidentClosedV1, known: Incident | None) -> Incident:
    """The incident, over; what its opening told is kept where it was heard."""
    action, evidence = ("none", "") if known is None else (known.action, known.evidence)
    return Incident(
        data.incident_id, data.kind, data.node_id, data.gpu_uuid, action, evidence, data.opened_at, data.closed_at, data.evidence
    )


def tenant_state(row: Tenant) -> TenantStateV1:
    """What the other services hear of a tenant."""
    return TenantStateV1(
        tenant=row.tenant,
        version=row.version,
        name=row.name,
        sla=row.sla,
        weight=row.weight,
        quota_gpu_milli=row.quota_gpu_milli,
        quota_gpu_memory_mib=row.quota_gpu_memory_mib,
        guarantee_gpu_milli=row.guarantee_gpu_milli,
        max_waiting=row.max_waiting,
        max_requests_per_minute=row.max_requests_per_minute,
        is_suspended=row.is_suspended,
    )
