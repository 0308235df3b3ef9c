"""Opening and closing: the row and the event together, once for each fault."""

from dataclasses import replace
from datetime import datetime

from gpuyard_runtime.service import Tx

from gpuyard_monitor import mapping
from gpuyard_monitor.domain.model import Closing, Decision, Opening
from gpuyard_monitor.store import MonitorStore


def carry_out(tx: Tx[MonitorStore], node_id: str, boot_id: str, at: datetime, decision: Decision) -> None:
    """Do what was decided. A fault that is open is not opened again. `at` is by the node's clock and never taken to lie ahead of ours."""
    instant = min(at, tx.now)
    if isinstance(decision, Opening):
        _open(tx, node_id, boot_id, instant, decision)
    else:
        _close(tx, instant, decision)


def _open(tx: Tx[MonitorStore], node_id: str, boot_id: str, at: datetime, opening: Opening) -> None:
    if tx.store.open_fault(node_id, opening.gpu_uuid, opening.kind) is not None:
        return
    row = mapping.incident_of(opening, node_id, boot_id, at)
    tx.store.incidents.put(row)
    tx.say(mapping.opened_of(row), once=row.incident_id)


def _close(tx: Tx[MonitorStore], at: datetime, closing: Closing) -> None:
    row = replace(closing.incident, closed_at=max(at, closing.incident.opened_at), closing_evidence=closing.evidence)
    tx.store.incidents.put(row)
    tx.say(mapping.closed_of(row), once=row.incident_id)
