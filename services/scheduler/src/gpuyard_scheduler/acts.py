"""What is done to jobs from several places: a request taken or turned away, a job stopped, ended, queued again.

Each changes the row and says so, in one step; nothing else in the service does either.
"""

from dataclasses import replace
from datetime import datetime

from gpuyard_contracts.messages.scheduler import RejectReason
from gpuyard_runtime.service import Tx

from gpuyard_scheduler.domain import states
from gpuyard_scheduler.domain.admit import admit
from gpuyard_scheduler.domain.ask import ask_of
from gpuyard_scheduler.domain.ending import Ending, Requeue
from gpuyard_scheduler.domain.model import Intent, Job, Tenant
from gpuyard_scheduler.domain.states import Ignored
from gpuyard_scheduler.mapping import told
from gpuyard_scheduler.mapping.rows import Request, new_job
from gpuyard_scheduler.store import SchedulerStore


def take(request: Request, tenant: Tenant, tx: Tx[SchedulerStore]) -> None:
    """Take a request of a known tenant, or say why not."""
    store, spec = tx.store, request.spec
    assert spec is not None
    rate = store.count_request(tenant.tenant, tx.now)
    waiting = store.queue.waiting(tenant.tenant)
    why_not = admit(ask_of(spec), tenant, waiting, rate, store.fleet, is_settled=store.is_settled(tx.now))
    if why_not is not None:
        reject(request, why_not.reason, why_not.detail, tx)
        return
    said = tx.say(told.queued(new_job(request, spec)), once=f"{request.job_id}/queued", traceparent=request.traceparent)
    request = replace(request, traceparent=said.traceparent)
    store.requests.put(request)
    store.jobs.put(new_job(request, spec))


def reject(request: Request, reason: RejectReason, detail: str, tx: Tx[SchedulerStore], name: str = "") -> None:
    """Turn a request away."""
    tx.say(told.rejected(request, reason, detail, name), key=request.job_id, traceparent=request.traceparent)


def stop(job: Job, intent: Intent, detail: str, tx: Tx[SchedulerStore]) -> bool:
    """Tell placement to let go of the job's attempt; false where it holds nothing or was told already."""
    stopping = states.stop(job, intent, detail, tx.now)
    if isinstance(stopping, Ignored):
        return False
    tx.store.jobs.put(stopping)
    tx.say(told.release(stopping), key=f"{job.job_id}/{job.attempt}", traceparent=job.traceparent)
    tx.say(told.stopping(stopping, intent, tx.now), key=f"{job.job_id}/{job.attempt}", traceparent=job.traceparent)
    return True


def finish(job: Job, ending: Ending, at: datetime, tx: Tx[SchedulerStore]) -> None:
    """End the job."""
    over = states.end(job, ending, at)
    if not isinstance(over, Ignored):
        tx.store.jobs.put(over)
        tx.say(told.ended(over), once=f"{job.job_id}/ended", traceparent=job.traceparent)


def again(job: Job, back: Requeue, tx: Tx[SchedulerStore]) -> None:
    """Queue the job again."""
    waiting = states.requeue(job, back, tx.now)
    if not isinstance(waiting, Ignored):
        tx.store.jobs.put(waiting)
        tx.say(told.requeued(job, back, tx.now), key=f"{job.job_id}/{job.attempt}", traceparent=job.traceparent)
