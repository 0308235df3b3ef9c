"""Placement's periodic duties: silence, what is overdue, drains, and forgetting.

Each of them writes only where it finds something to do.
"""

from dataclasses import replace

from gpuyard_contracts.messages.placement import FleetSightChangedV1, NodeStatusChangedV1
from gpuyard_runtime.service import Tick, Tx

from gpuyard_placement import acts
from gpuyard_placement.domain.model import Sight
from gpuyard_placement.domain.overdue import overdue
from gpuyard_placement.domain.silence import Change, Watch, is_deaf, watch
from gpuyard_placement.domain.states import RanksLost
from gpuyard_placement.handlers import drain
from gpuyard_placement.store import PlacementStore


def on_load(tx: Tx[PlacementStore]) -> None:
    """We did not listen until now: every node has a full lease from this instant on."""
    tx.store.listening_since = tx.now


def every_watch(tx: Tx[PlacementStore]) -> None:
    """Judge who is silent: unknown, lost, or we are blind."""
    store = tx.store
    if store.listening_since is None or is_deaf(store.last_watch_at, tx.now, store.policy):
        store.listening_since = tx.now
    store.last_watch_at = tx.now
    sight = store.sight() or Sight(False, tx.now)
    found = watch(store.nodes.values(), store.heard_at, store.listening_since, sight, tx.now, store.policy)
    for change in found.changes:
        _change(tx, change)
    if found.sight is not None:
        _see(tx, found, found.sight)


def _change(tx: Tx[PlacementStore], change: Change) -> None:
    node = change.node
    tx.store.nodes.put(replace(node, status=change.status))
    tx.say(NodeStatusChangedV1(node_id=node.node_id, status=change.status, was=node.status, detail=change.detail, at=tx.now))
    if change.status == "lost":
        _lose(tx, node.node_id, change.detail)


def _lose(tx: Tx[PlacementStore], node_id: str, detail: str) -> None:
    """Give up every rank on a node whose lease has ended; stop orders wait for its return."""
    store = tx.store
    for found in store.allocations_on(node_id):
        proofs = {rank: store.proof_of(found, rank) for rank, plan in enumerate(found.terms.plan) if plan.node_id == node_id}
        acts.happen(tx, found, RanksLost(node_id, "node-lost", f"node {node_id}: {detail}", proofs))


def _see(tx: Tx[PlacementStore], found: Watch, sight: Sight) -> None:
    if not sight.is_blind:
        tx.store.listening_since = tx.now
    tx.store.sights.put(sight)
    tx.say(FleetSightChangedV1(is_blind=sight.is_blind, silent_nodes=found.silent, nodes=found.nodes, at=tx.now))


def every_overdue(tx: Tx[PlacementStore]) -> None:
    """Release what did not start in time; ask again where a stop order was not answered."""
    store = tx.store
    for found, cause in overdue(store.allocations.values(), store.status_of, tx.now, store.policy):
        acts.happen(tx, found, cause)


def every_drain(tx: Tx[PlacementStore]) -> None:
    """Go on with the drains."""
    for node_id in sorted({found.node_id for found in tx.store.cordons.values() if found.is_drain}):
        drain(tx, node_id)


def every_contact(tx: Tx[PlacementStore]) -> None:
    """Write down when each node was last heard: the last proof of life of what ran there, should both of us die."""
    store = tx.store
    for node_id, heard_at in store.heard_at.items():
        mark = store.marks.get(node_id)
        if mark is not None and mark.heard_at < heard_at:
            store.marks.put(replace(mark, heard_at=heard_at))


def every_forget(tx: Tx[PlacementStore]) -> None:
    """Drop tombstones that nothing can come back for any more."""
    before = tx.now - tx.store.policy.keep_tombstones
    for found in tx.store.tombstones.values():
        if found.at < before:
            tx.store.tombstones.drop(found.key)


def every_prune(tx: Tx[PlacementStore]) -> None:
    """Delete allocations that were released long ago."""
    tx.store.prune(tx.now - tx.store.policy.keep_released)


TICKS: tuple[Tick[PlacementStore], ...] = (
    Tick("watch", 1.0, every_watch, when=lambda store: len(store.nodes) > 0),
    Tick("overdue", 1.0, every_overdue, when=lambda store: len(store.allocations) > 0),
    Tick("drain", 1.0, every_drain, when=lambda store: any(found.is_drain for found in store.cordons.values())),
    Tick("contact", 5.0, every_contact, when=lambda store: len(store.heard_at) > 0),
    Tick("forget", 30.0, every_forget, when=lambda store: len(store.tombstones) > 0),
    Tick("prune", 3600.0, every_prune),
)
"""All duties with their periods in seconds."""
