"""Questions about the queue, answered from memory. Nothing is changed, and nobody on the way of a job waits for an answer.

Only what was said of starts to come is remembered, so that it can be held against what came.
"""

from gpuyard_contracts.messages.asks import QueueAskV1, QueueReplyV1
from gpuyard_contracts.messages.explaining import ExplainAskV1, ExplainReplyV1, PlanAskV1, PlanReplyV1
from gpuyard_runtime.service import Reading

from gpuyard_scheduler.domain.admit import Rejection, admit
from gpuyard_scheduler.domain.ask import ask_of
from gpuyard_scheduler.domain.explain import explain, positions
from gpuyard_scheduler.domain.foresee import foresee
from gpuyard_scheduler.mapping import explained, told
from gpuyard_scheduler.mapping.rows import Request, new_job
from gpuyard_scheduler.store import SchedulerStore

MOST_POSITIONS = 1000
_THOUGHT_OF = "job-thought-of"


async def on_explain(ask: ExplainAskV1, reading: Reading[SchedulerStore]) -> ExplainReplyV1:
    """Why a job waits. A job that is over, unknown, or another tenant's (where the ask names one) is not found."""
    store = reading.store
    job = store.jobs.get(ask.job_id)
    if job is None or (ask.tenant is not None and job.tenant != ask.tenant):
        parked = store.parked.get(ask.job_id)
        if parked is not None and ask.tenant in (None, parked.tenant):
            detail = "nothing is known yet of its tenant"
            return ExplainReplyV1(job_id=ask.job_id, state="queued", reason="tenant-unknown", detail=detail)
        return ExplainReplyV1(job_id=ask.job_id, state="", is_found=False)
    snapshot = store.snapshot(reading.now)
    found = explain(job, snapshot, store.policy)
    if found.estimate is not None and found.estimate.latest_ms is not None:
        store.accuracy.expect(job.job_id, found.estimate.latest_ms)
    return explained.explanation(job, found, snapshot, store.accuracy.measured())


async def on_plan(ask: PlanAskV1, reading: Reading[SchedulerStore]) -> PlanReplyV1:
    """What would become of a job if it were submitted now. It is neither kept nor counted."""
    store, tenant = reading.store, reading.store.tenants.get(ask.tenant)
    if tenant is None:
        return explained.rejection(Rejection("tenant-unknown", f"there is no tenant {ask.tenant!r}"))
    waiting, is_settled = store.queue.waiting(ask.tenant), store.is_settled(reading.now)
    why_not = admit(ask_of(ask.spec), tenant, waiting, store.rate_of(ask.tenant), store.fleet, is_settled=is_settled)
    if why_not is not None:
        return explained.rejection(why_not)
    job = new_job(Request(_THOUGHT_OF, ask.tenant, _THOUGHT_OF, ask.spec, reading.now, None), ask.spec)
    snapshot = store.snapshot(reading.now)
    return explained.foreseen(foresee(job, snapshot, store.policy), snapshot, store.accuracy.measured())


async def on_queue(ask: QueueAskV1, reading: Reading[SchedulerStore]) -> QueueReplyV1:
    """The queue now, of all tenants or of one."""
    store = reading.store
    snapshot = store.snapshot(reading.now)
    return told.queue(snapshot, positions(snapshot, store.policy, MOST_POSITIONS, ask.tenant), ask.tenant)
