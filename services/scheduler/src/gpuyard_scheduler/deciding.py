"""At the end of every unit: decide over the whole state, carry the plan out, tell who waits why."""

from datetime import timedelta

from gpuyard_contracts.types import allocation_id_of
from gpuyard_runtime.service import Tx

from gpuyard_scheduler import acts
from gpuyard_scheduler.domain import states
from gpuyard_scheduler.domain.decide import decide
from gpuyard_scheduler.domain.model import Start, millis
from gpuyard_scheduler.domain.queue import Group
from gpuyard_scheduler.domain.receipt import Receipt, receipts
from gpuyard_scheduler.domain.states import Ignored
from gpuyard_scheduler.mapping import told
from gpuyard_scheduler.store import SchedulerStore


def decide_and_carry_out(tx: Tx[SchedulerStore]) -> None:
    """Plan what can start now. Every plan takes a new attempt, so a plan's messages have ids of their own for ever."""
    store = tx.store
    store.queue.wake(millis(tx.now))
    if not store.queue.groups and not store.reservations:
        return
    snapshot = store.snapshot(tx.now)
    plan = decide(snapshot, store.policy)
    found = tuple(receipts(plan.starts, snapshot, store.policy))
    for start, receipt in zip(plan.starts, found, strict=True):
        _begin(start, receipt, tx)
    for victim, claimant in plan.evictions.items():
        acts.stop(store.jobs[victim], "preempted", f"makes room for {claimant}", tx)
    store.note(plan, tx.now)
    _tell(tx)


def _begin(start: Start, receipt: Receipt, tx: Tx[SchedulerStore]) -> None:
    job = states.plan(tx.store.jobs[start.job_id], start.ranks, tx.now)
    if isinstance(job, Ignored):
        raise AssertionError(f"{start.job_id} was planned: {job.why}")
    tx.store.jobs.put(job)
    once = allocation_id_of(job.job_id, job.attempt)
    ranks = told.ranks_of(start.ranks)
    tx.say(told.place(job, ranks, start.seen), once=once, traceparent=job.traceparent)
    tx.say(told.placing(job, ranks, receipt, tx.now), once=once, traceparent=job.traceparent)


def _tell(tx: Tx[SchedulerStore]) -> None:
    """Say waiting reasons that have changed: near the heads of the lines, not too many in a second. Whoever asks is answered anyway."""
    store, policy = tx.store, tx.store.policy
    if tx.now - store.loaded_at < timedelta(seconds=policy.settle):
        return  # after a start the fleet is heard node by node: no reasons that last for a moment only
    second = millis(tx.now) // 1000
    said = store.told_in[1] if store.told_in[0] == second else 0
    for group in store.queue.groups.values():
        if said >= policy.told_per_second:
            break
        if group.is_untold:
            said += _tell_line(group, policy.told_per_second - said, tx)
    store.told_in = (second, said)


def _tell_line(group: Group, most: int, tx: Tx[SchedulerStore]) -> int:
    verdict, jobs = group.verdict, tx.store.jobs
    if verdict is None:
        group.is_untold = False
        return 0
    said = 0
    for at in range(min(len(group.line), tx.store.policy.told_depth)):
        if said == most:
            return said
        job = jobs[group.line[at][1]]
        if job.told != verdict.reason:
            jobs.put(states.tell(job, verdict.reason))
            tx.say(told.waiting(job, verdict, tx.now), key=f"{job.job_id}/{job.attempt}/{verdict.reason}", traceparent=job.traceparent)
            said += 1
    group.is_untold = False
    return said
