"""Periodic duties. Decisions need no tick of their own, since every unit ends with one; but time itself makes no unit, so one looks."""

from heapq import heappop

from gpuyard_runtime.service import Tick, Tx

from gpuyard_scheduler import acts
from gpuyard_scheduler.domain import states
from gpuyard_scheduler.domain.model import millis
from gpuyard_scheduler.mapping import told
from gpuyard_scheduler.store import SchedulerStore


def on_load(tx: Tx[SchedulerStore]) -> None:
    """Remember when this process began to listen."""
    tx.store.loaded_at = tx.now


def every_look(tx: Tx[SchedulerStore]) -> None:
    """Open a unit, at whose end is a decision: pauses are over, patience ends, reasons are told."""


def every_limit(tx: Tx[SchedulerStore]) -> None:
    """Stop jobs that have run for as long as they may. (An undone unit puts the deadline back, since the job then runs again.)"""
    store, now_ms = tx.store, millis(tx.now)
    while store.deadlines and store.deadlines[0][0] <= now_ms:
        _, job_id = heappop(store.deadlines)
        job = store.jobs.get(job_id)
        limit = None if job is None else job.spec.max_seconds
        if job is None or job.state != "running" or job.started_at is None or limit is None:
            continue
        if millis(job.started_at) + limit * 1000 <= now_ms:
            acts.stop(job, "time-limit", f"ran for its limit of {limit} s", tx)


def every_resend(tx: Tx[SchedulerStore]) -> None:
    """Say again what placement has not answered for long: the same plan under the same allocation, the same release.

    Patience begins when we listen: after a start the answer may lie on the bus, and placement may have forgotten the attempt since.
    """
    store = tx.store
    patience_ms = store.policy.resend * 1000
    if millis(tx.now) - millis(store.loaded_at) < patience_ms:
        return
    for job in [*store.ordered.get("placing"), *store.ordered.get("stopping")]:
        if job.ordered_at is None or millis(tx.now) - millis(job.ordered_at) < patience_ms:
            continue
        store.jobs.put(states.order_again(job, tx.now))
        if job.state == "placing":
            seen = {plan.node_id: node.facts.version for plan in job.ranks if (node := store.fleet.nodes.get(plan.node_id)) is not None}
            tx.say(told.place(job, told.ranks_of(job.ranks), seen), key=job.job_id, traceparent=job.traceparent)
        else:
            tx.say(told.release(job), key=job.job_id, traceparent=job.traceparent)


def every_parked(tx: Tx[SchedulerStore]) -> None:
    """Reject requests whose tenant was not heard of in time."""
    store = tx.store
    for request in sorted(store.parked.values(), key=lambda row: (row.submitted_at, row.job_id)):
        if millis(tx.now) - millis(request.submitted_at) >= store.policy.parked * 1000:
            store.parked.drop(request.job_id)
            acts.reject(request, "tenant-unknown", f"there is no tenant {request.tenant!r}", tx)


TICKS: tuple[Tick[SchedulerStore], ...] = (
    Tick("look", 1.0, every_look, lambda store: bool(len(store.queue))),
    Tick("limit", 1.0, every_limit, lambda store: bool(store.deadlines)),
    Tick("resend", 10.0, every_resend, lambda store: bool(store.ordered.values())),
    Tick("parked", 1.0, every_parked, lambda store: bool(len(store.parked))),
)
