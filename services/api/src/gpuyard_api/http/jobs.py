"""``/v1/jobs``: asking for jobs, finding them, ending them. Why they are where they are: :mod:`gpuyard_api.http.explaining`."""

import json
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Body, Query, Request
from gpuyard_contracts.messages.asks import UsageAskV1, UsageReplyV1
from gpuyard_contracts.spec import JobSpec
from gpuyard_contracts.types import Line, TenantId
from pydantic_core import to_json
from starlette.responses import Response

from gpuyard_api import acts, problems
from gpuyard_api.domain import cursor as cursors
from gpuyard_api.domain.access import Principal
from gpuyard_api.domain.model import ENDED, Job, JobState
from gpuyard_api.domain.trace import waterfall
from gpuyard_api.http import submitting
from gpuyard_api.http.answers import problem_responses
from gpuyard_api.http.context import TheYard, Who, Yard, bearer, traceparent_of
from gpuyard_api.http.keys import IdempotencyKey
from gpuyard_api.http.submitting import MAX_WAIT_SECONDS, Wish
from gpuyard_api.ports import JobFilter
from gpuyard_api.problems import FieldError
from gpuyard_api.views.jobs import CancelBody, JobDetailView, JobPage, JobView, TraceView, job_json, trace_view
from gpuyard_api.views.money import CostView
from gpuyard_api.views.shapes import SPEC

router = APIRouter(prefix=submitting.PATH, tags=["jobs"], dependencies=[bearer])

TRACE_EVENTS = 5000
NO_REASON = CancelBody()
COST_ROWS = 1000

Wait = Annotated[float, Query(ge=0, le=MAX_WAIT_SECONDS, description="Seconds to wait for the scheduler's yes or no.")]
Spec = Annotated[JobSpec, Body(examples=[SPEC | {"gpu": "A100-80GB:2"}, SPEC])]
ForTenant = Annotated[TenantId | None, Query(description="Whose it is; for operators.")]
Label = Annotated[list[str], Query(description="`key=value`; several must all hold.")]
Limit = Annotated[int, Query(ge=1, le=500)]


@router.post(
    "",
    status_code=202,
    summary="Ask for a job",
    response_model=JobDetailView,
    responses={
        200: {"model": JobDetailView, "description": "The same request was made before; this is its job."},
        201: {"model": JobDetailView, "description": "The scheduler took the job (with `wait`)."},
        202: {"description": "The request is kept; the scheduler has not answered yet."},
        **problem_responses(403, 404, 409, 413, 422),
    },
)
async def submit_job(
    request: Request,
    spec: Spec,
    who: Who,
    yard: TheYard,
    wait: Wait = 0,
    tenant: ForTenant = None,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Ask for a job. Without `wait` the answer is 202 at once; with it, 201 when the scheduler has taken it or 422 with its reason.

    Send an `Idempotency-Key` so that asking again, after a lost answer say, makes no second job.
    """
    return await submitting.answer(yard, who, Wish(spec, tenant, wait, idempotency_key, traceparent_of(request)))


@router.get("", summary="List jobs", response_model=JobPage, responses=problem_responses(422))
async def list_jobs(
    who: Who,
    yard: TheYard,
    state: Annotated[list[JobState], Query(description="One or several states.")] = [],  # noqa: B006
    tenant: ForTenant = None,
    name: Annotated[Line | None, Query()] = None,
    label: Label = [],  # noqa: B006
    limit: Limit = 50,
    cursor: Annotated[str | None, Query(max_length=cursors.MAX_LENGTH)] = None,
) -> Response:
    """Jobs, newest first. A tenant's token sees its own."""
    if who.tenant is not None and tenant not in (None, who.tenant):
        raise problems.not_found("tenant", tenant or "")
    wanted = JobFilter(
        tenant=who.tenant or tenant,
        states=tuple(state),
        name=name,
        labels=_labels(label),
        before=None if cursor is None else _cursor(cursor),
    )
    found = await yard.reads.jobs(wanted, limit + 1)
    page = found[:limit]
    following = to_json(cursors.of_row(page[-1].submitted_at, page[-1].job_id) if len(found) > limit else None)
    return _json(b'{"jobs":[%b],"next_cursor":%b}' % (b",".join([job_json(job) for job in page]), following))


def _json(body: bytes, status: int = 200) -> Response:
    return Response(body, status, media_type="application/json")


def _cursor(text: str) -> tuple[datetime, str]:
    try:
        return cursors.read(text)
    except ValueError as error:
        raise problems.invalid(FieldError("cursor", str(error), "take it from next_cursor as it is")) from None


def _labels(given: list[str]) -> str | None:
    """Label filters as a JSON object. Raises Problem."""
    pairs: dict[str, str] = {}
    for each in given:
        key, sign, value = each.partition("=")
        if not sign or not key or not each.isprintable() or len(each) > 200:
            raise problems.invalid(FieldError("label", "is not of the form key=value", "write for example label=team=vision"))
        pairs[key] = value
    return to_json(pairs).decode() if pairs else None


async def visible_job(yard: Yard, who: Principal, job_id: str) -> tuple[Job, str]:
    """The job with its spec. Raises Problem 404 for an unknown one and for another tenant's alike."""
    found = await yard.reads.job(job_id, who.tenant) if job_id.isascii() and job_id.isprintable() else None
    if found is None:
        raise problems.not_found("job", job_id)
    return found


@router.get("/{job_id}", summary="One job", response_model=JobDetailView, responses=problem_responses(404))
async def get_job(job_id: str, who: Who, yard: TheYard) -> Response:
    """The job as it is now, with what was asked for."""
    return _json(job_json(*await visible_job(yard, who, job_id)))


@router.post(
    "/{job_id}/cancel",
    status_code=202,
    summary="End a job",
    response_model=JobView,
    responses={200: {"model": JobView, "description": "It had ended already."}, **problem_responses(404, 422)},
)
async def cancel_job(job_id: str, who: Who, yard: TheYard, request: Request, body: CancelBody = NO_REASON) -> Response:
    """Ask for the job's end. A job that has ended stays as it is; a running one is stopped first (SIGTERM, then SIGKILL)."""
    job, _ = await visible_job(yard, who, job_id)
    if job.state not in ENDED:
        await yard.act(acts.cancel(who, job, body.reason), traceparent=traceparent_of(request))
    return _json(job_json(job), 200 if job.state in ENDED else 202)


@router.get("/{job_id}/trace", summary="A job's life as a waterfall", response_model=TraceView, responses=problem_responses(404))
async def trace_job(job_id: str, who: Who, yard: TheYard) -> TraceView:
    """Every step from the request to the ledger: when it began, how long it took, who did it."""
    job, _ = await visible_job(yard, who, job_id)
    events = await yard.reads.job_events(job_id, 0, TRACE_EVENTS)
    return trace_view(job_id, waterfall(events, job.submitted_at))


@router.get("/{job_id}/cost", summary="What a job costs", response_model=CostView, responses=problem_responses(404))
async def cost_of_job(job_id: str, who: Who, yard: TheYard) -> CostView:
    """What the job has cost so far, attempt by attempt."""
    job, _ = await visible_job(yard, who, job_id)
    reply = await yard.ask(UsageAskV1(job_id=job_id, tenant=job.tenant, limit=COST_ROWS), UsageReplyV1)
    return CostView(
        job_id=job_id,
        currency=reply.currency,
        total_micros=reply.total_micros,
        total_gpu_ms=reply.total_gpu_ms,
        is_final=job.state in ENDED and all(row.is_final for row in reply.rows),
        rows=[json.loads(row.model_dump_json()) for row in reply.rows],
    )
