"""Periodic duties of monitor."""

from gpuyard_runtime.service import Tx

from gpuyard_monitor.boots import is_within_grace
from gpuyard_monitor.domain.model import Opening
from gpuyard_monitor.domain.rules import Rules
from gpuyard_monitor.domain.silence import silent_nodes
from gpuyard_monitor.incidents import carry_out
from gpuyard_monitor.store import MonitorStore


def begin_listening(tx: Tx[MonitorStore]) -> None:
    """After the start: telemetry that came while nobody listened is nobody's silence."""
    tx.store.listening_since = tx.now


def every_look(tx: Tx[MonitorStore], rules: Rules) -> None:
    """Mark what is stale, so that its values are shown no longer; a node that placement hears and that tells no samples is an incident."""
    store, now = tx.store, tx.now
    for watch in store.watches.values():
        watch.is_stale = now - watch.heard_at > rules.fresh
    heard = {
        node.node_id: max(store.listening_since, store.watches[node.node_id].heard_at)
        if node.node_id in store.watches
        else store.listening_since
        for node in store.nodes.values()
        if node.status == "ready" and node.cards and not is_within_grace(node, now, rules)
    }
    for node_id in silent_nodes(heard, now, rules.silent):
        seconds = int((now - heard[node_id]).total_seconds())
        told = f"node {node_id} is heard and has told no samples of its cards for {seconds} s"
        carry_out(tx, node_id, store.node(node_id).boot_id, now, Opening("telemetry-stale", None, "none", told))
