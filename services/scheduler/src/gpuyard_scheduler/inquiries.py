"""Questions about the queue, answered from memory. Nothing is changed, and nobody on the way of a job waits for an answer."""

from gpuyard_contracts.messages.asks import ExplainAskV1, ExplainReplyV1, QueueAskV1, QueueReplyV1
from gpuyard_runtime.service import Reading

from gpuyard_scheduler.domain.explain import explain, positions
from gpuyard_scheduler.mapping import told
from gpuyard_scheduler.store import SchedulerStore

MOST_POSITIONS = 1000


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
    return told.explanation(job, explain(job, snapshot, store.policy), snapshot)


async def on_queue(ask: QueueAskV1, reading: Reading[SchedulerStore]) -> QueueReplyV1:
    """The queue now, of all tenants or of one."""
    store = reading.store
    snapshot = store.snapshot(reading.now)
    return told.queue(snapshot, positions(snapshot, store.policy, MOST_POSITIONS, ask.tenant), ask.tenant)
