"""What monitor does about what nodes and placement tell it. Telemetry has a file of its own (:mod:`gpuyard_monitor.telemetry`)."""

from dataclasses import replace

from gpuyard_contracts.envelope import Envelope
from gpuyard_contracts.messages.node import HealthEventV1
from gpuyard_contracts.messages.placement import NodeEnrolledV1, NodeStatusChangedV1
from gpuyard_runtime.service import Tx

from gpuyard_monitor import mapping
from gpuyard_monitor.boots import is_of_an_earlier_boot, is_within_grace, note_boot
from gpuyard_monitor.domain import xid
from gpuyard_monitor.domain.judge import without_hardware
from gpuyard_monitor.domain.model import Closing, Decision, Kind, Opening
from gpuyard_monitor.domain.rules import Rules
from gpuyard_monitor.incidents import carry_out
from gpuyard_monitor.store import MonitorStore


def on_node_enrolled(event: Envelope[NodeEnrolledV1], tx: Tx[MonitorStore]) -> None:
    """Keep which cards the node has: their models choose thresholds and name metrics.

    Twice: the same cards again. Late: an older list is corrected by the next one; an incident of a card that is gone ends.
    """
    data = event.data
    node = replace(tx.store.node(data.node_id), cards=mapping.cards_of(data.facts))
    tx.store.nodes.put(node)
    opened = tuple(tx.store.open_of(data.node_id))
    for closing in without_hardware(opened, {card.uuid for card in node.cards}, node.boot_id):
        carry_out(tx, node.node_id, node.boot_id, data.at, closing)


def on_node_status_changed(event: Envelope[NodeStatusChangedV1], tx: Tx[MonitorStore]) -> None:
    """A silent node is an incident until placement hears it again. Nothing is done about it: the node's lease decides.

    Twice: the fault is open, or over, already. Late: a status older than the one that is known changes nothing.
    """
    data, store = event.data, tx.store
    node = store.node(data.node_id)
    if node.status_at is not None and data.at < node.status_at:
        return
    store.nodes.put(replace(node, status=data.status, status_at=data.at))
    incident = store.open_fault(data.node_id, None, "node-silent")
    if data.status == "ready":
        if incident is not None:
            told = f"node {data.node_id} is heard again"
            carry_out(tx, data.node_id, node.boot_id, data.at, Closing(incident, told))
    else:
        told = f"node {data.node_id} is {data.status} (was {data.was})" + (f": {data.detail}" if data.detail else "")
        carry_out(tx, data.node_id, node.boot_id, data.at, Opening("node-silent", None, "none", told))


def on_health_told(event: Envelope[HealthEventV1], tx: Tx[MonitorStore], rules: Rules) -> None:
    """Something happened to a card or to what watches it.

    Twice: the fault is open already. Late: what is from before the boot that is known was ended by that boot and is left out.
    """
    data, store = event.data, tx.store
    node = store.node(data.node_id)
    if is_of_an_earlier_boot(node, data.boot_id, data.at):
        store.ignored["earlier-boot"] += 1
        return
    node = note_boot(tx, node, data.boot_id, data.at, is_boot=data.kind == "booted")
    if data.kind == "xid" and data.xid is not None:
        store.xids[data.node_id, data.gpu_uuid or "", data.xid] += data.count
    for decision in _decide(data, tx, rules, is_in_grace=is_within_grace(node, tx.now, rules)):
        carry_out(tx, data.node_id, data.boot_id, data.at, decision)


def _decide(data: HealthEventV1, tx: Tx[MonitorStore], rules: Rules, *, is_in_grace: bool) -> list[Decision]:
    if data.kind == "xid":
        return _decide_xid(data, rules)
    if data.kind == "ecc-uncorrectable":
        return [_opening("ecc-uncorrectable", data, f"{data.count} uncorrectable ECC errors")]
    if data.kind == "gpu-lost" and not is_in_grace:  # within the grace samples that go on telling so open it afterwards
        return [_opening("gpu-lost", data, "the card is lost")]
    if data.kind == "observer-hung" and not is_in_grace:
        told = "what reads the cards hangs: nothing is known of them" + _more(data)
        return [Opening("observer-hung", None, "cordon", f"node {data.node_id}: {told}")]
    if data.kind == "gpu-back":
        return _closings(data, tx, data.gpu_uuid, ("gpu-lost", "xid-fatal", "ecc-uncorrectable"), "the card is back after it was lost")
    if data.kind == "observer-back":
        return _closings(data, tx, None, ("observer-hung",), "the cards can be read again")
    return []


def _decide_xid(data: HealthEventV1, rules: Rules) -> list[Decision]:
    if data.xid is None:
        return []
    action = xid.action_of(data.xid, rules.xid_actions)
    if action == "none":
        return []
    if data.gpu_uuid is None and action == "evict":
        action = "cordon"  # nobody knows which card: new work stays away, what runs is left alone
    return [Opening("xid-fatal", data.gpu_uuid, action, f"{_subject(data)}: {xid.name_of(data.xid)}{_more(data)}")]


def _opening(kind: Kind, data: HealthEventV1, told: str) -> Opening:
    return Opening(kind, data.gpu_uuid, "evict" if data.gpu_uuid is not None else "cordon", f"{_subject(data)}: {told}{_more(data)}")


def _closings(data: HealthEventV1, tx: Tx[MonitorStore], gpu_uuid: str | None, kinds: tuple[Kind, ...], told: str) -> list[Decision]:
    found = (tx.store.open_fault(data.node_id, gpu_uuid, kind) for kind in kinds)
    return [Closing(incident, f"{_subject(data)}: {told}{_more(data)}") for incident in found if incident is not None]


def _subject(data: HealthEventV1) -> str:
    return data.gpu_uuid or f"node {data.node_id}"


def _more(data: HealthEventV1) -> str:
    return f" ({data.detail[:500]})" if data.detail else ""
