"""``/v1/jobs``: asking for jobs, finding them, ending them, and why they are where they are."""

import asyncio
import json
import re
from datetime import datetime
from typing import Annotated
from uuid import uuid4

from fastapi import APIRouter, Body, Header, Query, Request
from gpuyard_contracts.messages.asks import ExplainAskV1, ExplainReplyV1, UsageAskV1, UsageReplyV1
from gpuyard_contracts.spec import JobSpec
from gpuyard_contracts.types import Line, TenantId, job_id_of
from pydantic_core import to_json
from starlette.responses import Response

from gpuyard_api import acts, mapping, problems
from gpuyard_api.domain import cursor as cursors
from gpuyard_api.domain.access import Principal
from gpuyard_api.domain.model import ENDED, Job, JobState
from gpuyard_api.domain.secret import request_id_of
from gpuyard_api.domain.trace import waterfall
from gpuyard_api.http.answers import problem_responses
from gpuyard_api.http.context import TheYard, Who, Yard, bearer, traceparent_of
from gpuyard_api.hub import Watcher
from gpuyard_api.ports import JobFilter
from gpuyard_api.problems import FieldError
from gpuyard_api.views.jobs import CancelBody, ExplainView, JobDetailView, JobPage, JobView, TraceView, job_detail, job_view, trace_view
from gpuyard_api.views.money import CostView
from gpuyard_api.views.shapes import SPEC

router = APIRouter(prefix="/v1/jobs", tags=["jobs"], dependencies=[bearer])

MAX_WAIT_SECONDS = 60
TRACE_EVENTS = 5000
NO_REASON = CancelBody()
COST_ROWS = 1000

IdempotencyKey = Annotated[
    str | None,
    Header(description="Names the request (1 to 255 printable ASCII characters): the same key and body again is the same request."),
]
Wait = Annotated[float, Query(ge=0, le=MAX_WAIT_SECONDS, description="Seconds to wait for the scheduler's yes or no.")]
Spec = Annotated[JobSpec, Body(examples=[SPEC | {"gpu": "A100-80GB:2"}, SPEC])]
ForTenant = Annotated[TenantId | None, Query(description="Whose it is; for operators.")]
Label = Annotated[list[str], Query(description="`key=value`; several must all hold.")]
Limit = Annotated[int, Query(ge=1, le=500)]
_KEY = re.compile(r"[!-~]([ -~]{0,253}[!-~])?")


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
    owner = _owner(who, tenant)
    request_id = f"req-{uuid4().hex}" if idempotency_key is None else request_id_of(checked_key(idempotency_key))
    job_id = job_id_of(owner, request_id)
    ask = mapping.ask_of(job_id, owner, spec, yard.engine.now())
    with yard.hub.watch(job_id=job_id) as watcher:
        act = acts.submit(who, ask, spec, request_id)
        if idempotency_key is None:
            made = await yard.act(act, traceparent=traceparent_of(request))
        else:
            async with yard.turns.of(job_id):
                if await _is_repeat(yard, who, job_id, ask.digest):
                    made = None
                else:
                    made = await yard.act(act, traceparent=traceparent_of(request))
        if made is None or not made.is_new:
            return await _repeat(yard, job_id, watcher, wait)
        return _answer(await _decided(yard, made.job, watcher, wait), ask.spec, is_new=True)


def _owner(who: Principal, tenant: str | None) -> str:
    """Whose job it is to be. Raises Problem."""
    if who.tenant is not None:
        if tenant not in (None, who.tenant):
            raise problems.not_found("tenant", tenant or "")
        return who.tenant
    if tenant is None:
        raise problems.invalid(FieldError("tenant", "is missing", "an operator says whose job it is: ?tenant=acme"))
    return tenant


def checked_key(key: str) -> str:
    """A caller's idempotency key. Raises Problem 422 for one that is none."""
    if _KEY.fullmatch(key) is None:
        raise problems.invalid(FieldError("Idempotency-Key", "must be 1 to 255 printable ASCII characters", "a UUID is a good one"))
    return key


async def _is_repeat(yard: Yard, who: Principal, job_id: str, digest: str) -> bool:
    """Whether this very request was made before. Raises Problem 409 where the key was used for another."""
    known = await yard.reads.digest(job_id)
    if known is None:
        return False
    if known != digest:
        detail = "This Idempotency-Key was used for a request with another body; take a new key for a new job."
        conflict = problems.conflict("idempotency-conflict", "The key is taken", detail, job_id=job_id)
        raise await yard.refuse(who, "job.submit", job_id, conflict)
    return True


async def _repeat(yard: Yard, job_id: str, watcher: Watcher, wait: float) -> Response:
    """The answer to a request that was made before: its job as it is now."""
    found = await yard.reads.job(job_id, None)
    if found is None:
        raise problems.unavailable("database", "The job of this request cannot be read yet; try again.")
    job, spec = found
    return _answer(await _decided(yard, job, watcher, wait), spec, is_new=False)


async def _decided(yard: Yard, job: Job, watcher: Watcher, wait: float) -> Job:
    """The job once the scheduler has answered, or as it is when the time is over. Raises Problem where the answer is no."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + wait
    now = job
    while now.state == "submitted" and (left := deadline - clock()) > 0 and not watcher.is_closing:
        await watcher.wait(left)
        watcher.take()
        now = yard.engine.store.jobs.get(job.job_id) or now
    if now.state == "rejected":
        raise problems.rejected(now.job_id, now.reason, now.detail)
    return now


def _answer(job: Job, spec: str, *, is_new: bool) -> Response:
    status = 202 if job.state == "submitted" else 201 if is_new else 200
    headers = {"Location": f"/v1/jobs/{job.job_id}"} | ({} if is_new else {"Idempotent-Replayed": "true"})
    return Response(job_detail(job, spec).model_dump_json(), status, headers, "application/json")


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
) -> JobPage:
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
    is_more = len(found) > limit
    return JobPage(
        jobs=[job_view(job) for job in page], next_cursor=cursors.of_row(page[-1].submitted_at, page[-1].job_id) if is_more else None
    )


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
async def get_job(job_id: str, who: Who, yard: TheYard) -> JobDetailView:
    """The job as it is now, with what was asked for."""
    return job_detail(*await visible_job(yard, who, job_id))


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
    return Response(job_view(job).model_dump_json(), 200 if job.state in ENDED else 202, media_type="application/json")


@router.get("/{job_id}/explain", summary="Why a job is where it is", response_model=ExplainView, responses=problem_responses(404))
async def explain_job(job_id: str, who: Who, yard: TheYard) -> ExplainView:
    """Why the job waits: reason, place in the queue, and for each node the first thing that does not fit, with numbers."""
    job, _ = await visible_job(yard, who, job_id)
    if job.state in ENDED:
        return ExplainView(job_id=job_id, state=job.state, reason=job.reason, detail=job.detail)
    reply = await yard.ask(ExplainAskV1(job_id=job_id, tenant=who.tenant), ExplainReplyV1)
    if not reply.is_found:
        return ExplainView(
            job_id=job_id, state=job.state, reason=job.reason or None, detail=job.detail or "the scheduler does not know it yet"
        )
    return ExplainView.model_validate({**reply.model_dump(exclude={"is_found", "ahead"}), "ahead": _ahead(yard, who, reply)})


def _ahead(yard: Yard, who: Principal, reply: ExplainReplyV1) -> list[str]:
    """The jobs ahead, as far as the caller may know of them."""
    jobs = yard.engine.store.jobs
    return [job_id for job_id in reply.ahead if (job := jobs.get(job_id)) is not None and who.may_see(job.tenant)]


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
