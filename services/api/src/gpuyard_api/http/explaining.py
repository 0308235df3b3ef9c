"""Why a job is where it is, and what would become of one that is only thought of."""

import json
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Body, Query
from gpuyard_contracts.messages.explaining import ExplainAskV1, ExplainReplyV1, PlanAskV1, PlanReplyV1, WaitingV1
from gpuyard_contracts.spec import JobSpec
from gpuyard_contracts.types import Instant, TenantId

from gpuyard_api import problems
from gpuyard_api.domain.access import Principal
from gpuyard_api.domain.model import ENDED, Job
from gpuyard_api.domain.past import moment
from gpuyard_api.http.answers import problem_responses
from gpuyard_api.http.context import TheYard, Who, Yard, bearer
from gpuyard_api.http.jobs import visible_job
from gpuyard_api.problems import FieldError
from gpuyard_api.views.explaining import ExplainView, PlaceView, PlanView, ReceiptView
from gpuyard_api.views.shapes import SPEC

router = APIRouter(tags=["jobs"], dependencies=[bearer])

LOOKED_AT = 5000
"""So many events of a job are searched for its last receipt."""

Spec = Annotated[JobSpec, Body(examples=[SPEC])]
At = Annotated[Instant | None, Query(description="A past instant, such as 2030-01-31T12:00:00Z; without it, now.")]
ForTenant = Annotated[TenantId | None, Query(description="Whose job it would be; for operators, who must name one.")]


@router.get(
    "/v1/jobs/{job_id}/explain", summary="Why a job is where it is", response_model=ExplainView, responses=problem_responses(404, 422)
)
async def explain_job(job_id: str, who: Who, yard: TheYard, at: At = None) -> ExplainView:
    """Why the job waits: reason, place in the queue, what each node says with numbers, when it may start and what would start it now.

    Every suggestion was tried by a real decision. Of a job that was placed: the receipt of the last time.
    With `at`: which state and reason were in force at that instant.
    """
    job, _ = await visible_job(yard, who, job_id)
    if at is not None:
        return await _past(yard, job, at)
    receipt = await _last_receipt(yard, job_id)
    if job.state in ENDED:
        return ExplainView(job_id=job_id, state=job.state, reason=job.reason, detail=job.detail, receipt=receipt)
    reply = await yard.ask(ExplainAskV1(job_id=job_id, tenant=who.tenant), ExplainReplyV1)
    if not reply.is_found:
        detail = job.detail or "the scheduler does not know it yet"
        return ExplainView(job_id=job_id, state=job.state, reason=job.reason or None, detail=detail, receipt=receipt)
    told = {**reply.model_dump(exclude={"is_found", "ahead"}), "ahead": _ahead(yard, who, reply)}
    return ExplainView.model_validate({**told, "receipt": receipt})


@router.get(
    "/v1/jobs/{job_id}/receipt", summary="Why a job was placed where it was", response_model=ReceiptView, responses=problem_responses(404)
)
async def receipt_of_job(job_id: str, who: Who, yard: TheYard) -> ReceiptView:
    """The receipt of the job's last placement: what was known, how the places compared by term, whose turn it was."""
    await visible_job(yard, who, job_id)
    found = await _last_receipt(yard, job_id)
    if found is None:
        raise problems.not_found("receipt of job", job_id)
    return found


@router.post("/v1/plan", summary="What would become of a job", response_model=PlanView, responses=problem_responses(404, 422))
async def plan_job(spec: Spec, who: Who, yard: TheYard, tenant: ForTenant = None) -> PlanView:
    """What would happen if this job were submitted now: refused, started at once and where, or made to wait and why. Nothing is kept."""
    owner = who.tenant or tenant
    if owner is None:
        raise problems.invalid(FieldError("tenant", "is missing", "name the tenant whose job it would be: ?tenant=acme"))
    if tenant is not None and not who.may_see(tenant):
        raise problems.not_found("tenant", tenant)
    reply = await yard.ask(PlanAskV1(tenant=owner, spec=spec), PlanReplyV1)
    told = {**reply.model_dump(exclude={"ranks", "ahead"}), "ahead": _ahead(yard, who, reply)}
    places = [PlaceView(rank=plan.rank, node_id=plan.node_id, gpu_uuids=[part.gpu_uuid for part in plan.slices]) for plan in reply.ranks]
    return PlanView.model_validate({**told, "places": places})


def _ahead(yard: Yard, who: Principal, reply: WaitingV1) -> list[str]:
    """The jobs ahead, as far as the caller may know of them."""
    jobs = yard.engine.store.jobs
    return [job_id for job_id in reply.ahead if (job := jobs.get(job_id)) is not None and who.may_see(job.tenant)]


async def _past(yard: Yard, job: Job, at: datetime) -> ExplainView:
    """What was in force at that instant. Raises Problem for one before the job was asked for, or after now."""
    if not job.submitted_at <= at <= yard.engine.now():
        fix = f"take one from {job.submitted_at.isoformat()} to now"
        raise problems.invalid(FieldError("at", "lies before the job was asked for, or is yet to come", fix))
    found = moment(await yard.reads.job_events(job.job_id, 0, LOOKED_AT), at)
    if found is None:
        return ExplainView(job_id=job.job_id, state="submitted", at=at, since=job.submitted_at)
    receipt = None if found.receipt is None else ReceiptView.model_validate(found.receipt)
    return ExplainView(
        job_id=job.job_id, state=found.state, reason=found.reason or None, detail=found.detail, receipt=receipt, at=at, since=found.since
    )


async def _last_receipt(yard: Yard, job_id: str) -> ReceiptView | None:
    """The receipt of the job's last placement; None where it was never placed, or by a version that wrote none."""
    events = await yard.reads.job_events(job_id, 0, LOOKED_AT)
    bodies = [json.loads(event.body) for event in events if event.name == "job.placing"]
    found = next((body["receipt"] for body in reversed(bodies) if body.get("receipt")), None)
    return None if found is None else ReceiptView.model_validate(found)
