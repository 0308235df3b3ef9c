"""The rows that api keeps: what it owns (tenants, tokens, audit) and what it projects (jobs, events, incidents)."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from gpuyard_contracts.types import SlaClass

JobState = Literal[
    "submitted", "queued", "placing", "starting", "running", "stopping", "succeeded", "failed", "cancelled", "expired", "rejected"
]
"""As a person sees it: the scheduler's states, before them `submitted` (api has the request, the scheduler has not answered), and
`rejected` (the scheduler did not take it)."""

ENDED: frozenset[JobState] = frozenset({"succeeded", "failed", "cancelled", "expired", "rejected"})

Role = Literal["admin", "tenant"]


@dataclass(frozen=True, slots=True)
class Job:
    """One job's present state. `version` is the stream sequence of the youngest event in it: older ones cannot turn it back.

    `gpu` is the asked GPUs and `placement` the ranks' places, both as JSON text: read models that are handed on, never computed with.
    """

    job_id: str
    tenant: str
    name: str
    state: JobState
    submitted_at: datetime
    changed_at: datetime
    version: int = 0
    reason: str = ""
    detail: str = ""
    attempt: int = 0
    ranks: int = 1
    priority: str = "normal"
    gpu: str = "{}"
    placement: str = "[]"
    is_unknown: bool = False
    started_at: datetime | None = None
    ended_at: datetime | None = None
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class JobAsk:
    """What was asked for, kept once and never changed: the spec and its labels as JSON text, and the digest that repeats are held to."""

    job_id: str
    tenant: str
    spec: str
    labels: str
    digest: str
    asked_at: datetime


@dataclass(frozen=True, slots=True)
class Event:
    """One event as it was told. `seq` counts up by commit and is the cursor of lists and streams; `body` is the payload's JSON text."""

    seq: int
    event_id: str
    type: str
    source: str
    at: datetime
    body: str
    job_id: str | None = None
    tenant: str | None = None
    causation_id: str | None = None
    traceparent: str | None = None

    @property
    def name(self) -> str:
        """``gpuyard.evt.scheduler.job.queued.v1`` is ``job.queued``."""
        return name_of(self.type)


def name_of(event_type: str) -> str:
    """The short name of an event type: noun and verb."""
    return ".".join(event_type.split(".")[-3:-1])


@dataclass(frozen=True, slots=True)
class Incident:
    """A fault of a card or node, open or over."""

    incident_id: str
    kind: str
    node_id: str
    gpu_uuid: str | None
    action: str
    evidence: str
    opened_at: datetime
    closed_at: datetime | None = None
    closing_evidence: str = ""


@dataclass(frozen=True, slots=True)
class Tenant:
    """Who shares the fleet, and how much of it is theirs. A quota of None is no limit, 0 is nothing."""

    tenant: str
    version: int
    name: str
    sla: SlaClass
    weight: int
    quota_gpu_milli: int | None
    quota_gpu_memory_mib: int | None
    guarantee_gpu_milli: int
    max_waiting: int
    max_requests_per_minute: int
    is_suspended: bool
    created_at: datetime
    changed_at: datetime


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token, known by its digest only. `tenant` is None for an operator's."""

    digest: str
    token_id: str
    role: Role
    tenant: str | None
    name: str
    hint: str
    """The first characters after the prefix: enough to recognise a token, useless to guess it."""
    created_at: datetime
    created_by: str
    revoked_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One write act: when, who, what, on what, with which result. `result` is ``done`` or the code of the problem that was answered."""

    seq: int
    at: datetime
    actor: str
    tenant: str | None
    action: str
    target: str
    result: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Mark:
    """How far a counter has been reserved; numbers up to `value` may have been given out."""

    name: str
    value: int
