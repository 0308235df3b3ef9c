"""What we say of jobs, made from the domain's values. Every message of the service is built here."""

from datetime import datetime
from typing import Any

from gpuyard_contracts.messages.asks import QueueReplyV1, TenantQueueV1
from gpuyard_contracts.messages.scheduler import (
    CandidateV1,
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
    PlaceV1,
    RankPlanV1,
    ReceiptV1,
    RejectReason,
    ReleaseV1,
    SliceV1,
    TurnV1,
)
from gpuyard_contracts.types import allocation_id_of

from gpuyard_scheduler.domain.ending import Requeue
from gpuyard_scheduler.domain.model import Intent, Job, RankPlan, Verdict
from gpuyard_scheduler.domain.quota import share_ppm
from gpuyard_scheduler.domain.receipt import Receipt
from gpuyard_scheduler.domain.snapshot import Snapshot
from gpuyard_scheduler.mapping.rows import Request


def queued(job: Job) -> JobQueuedV1:
    """The request was taken."""
    return JobQueuedV1(tenant=job.tenant, job_id=job.job_id, request_id=job.request_id, spec=job.spec, submitted_at=job.submitted_at)


def rejected(request: Request, reason: RejectReason, detail: str, name: str = "") -> JobRejectedV1:
    """The request was not taken."""
    return JobRejectedV1(
        tenant=request.tenant,
        job_id=request.job_id,
        request_id=request.request_id,
        reason=reason,
        detail=detail,
        name=request.spec.name if request.spec is not None else name,
    )


def waiting(job: Job, verdict: Verdict, at: datetime) -> JobWaitingV1:
    """Why the job waits."""
    return JobWaitingV1(tenant=job.tenant, job_id=job.job_id, reason=verdict.reason, detail=verdict.detail, at=at)


def ranks_of(ranks: tuple[RankPlan, ...]) -> tuple[RankPlanV1, ...]:
    """The plan's ranks. Built without checks: our own values, and plans can be long."""
    return tuple(
        RankPlanV1.model_construct(
            rank=plan.rank,
            node_id=plan.node_id,
            slices=tuple(
                SliceV1.model_construct(gpu_uuid=part.gpu_uuid, milli=part.milli, memory_mib=part.memory_mib) for part in plan.slices
            ),
            cpu_milli=plan.cpu_milli,
            memory_mib=plan.memory_mib,
        )
        for plan in ranks
    )


def place(job: Job, ranks: tuple[RankPlanV1, ...], seen: dict[str, int]) -> PlaceV1:
    """The plan, for placement."""
    return PlaceV1(
        tenant=job.tenant,
        job_id=job.job_id,
        allocation_id=allocation_id_of(job.job_id, job.attempt),
        attempt=job.attempt,
        spec=job.spec,
        ranks=ranks,
        seen=seen,
    )


def placing(job: Job, ranks: tuple[RankPlanV1, ...], receipt: Receipt, at: datetime) -> JobPlacingV1:
    """The plan went to placement."""
    return JobPlacingV1(tenant=job.tenant, job_id=job.job_id, attempt=job.attempt, ranks=ranks, at=at, receipt=receipt_of(receipt))


def receipt_of(found: Receipt) -> ReceiptV1:
    """Why it was placed there. Built without checks: our own values."""
    chosen, runners = (tuple(CandidateV1.model_construct(**one._asdict()) for one in some) for some in (found.chosen, found.runners_up))
    turn = TurnV1.model_construct(**{"aged_at_us" if name == "aged_us" else name: value for name, value in found.turn._asdict().items()})
    told: dict[str, Any] = {**found._asdict(), "chosen": chosen, "runners_up": runners, "turn": turn}
    return ReceiptV1.model_construct(None, **told)


def release(job: Job) -> ReleaseV1:
    """Let go of what the present attempt holds."""
    reason: Intent = job.intent or "lost"
    return ReleaseV1(tenant=job.tenant, job_id=job.job_id, attempt=job.attempt, reason=reason, detail=job.intent_detail)


def starting(job: Job, at: datetime) -> JobStartingV1:
    """The plan is committed."""
    return JobStartingV1(tenant=job.tenant, job_id=job.job_id, attempt=job.attempt, at=at)


def running(job: Job, started_at: datetime) -> JobRunningV1:
    """Every rank runs."""
    return JobRunningV1(tenant=job.tenant, job_id=job.job_id, attempt=job.attempt, started_at=started_at)


def stopping(job: Job, reason: Intent, at: datetime) -> JobStoppingV1:
    """It was told to stop."""
    detail = job.intent_detail
    return JobStoppingV1(tenant=job.tenant, job_id=job.job_id, attempt=job.attempt, reason=reason, detail=detail, at=at)


def unknown(job: Job, at: datetime) -> JobUnknownV1:
    """Its node is silent, or is heard again."""
    return JobUnknownV1(tenant=job.tenant, job_id=job.job_id, attempt=job.attempt, is_unknown=job.is_unknown, at=at)


def requeued(job: Job, back: Requeue, at: datetime) -> JobRequeuedV1:
    """The attempt is over, the job waits again."""
    return JobRequeuedV1(tenant=job.tenant, job_id=job.job_id, attempt=job.attempt, reason=back.reason, detail=back.detail, at=at)


def refused(job: Job, detail: str, at: datetime) -> JobRequeuedV1:
    """The plan was not taken, the job waits again."""
    return JobRequeuedV1(tenant=job.tenant, job_id=job.job_id, attempt=job.attempt, reason="plan-refused", detail=detail, at=at)


def ended(job: Job) -> JobEndedV1:
    """It is over. The job must have ended."""
    assert job.ended_at is not None
    assert job.end_reason is not None
    assert job.state in ("succeeded", "failed", "cancelled", "expired")
    return JobEndedV1(
        tenant=job.tenant,
        job_id=job.job_id,
        attempt=job.attempt,
        state=job.state,
        reason=job.end_reason,
        detail=job.end_detail,
        exit_code=job.exit_code,
        at=job.ended_at,
    )


def queue(snapshot: Snapshot, positions: dict[str, int], tenant: str | None) -> QueueReplyV1:
    """The queue and the tenants' shares, of all tenants or of one."""
    waiting, fleet, usage = snapshot.queue, snapshot.fleet, snapshot.usage
    names = sorted({*snapshot.tenants, *waiting.tenants(), *usage.by_tenant}) if tenant is None else [tenant]
    reasons = waiting.reasons(tenant)
    return QueueReplyV1(
        waiting=sum(reasons.values()),
        reasons=reasons,
        positions=positions,
        tenants=tuple(
            TenantQueueV1(
                tenant=name,
                waiting=waiting.waiting(name),
                running=usage.of(name).live,
                used_gpu_milli=usage.of(name).milli,
                used_gpu_memory_mib=usage.of(name).mib,
                dominant_share_ppm=share_ppm(usage.of(name), fleet.total_milli, fleet.total_mib),
            )
            for name in names
        ),
        is_blind=snapshot.is_blind,
    )
