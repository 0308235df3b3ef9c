"""What a decision about an allocation does: the row, the held slices, the orders and the events. No decisions here."""

from dataclasses import replace

from gpuyard_contracts.envelope import Payload
from gpuyard_runtime.service import Tx

from gpuyard_placement.domain.model import Allocation, Tombstone
from gpuyard_placement.domain.states import Cause, Ignored, Moved, move
from gpuyard_placement.mapping import messages
from gpuyard_placement.store import PlacementStore


def happen(tx: Tx[PlacementStore], allocation: Allocation, cause: Cause) -> Moved | Ignored:
    """Let a cause happen to an allocation, with all that follows from it."""
    found = move(allocation, cause, tx.now)
    if isinstance(found, Ignored):
        tx.store.ignored[found.reason] += 1
        return found
    now = found.now
    tx.store.allocations.put(now)
    if found.has_started:
        say(tx, now, messages.started_event(now), is_once=True)
    for rank in found.tell:
        say(tx, now, messages.stop_order(now, rank, tx.now))
    if found.is_released:
        release(tx, now)
    return found


def release(tx: Tx[PlacementStore], allocation: Allocation) -> None:
    """Free the slices, and see that this attempt never comes back."""
    for plan in allocation.terms.plan:
        for part in plan.slices:
            tx.store.held.drop((part.gpu_uuid, allocation.allocation_id, plan.rank))
    close(tx, allocation.job_id, allocation.attempt)
    say(tx, allocation, messages.released_event(allocation), is_once=True)


def close(tx: Tx[PlacementStore], key: str, attempt: int) -> None:
    """Remember that attempts up to this one (or an incident) may not come back."""
    if attempt >= tx.store.closed_up_to(key):
        tx.store.tombstones.put(Tombstone(key, attempt, tx.now))


def say(tx: Tx[PlacementStore], allocation: Allocation, payload: Payload, *, is_once: bool = False) -> None:
    """Say something of an allocation, in its job's trace. `is_once`: the event happens once in an allocation's life, whoever causes it."""
    cause = tx.cause
    is_of_job = cause is not None and cause.correlation_id == allocation.job_id
    tx.say(
        payload,
        traceparent=None if is_of_job else allocation.terms.traceparent,
        once=allocation.allocation_id if is_once else None,
    )


def ignore(tx: Tx[PlacementStore], reason: str) -> None:
    """Count something that changes nothing, by its reason."""
    tx.store.ignored[reason] += 1


def publish_states(tx: Tx[PlacementStore]) -> None:
    """Say the full state of each node that the unit has touched, once, with the next version."""
    store = tx.store
    for node_id in store.touched():
        node = store.node(node_id)
        if node is None:
            continue
        mark = store.marks[node_id]
        mark = replace(mark, version=mark.version + 1, heard_at=store.last_heard(node_id) or mark.heard_at)
        store.marks.put(mark)
        state = messages.node_state(node, mark, mark.heard_at, store.holds_on(node_id), store.cordons_on(node_id))
        tx.say(state, once=f"{node_id}@{mark.version}")
        store.published(node_id)
