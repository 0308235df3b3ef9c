"""What placement does with each message: load, decide, save and say.

Each docstring says what happens to a message that comes **Twice** (with another id; the inbox guards the same one) and **Late**.
"""

from typing import Any

from gpuyard_contracts.envelope import Envelope
from gpuyard_contracts.messages.monitor import IncidentClosedV1, IncidentOpenedV1
from gpuyard_contracts.messages.node import WorkloadEndedV1, WorkloadRefusedV1, WorkloadStartedV1
from gpuyard_contracts.messages.placement import NodeCordonedV1, NodeCordonV1, NodeUncordonedV1, NodeUncordonV1
from gpuyard_contracts.messages.scheduler import PlaceV1, ReleaseV1
from gpuyard_runtime.service import Tx

from gpuyard_placement import acts
from gpuyard_placement.domain import evict
from gpuyard_placement.domain.commit import Refused, commit
from gpuyard_placement.domain.model import Allocation, Cordon
from gpuyard_placement.domain.states import Ignored, StopAsked
from gpuyard_placement.mapping import messages
from gpuyard_placement.store import PlacementStore


def on_place_asked(event: Envelope[PlaceV1], tx: Tx[PlacementStore]) -> None:
    """Check the plan against the truth; hold it whole and order its start, or refuse it.

    Twice: the same answer again, under the same id; nothing more is held. Late: an attempt that is over is refused.
    """
    place, store = event.data, tx.store
    live = store.live(place.allocation_id)
    if live is not None and live.tenant == place.tenant:
        _answer_again(tx, live)
        return
    plan = messages.plan_of(place)
    ports = range(store.policy.first_port, store.policy.last_port + 1)
    found = commit(plan, store, ports)
    if isinstance(found, Refused):
        # The attempt is used up by its refusal: the scheduler goes on with the next one, and this one must not be held for nobody.
        acts.close(tx, plan.job_id, plan.attempt)
        tx.say(messages.refused_event(plan, found), once=plan.allocation_id)
        return
    made = messages.allocation_of(place, plan, found, tx.now, tx.traceparent)
    store.allocations.put(made)
    for part in found.held:
        store.held.put(part)
    acts.say(tx, made, messages.committed_event(made), is_once=True)
    address = store.nodes[plan.ranks[0].node_id].facts.address
    for order in messages.start_orders(place, made, address):
        acts.say(tx, made, order)


def _answer_again(tx: Tx[PlacementStore], live: Allocation) -> None:
    acts.ignore(tx, "plan-repeated")
    acts.say(tx, live, messages.committed_event(live), is_once=True)
    if live.started_at is not None:
        acts.say(tx, live, messages.started_event(live), is_once=True)


def on_release_asked(event: Envelope[ReleaseV1], tx: Tx[PlacementStore]) -> None:
    """Tell all ranks to stop.

    Twice: it is stopping already. Late: a released attempt has said so. Before its plan (overtaken): the attempt is closed, so that the
    plan will be refused.
    """
    ask = event.data
    live = tx.store.live_of(ask.job_id)
    if live is not None and live.attempt == ask.attempt and live.tenant == ask.tenant:
        acts.happen(tx, live, StopAsked("stopped", ask.detail or ask.reason))
    elif tx.store.closed_up_to(ask.job_id) < ask.attempt and (live is None or live.attempt < ask.attempt):
        acts.close(tx, ask.job_id, ask.attempt)
        acts.ignore(tx, "released-before-placed")
    else:
        acts.ignore(tx, "not-held")


def on_workload_started(event: Envelope[WorkloadStartedV1], tx: Tx[PlacementStore]) -> None:
    """A rank runs; when the last one does, the allocation has started.

    Twice: known. Late: what has no live allocation (any more), or runs where it was not planned, is told to stop.
    """
    told = event.data
    found = _allocation_of(told, tx)
    happened = None if found is None else acts.happen(tx, found, messages.started_cause(told))
    if happened is None or (isinstance(happened, Ignored) and happened.reason == "rank-not-planned-there"):
        tx.say(messages.stray_order(told.node_id, told, tx.now))


def on_workload_ended(event: Envelope[WorkloadEndedV1], tx: Tx[PlacementStore]) -> None:
    """A rank is gone: the others go on if its end was good, and are stopped if it was not; the last one frees the slices.

    Twice and late: ignored with a reason. Before its start (overtaken): it carries its own start.
    """
    told = event.data
    found = _allocation_of(told, tx)
    if found is not None:
        proof = tx.store.proof_of(found, told.rank) if told.rank < len(found.ranks) else tx.now
        acts.happen(tx, found, messages.ended_cause(told, proof))


def on_workload_refused(event: Envelope[WorkloadRefusedV1], tx: Tx[PlacementStore]) -> None:
    """A rank will not start, so the gang cannot: the others are stopped. Twice and late: ignored with a reason."""
    found = _allocation_of(event.data, tx)
    if found is not None:
        acts.happen(tx, found, messages.refused_cause(event.data))


def _allocation_of(told: WorkloadStartedV1 | WorkloadEndedV1 | WorkloadRefusedV1, tx: Tx[PlacementStore]) -> Allocation | None:
    """The live allocation that a node speaks of; None (and counted) where there is none, or where the node's words contradict it."""
    found = tx.store.live(told.allocation_id)
    if found is not None and (found.tenant, found.job_id, found.attempt) == (told.tenant, told.job_id, told.attempt):
        return found
    acts.ignore(tx, "allocation-not-live")
    return None


def on_cordon_asked(event: Envelope[NodeCordonV1], tx: Tx[PlacementStore]) -> None:
    """A holder keeps new work away, or drains. Twice: nothing. A node that is not enrolled yet is cordoned when it comes."""
    ask = event.data
    cordon = Cordon(ask.node_id, ask.holder, ask.gpu_uuid or "", ask.reason, ask.is_drain, tx.now)
    if _hold(tx, cordon) and cordon.is_drain:
        drain(tx, cordon.node_id)


def on_uncordon_asked(event: Envelope[NodeUncordonV1], tx: Tx[PlacementStore]) -> None:
    """A holder lets go; others keep holding. A drain is cancelled for what was not told to stop yet. Twice: nothing."""
    ask = event.data
    _let_go(tx, ask.node_id, ask.holder, ask.gpu_uuid or "")


def on_incident_opened(event: Envelope[IncidentOpenedV1], tx: Tx[PlacementStore]) -> None:
    """Keep new work off the card, and move away what is on it if the fault demands it.

    Twice: the holder is there, and what stops is stopping. Late (after its close): ignored, it would never be let go.
    """
    told = event.data
    if told.action == "none":
        return
    if tx.store.closed_up_to(told.incident_id):
        acts.ignore(tx, "incident-is-over")
        return
    gpu_uuid = told.gpu_uuid or ""
    _hold(tx, Cordon(told.node_id, holder_of(told), gpu_uuid, f"{told.kind}: {told.evidence}", False, tx.now))
    if told.action == "evict":
        evidence = f"{told.kind}: {told.evidence}"
        for found, cause in evict.of_fault(tx.store.allocations_on(told.node_id), told.node_id, gpu_uuid, evidence):
            acts.happen(tx, found, cause)


def on_incident_closed(event: Envelope[IncidentClosedV1], tx: Tx[PlacementStore]) -> None:
    """The incident's holder lets go. Twice: nothing. Before its opening (overtaken): the opening will be ignored."""
    told = event.data
    _let_go(tx, told.node_id, holder_of(told), told.gpu_uuid or "")
    acts.close(tx, told.incident_id, 1)


def holder_of(told: IncidentOpenedV1 | IncidentClosedV1) -> str:
    """The name under which an incident holds a cordon."""
    return f"incident/{told.incident_id}"


def drain(tx: Tx[PlacementStore], node_id: str) -> None:
    """Tell the next allocations of a draining node to stop."""
    store = tx.store
    drains = [found for found in store.cordons_on(node_id) if found.is_drain]
    for found, cause in evict.of_drains(store.allocations_on(node_id), node_id, drains, store.policy.drain_at_once):
        acts.happen(tx, found, cause)


def _hold(tx: Tx[PlacementStore], cordon: Cordon) -> bool:
    """Add a holder or change what it holds; false where it is there already."""
    key = (cordon.node_id, cordon.holder, cordon.gpu_uuid)
    known = tx.store.cordons.get(key)
    if known is not None and (known.reason, known.is_drain) == (cordon.reason, cordon.is_drain):
        acts.ignore(tx, "cordon-repeated")
        return False
    tx.store.cordons.put(cordon)
    tx.say(NodeCordonedV1(node_id=cordon.node_id, cordon=messages.cordon_told(cordon)))
    return True


def _let_go(tx: Tx[PlacementStore], node_id: str, holder: str, gpu_uuid: str) -> None:
    if tx.store.cordons.drop((node_id, holder, gpu_uuid)) is None:
        acts.ignore(tx, "cordon-not-held")
        return
    still = sorted({found.holder for found in tx.store.cordons_on(node_id) if found.gpu_uuid in ("", gpu_uuid)})
    tx.say(NodeUncordonedV1(node_id=node_id, holder=holder, gpu_uuid=gpu_uuid or None, still_held_by=tuple(still), at=tx.now))


HANDLERS: dict[type[Any], Any] = {
    PlaceV1: on_place_asked,
    ReleaseV1: on_release_asked,
    WorkloadStartedV1: on_workload_started,
    WorkloadEndedV1: on_workload_ended,
    WorkloadRefusedV1: on_workload_refused,
    NodeCordonV1: on_cordon_asked,
    NodeUncordonV1: on_uncordon_asked,
    IncidentOpenedV1: on_incident_opened,
    IncidentClosedV1: on_incident_closed,
}
"""Every message that placement's durables bring."""
