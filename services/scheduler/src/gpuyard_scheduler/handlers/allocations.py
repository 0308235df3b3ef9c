"""What placement says of our plans. News of another attempt than the job's present one change nothing."""

from gpuyard_contracts.envelope import Envelope
from gpuyard_contracts.messages.placement import AllocationCommittedV1, AllocationRefusedV1, AllocationReleasedV1, AllocationStartedV1
from gpuyard_contracts.messages.scheduler import ReleaseV1
from gpuyard_runtime.service import Tx

from gpuyard_scheduler import acts
from gpuyard_scheduler.domain import ending, states
from gpuyard_scheduler.domain.ending import Ending
from gpuyard_scheduler.domain.states import Ignored
from gpuyard_scheduler.mapping import told
from gpuyard_scheduler.mapping.heard import release_of
from gpuyard_scheduler.store import SchedulerStore


def on_allocation_committed(event: Envelope[AllocationCommittedV1], tx: Tx[SchedulerStore]) -> None:
    """The attempt starts.

    Twice: a second time it is starting already. Late: an attempt that is not ours any more is told to let go, so that nothing is held for
    nobody; if it has let go already, that does nothing.
    """
    data = event.data
    job = states.of_attempt(tx.store.jobs.get(data.job_id), data.attempt)
    if isinstance(job, Ignored):
        detail = f"not wanted: {job.why}"
        tx.say(ReleaseV1(tenant=data.tenant, job_id=data.job_id, attempt=data.attempt, reason="lost", detail=detail))
        return
    starting = states.commit(job)
    if not isinstance(starting, Ignored):
        tx.store.jobs.put(starting)
        tx.say(told.starting(starting, tx.now))


def on_allocation_refused(event: Envelope[AllocationRefusedV1], tx: Tx[SchedulerStore]) -> None:
    """Queue the job again after a short pause; one that was told to stop meanwhile is over.

    Twice: it waits already, or has another attempt. Late: likewise.
    """
    data = event.data
    job = states.of_attempt(tx.store.jobs.get(data.job_id), data.attempt)
    if isinstance(job, Ignored):
        return
    if job.state == "stopping":
        acts.finish(job, ending.withdrawn(job), tx.now, tx)
        return
    waiting = states.refuse(job, tx.now, tx.store.policy)
    if not isinstance(waiting, Ignored):
        tx.store.jobs.put(waiting)
        tx.say(told.refused(job, f"{data.reason}: {data.detail}", tx.now))


def on_allocation_started(event: Envelope[AllocationStartedV1], tx: Tx[SchedulerStore]) -> None:
    """The job runs.

    Twice: it runs already. Late: after a stop or an end nothing changes; before the commit's news it is believed all the same.
    """
    data = event.data
    job = states.of_attempt(tx.store.jobs.get(data.job_id), data.attempt)
    if isinstance(job, Ignored):
        return
    running = states.start(job, data.started_at)
    if not isinstance(running, Ignored):
        tx.store.jobs.put(running)
        tx.say(told.running(running, data.started_at))


def on_allocation_released(event: Envelope[AllocationReleasedV1], tx: Tx[SchedulerStore]) -> None:
    """Finish the job, or queue it again.

    Twice: the attempt is over already. Late: an attempt below the present one is ignored.
    """
    data, store = event.data, tx.store
    job = states.of_attempt(store.jobs.get(data.job_id), data.attempt)
    if isinstance(job, Ignored):
        return
    follows = ending.after(job, release_of(data), store.policy)
    if isinstance(follows, Ending):
        acts.finish(job, follows, data.ended_at, tx)
    else:
        acts.again(job, follows, tx)
