"""Jobs as they are seen over HTTP."""

import json
from datetime import datetime
from operator import attrgetter
from typing import Any

from gpuyard_contracts.types import Reason
from pydantic import ConfigDict
from pydantic_core import to_json

from gpuyard_api.domain.model import Event, Job, JobState
from gpuyard_api.domain.trace import ENDS, LAST, RAN, Trace
from gpuyard_api.views.shapes import AT, GPU, JOB, NODE, SPEC, TENANT, Answer, Body, example

_JOB_EXAMPLE: dict[str, Any] = {
    "job_id": JOB,
    "tenant": TENANT,
    "name": "train",
    "state": "running",
    "reason": "",
    "detail": "",
    "attempt": 1,
    "is_unknown": False,
    "priority": "normal",
    "ranks": 1,
    "gpu": {"count": 2, "milli": 1000, "models": ["A100-80GB"]},
    "placement": [{"rank": 0, "node_id": NODE, "gpus": [GPU]}],
    "submitted_at": AT,
    "changed_at": AT,
    "started_at": AT,
    "ended_at": None,
    "exit_code": None,
}


class PlaceView(Answer):
    """Where one rank is, or was last."""

    rank: int
    node_id: str
    gpus: list[str]


class JobView(Answer):
    """One job now. `state` before the scheduler has answered is ``submitted``; `reason` is from a closed list, `detail` for people."""

    model_config = ConfigDict(frozen=True, json_schema_extra=example(**_JOB_EXAMPLE))

    job_id: str
    tenant: str
    name: str
    state: JobState
    reason: str
    detail: str
    attempt: int
    is_unknown: bool
    """Its node is silent; the job itself goes on."""
    priority: str
    ranks: int
    gpu: dict[str, Any]
    placement: list[PlaceView]
    submitted_at: datetime
    changed_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    exit_code: int | None


class JobDetailView(JobView):
    """One job with what was asked for."""

    model_config = ConfigDict(frozen=True, json_schema_extra=example(**_JOB_EXAMPLE, spec=SPEC))

    spec: dict[str, Any]


class JobPage(Answer):
    """Jobs, newest first. `next_cursor` gives the next page; None: there is none."""

    model_config = ConfigDict(frozen=True, json_schema_extra=example(jobs=[_JOB_EXAMPLE], next_cursor=None))

    jobs: list[JobView]
    next_cursor: str | None


_PLAIN = (
    "job_id", "tenant", "name", "state", "reason", "detail", "attempt", "is_unknown", "priority", "ranks", "submitted_at", "changed_at",
    "started_at", "ended_at", "exit_code",
)  # fmt: skip
_plain_of = attrgetter(*_PLAIN)


def job_json(job: Job, spec: str | None = None) -> bytes:
    """A job as :class:`JobView` says, or with its spec (JSON text) as :class:`JobDetailView`. What is kept as JSON goes out as it is."""
    plain = to_json(dict(zip(_PLAIN, _plain_of(job), strict=True)))
    detail = b"" if spec is None else b',"spec":%b' % spec.encode()
    return b'%b,"gpu":%b,"placement":%b%b}' % (plain[:-1], job.gpu.encode(), job.placement.encode(), detail)


class CancelBody(Body):
    """Why the job is to end."""

    model_config = ConfigDict(frozen=True, extra="forbid", json_schema_extra=example(reason="wrong data set"))

    reason: Reason = ""


class EventView(Answer):
    """One event. `seq` is its place in this API's log and the cursor of lists and streams; `name` is noun and verb of its type."""

    model_config = ConfigDict(
        frozen=True,
        json_schema_extra=example(
            seq=41,
            event_id="0b9b6f7e-5f0e-5d55-9b5e-3f0a6c1a7d11",
            name="job.queued",
            type="gpuyard.evt.scheduler.job.queued.v1",
            source="scheduler",
            at=AT,
            tenant=TENANT,
            job_id=JOB,
            data={"reason": "not-considered-yet"},
        ),
    )

    seq: int
    event_id: str
    name: str
    type: str
    source: str
    at: datetime
    tenant: str | None
    job_id: str | None
    causation_id: str | None = None
    traceparent: str | None = None
    data: dict[str, Any]


class EventPage(Answer):
    """Events by `seq`. `next_after` continues the list; None: there is no more now."""

    model_config = ConfigDict(frozen=True, json_schema_extra=example(events=[], next_after=None))

    events: list[EventView]
    next_after: int | None


def event_view(event: Event) -> EventView:
    """An event in a list."""
    return EventView(
        seq=event.seq,
        event_id=event.event_id,
        name=event.name,
        type=event.type,
        source=event.source,
        at=event.at,
        tenant=event.tenant,
        job_id=event.job_id,
        causation_id=event.causation_id,
        traceparent=event.traceparent,
        data=json.loads(event.body),
    )


class StepView(Answer):
    """One step of a trace: from what caused it (`offset_ms`, from the trace's start) for `duration_ms` until the event of its name."""

    name: str
    service: str
    offset_ms: float
    duration_ms: float
    at: datetime
    event_id: str
    attempt: int | None = None
    node_id: str | None = None
    rank: int | None = None
    reason: str | None = None


class TraceView(Answer):
    """A job's life as a waterfall. `is_complete`: it is over, and the money of all its attempts is finally in the ledger."""

    model_config = ConfigDict(
        frozen=True,
        json_schema_extra=example(
            job_id=JOB,
            trace_id="0af7651916cd43dd8448eb211c80319c",
            started_at=AT,
            total_ms=3012.5,
            is_complete=True,
            steps=[
                {"name": "job.submit", "service": "api", "offset_ms": 0, "duration_ms": 0, "at": AT, "event_id": "5d0c…"},
                {"name": "job.queued", "service": "scheduler", "offset_ms": 0, "duration_ms": 3.1, "at": AT, "event_id": "0b9b…"},
            ],
        ),
    )

    job_id: str
    trace_id: str | None
    started_at: datetime
    total_ms: float
    is_complete: bool
    steps: list[StepView]


def trace_view(job_id: str, trace: Trace) -> TraceView:
    """A trace of one job."""
    steps: list[StepView] = []
    ran: set[int | None] = set()
    paid: set[str | None] = set()
    for step in trace.steps:
        data = json.loads(step.event.body)
        if step.event.name in RAN:
            ran.add(data.get("attempt"))
        if step.event.name == LAST and data.get("is_final") is True:
            paid.add(data.get("allocation_id"))
        steps.append(
            StepView(
                name=step.event.name,
                service=step.event.source,
                offset_ms=step.begins_ms,
                duration_ms=round(step.ends_ms - step.begins_ms, 3),
                at=step.event.at,
                event_id=step.event.event_id,
                attempt=data.get("attempt"),
                node_id=data.get("node_id"),
                rank=data.get("rank"),
                reason=data.get("reason") or data.get("cause"),
            )
        )
    is_complete = len(paid) >= len(ran) and any(step.name in ENDS for step in steps)
    return TraceView(
        job_id=job_id, trace_id=trace.trace_id, started_at=trace.started_at, total_ms=trace.total_ms, is_complete=is_complete, steps=steps
    )


class LogLineView(Answer):
    """One line of output, in the NDJSON form of logs. `dropped_lines` above 0: here so many lines of a flood were not kept."""

    model_config = ConfigDict(
        frozen=True,
        json_schema_extra=example(attempt=1, rank=0, stream="stdout", number=12, text="epoch 3: loss 0.21", at=AT, dropped_lines=0),
    )

    attempt: int
    rank: int
    stream: str
    number: int
    text: str
    at: datetime
    dropped_lines: int = 0
