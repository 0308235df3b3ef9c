"""What an order does, and what is done when a process begins or ends. Start reading at :func:`on_start_ordered`.

Each function changes what is known (one record of the journal, written before the deed), tells the keeper, and puts what is to be said
on its way. None of them waits. An order is acknowledged when its record is on the disk, so after a kill at any step the order comes
again, or is found in the journal, and the keeper knows whether its process was started: see :func:`recover`.
"""

from dataclasses import replace
from typing import Any

from gpuyard_contracts.envelope import Envelope
from gpuyard_contracts.messages.node import WorkloadEndedV1
from gpuyard_contracts.messages.placement import StopV1
from gpuyard_runtime.logs import log_of

from gpuyard_node_agent import mapping
from gpuyard_node_agent.domain import launching, states
from gpuyard_node_agent.domain.admission import Admitted, Deferred, Refused, admit, shares_of
from gpuyard_node_agent.domain.model import Born, Gone, Order, State, Workload, key_of
from gpuyard_node_agent.node import Node
from gpuyard_node_agent.ports import Absent, Failed, Seen, Survey

LOG = log_of("orders")


def lane_of(allocation_id: str, rank: int) -> str:
    """The lane in which a workload's events keep their order."""
    return key_of(allocation_id, rank)


# -- orders


def on_start_ordered(order: Order, node: Node) -> None:
    """Start the process, or refuse.

    Twice: a key that is known, living or past, starts nothing again. Late: an attempt below one that is known, and an order from before
    the present lease, are refused.
    """
    verdict = admit(order, node.scene())
    if isinstance(verdict, Admitted):
        _launch(Workload(order=order, state=State.WAITING, taken_ms=node.clock.ms()), node)
    elif isinstance(verdict, Refused):
        _refuse(order, verdict, node)
    elif isinstance(verdict, Deferred):
        node.store.put(Workload(order=order, state=State.WAITING, taken_ms=node.clock.ms()))
        node.waits.setdefault(order.key, node.clock.ms() + node.patience_ms)
        _supersede(verdict, node)
    else:
        node.count("repeated")


def _supersede(verdict: Deferred, node: Node) -> None:
    """Older attempts of the job go at once: they were given up, and must not be there together with the new one."""
    for key in verdict.supersedes:
        workload = node.store.workloads.get(key)
        if workload is not None:
            _stop(workload, 0, node)


def retry_waiting(node: Node) -> None:
    """Try again what waits; who has waited long enough is refused with what it waits for."""
    for key in list(node.waits):
        workload = node.store.workloads.get(key)
        if workload is None or workload.state is not State.WAITING:
            del node.waits[key]
            continue
        verdict = admit(workload.order, node.scene())
        if isinstance(verdict, Admitted):
            del node.waits[key]
            _launch(workload, node)
        elif isinstance(verdict, Refused):
            _refuse(workload.order, verdict, node)
        elif isinstance(verdict, Deferred):
            _supersede(verdict, node)
            if node.clock.ms() >= node.waits[key]:
                _refuse(workload.order, verdict.refusal, node)


def _launch(workload: Workload, node: Node) -> None:
    """Write the intent, then tell the keeper."""
    uid = node.uid_for(workload)
    launch = uid if isinstance(uid, Refused) else node.workspace.prepare(workload.order, uid)
    if isinstance(launch, Refused):
        _refuse(workload.order, launch, node)
        return
    moved = states.move(workload, "launch", keeper=node.keeper, uid=launch.uid)
    if moved is not None:
        node.store.put(moved)
        node.runtime.launch(launch)


def _refuse(order: Order, refusal: Refused, node: Node) -> None:
    node.waits.pop(order.key, None)
    event = mapping.refused(order, refusal, node.node_id, node.clock.now())
    # What was barred stays barred: its end was told, and that is not to be forgotten for a refusal.
    past = node.store.past.get(order.key, "ended")
    _end(order, past, event, node)
    node.count(f"refused:{refusal.reason}")
    LOG.info("refused", workload=order.key, tenant=order.tenant, reason=refusal.reason, detail=refusal.detail)


def _end(order: Order, past: Any, event: Envelope[Any], node: Node) -> None:
    lane = lane_of(order.allocation_id, order.rank)
    node.store.end(order.key, order.job_id, order.attempt, past, (lane, event))
    node.outlet.put(lane, event)


def on_stop_ordered(stop: StopV1, event: Envelope[Any], node: Node) -> None:
    """Stop the process; what does not run is told as ended and never starts.

    Twice: the shorter grace counts. Late: what has ended is told again under the same id.
    """
    key = key_of(stop.allocation_id, stop.rank)
    workload = node.store.workloads.get(key)
    if workload is not None and workload.state is not State.WAITING:
        _stop(workload, stop.grace_ms, node)
        return
    node.waits.pop(key, None)
    past = node.store.past.get(key, "barred")
    answer = mapping.not_running(stop, event, node.clock.now())
    lane = lane_of(stop.allocation_id, stop.rank)
    if answer.id in node.store.unsaid:
        return
    node.store.end(key, stop.job_id, stop.attempt, past, (lane, answer))
    node.outlet.put(lane, answer)


def _stop(workload: Workload, grace_ms: int, node: Node) -> None:
    if workload.state is State.WAITING:
        superseded = Refused("lower-attempt", "a newer attempt has come")
        _refuse(workload.order, superseded, node)
        return
    moved = states.move(workload, "stop")
    if moved is not None and moved != workload:
        node.store.put(moved)
    node.runtime.stop(workload.key, grace_ms)


# -- processes


def on_seen(seen: Seen, node: Node) -> None:
    """Something came from the processes' side."""
    if isinstance(seen, Born):
        on_born(seen, node)
    elif isinstance(seen, Gone):
        on_gone(seen, node)
    elif isinstance(seen, Failed):
        on_failed(seen, node)
    elif isinstance(seen, Absent):
        on_absent(seen, node)
    else:
        recover(seen, node)


def on_born(seen: Born, node: Node) -> None:
    """The process runs. Twice: what is known to run is left alone."""
    workload = node.store.workloads.get(seen.key)
    if workload is None:
        return
    moved = states.born(workload, seen, shares_of(workload.order, node.machine))
    if moved is None:
        return
    lane = lane_of(moved.order.allocation_id, moved.order.rank)
    event = mapping.started(moved, node.node_id)
    node.store.put(moved, (lane, event))
    node.outlet.put(lane, event)
    node.outputs.follow(moved.order)
    node.count("started")


def on_failed(seen: Failed, node: Node) -> None:
    """The process could not be started; nothing runs."""
    workload = node.store.workloads.get(seen.key)
    if workload is None or workload.is_started:
        return
    node.workspace.leave(workload.order, workload.uid, is_alone=False)
    if workload.state is State.STOPPING:
        _told_gone(workload, Gone(seen.key, node.clock.ms(), is_stopped=True), node)
        return
    _refuse(workload.order, launching.refusal_of(seen.number, seen.text, workload.order.command[0]), node)


def on_gone(seen: Gone, node: Node) -> None:
    """The process is gone, with all that it left. Twice: forgotten by the keeper again."""
    workload = node.store.workloads.get(seen.key)
    if workload is not None:
        _told_gone(workload, seen, node)
    node.runtime.forget(seen.key)


def on_absent(seen: Absent, node: Node) -> None:
    """Who was to be adopted is not there: it ended while nobody watched."""
    workload = node.store.workloads.get(seen.key)
    if workload is not None:
        _told_gone(workload, Gone(seen.key, node.clock.ms(), is_unseen=True), node)


def _told_gone(workload: Workload, gone: Gone, node: Node) -> None:
    """The end: its last words, its record, what it held, and everything that it printed before the event."""
    cause = states.cause_of(workload, gone)
    has_failed = gone.code not in (0, None) or gone.signal is not None
    detail = node.outputs.last_words(workload.key) if has_failed and cause == "exited" else _DETAILS.get(cause, "")
    ended_at = states.ended_at(workload, gone.ended_ms, node.clock.now(), node.clock.ms())
    event = mapping.ended(workload, gone, cause, detail, ended_at, node.node_id)
    order = workload.order
    lane = lane_of(order.allocation_id, order.rank)
    if workload.is_started:
        node.finals[workload.key] = mapping.held_of(workload, gone.ended_ms)
    node.store.end(workload.key, order.job_id, order.attempt, "ended", (lane, event))
    node.outlet.put(lane, event, node.outputs.finish(workload.key))
    # While the lease holds, nobody has given this node up for lost and started the job's next attempt elsewhere.
    node.workspace.leave(order, workload.uid, is_alone=cause == "exited" and node.store.lease.is_held(node.clock.ms()))
    node.count(f"ended:{cause}")
    if node.waits:
        retry_waiting(node)


_DETAILS = {
    "fenced": "the node's lease ran out, so the work was killed",
    "vanished": "the process ended while nobody watched it; how is not known",
}


# -- start


def resume(node: Node) -> None:
    """Put on its way what an earlier agent had still to say; an end comes behind the last lines of its output, as ever."""
    for lane, event in list(node.store.unsaid.values()):
        before = None
        if isinstance(event.data, WorkloadEndedV1):
            order = mapping.order_of_end(event.data, event)
            node.outputs.follow(order)
            before = node.outputs.finish(order.key)
        node.outlet.put(lane, event, before)


def recover(survey: Survey, node: Node) -> None:
    """Bring what the journal knows together with what the keeper holds: after a start of the agent, and when the keeper is a new one.

    A workload that the keeper holds runs or has its end. One that it does not hold is adopted by its pid if it ran, or looked for by its
    mark if it was only launched, unless this very keeper was to launch it: then the order never reached it and is given again. Nothing is
    launched twice, since a keeper knows its keys and another keeper's are looked for first.
    """
    was, node.keeper = node.keeper, survey.instance
    if not was:  # a start of the agent, not a new keeper
        lease = node.store.lease
        node.store.lease_is(replace(lease, until_ms=survey.lease_ms))
    elif node.store.lease.until_ms is not None:
        node.runtime.renew(node.store.lease.until_ms)
    held = {seen.key: seen for seen in survey.born}
    for workload in list(node.store.workloads.values()):
        if workload.is_started:
            node.outputs.follow(workload.order)
        if workload.state is State.WAITING:
            node.waits.setdefault(workload.key, node.clock.ms() + node.patience_ms)
        elif workload.key in held:
            on_born(held[workload.key], node)
        elif workload.keeper == survey.instance and not workload.is_started:
            _launch_again(workload, node)
        else:
            known = _born_of(workload)
            node.runtime.adopt(workload.key, known, node.workspace.caps_of(workload.key), workload.uid)
        if workload.state is State.STOPPING:
            node.runtime.stop(workload.key, 0)
    for gone in survey.gone:
        on_gone(gone, node)
    for key in held:
        if key not in node.store.workloads:
            node.runtime.stop(key, 0)


def _launch_again(workload: Workload, node: Node) -> None:
    """The keeper never got the order. Whoever was told to stop in the meantime is over before it began."""
    if workload.state is State.STOPPING:
        _told_gone(workload, Gone(workload.key, node.clock.ms(), is_stopped=True), node)
        return
    launch = node.workspace.prepare(workload.order, workload.uid)
    if isinstance(launch, Refused):
        _refuse(workload.order, launch, node)
    else:
        node.runtime.launch(launch)


def _born_of(workload: Workload) -> Born | None:
    if workload.started_at is None:
        return None
    return Born(workload.key, workload.pid, workload.ticks, workload.started_ms, workload.started_at)
