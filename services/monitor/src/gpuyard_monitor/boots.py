"""Which boot of a node a message speaks of: faults belong to a boot, and what comes from an earlier one is history.

A fault that is replayed after its node was repaired and booted must not take the node out of service again.
"""

from dataclasses import replace
from datetime import datetime

from gpuyard_runtime.service import Tx

from gpuyard_monitor.domain.model import Node
from gpuyard_monitor.domain.rules import Rules
from gpuyard_monitor.store import MonitorStore


def is_of_an_earlier_boot(node: Node, boot_id: str, at: datetime) -> bool:
    """Whether the message is from before the boot that is known. Both instants are by the node's clock."""
    return bool(node.boot_id) and boot_id != node.boot_id and node.booted_at is not None and at < node.booted_at


def note_boot(tx: Tx[MonitorStore], node: Node, boot_id: str, at: datetime, *, is_boot: bool = False) -> Node:
    """Keep the boot that a node is in. A node that is met for the first time need not have booted just now, unless it says so."""
    if boot_id == node.boot_id:
        return node
    booted_at = min(at, tx.now) if node.boot_id or is_boot else None
    changed = replace(node, boot_id=boot_id, booted_at=booted_at)
    tx.store.nodes.put(changed)
    return changed


def is_within_grace(node: Node, now: datetime, rules: Rules) -> bool:
    """Whether the node has booted so lately that cards and observers may still be coming up."""
    return node.booted_at is not None and now - node.booted_at < rules.boot_grace
