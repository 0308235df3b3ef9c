"""What telemetry does: kept as the last sample of each card, judged where it gives reason to.

This runs for every message of every node, so the usual one (all well, nothing open) costs a few comparisons for each card and no
database work.
"""

from collections.abc import Mapping, Sequence

from gpuyard_contracts.envelope import Envelope
from gpuyard_contracts.messages.node import GpuSampleV1, TelemetryV1
from gpuyard_runtime.service import Tx

from gpuyard_monitor import mapping
from gpuyard_monitor.boots import is_of_an_earlier_boot, is_within_grace, note_boot
from gpuyard_monitor.domain.judge import NOTHING, Seen, is_noteworthy, is_settled, judge, streak_after, without_hardware
from gpuyard_monitor.domain.model import Card, Closing, Incident, Node
from gpuyard_monitor.domain.rules import Heat, Rules
from gpuyard_monitor.incidents import carry_out
from gpuyard_monitor.store import MonitorStore, NodeWatch


def on_telemetry_heard(event: Envelope[TelemetryV1], tx: Tx[MonitorStore], rules: Rules) -> None:
    """Keep the samples and judge them.

    Twice: a message that is not younger than the last one is left out. Late: likewise; after a restart judging starts with what comes.
    """
    data, store = event.data, tx.store
    node = store.node(data.node_id)
    watch = store.watches.get(data.node_id)
    if watch is None:
        watch = NodeWatch(tx.now, data.at)
    elif data.boot_id == watch.boot_id and data.sequence <= watch.sequence and data.at <= watch.at:
        return
    if data.boot_id != node.boot_id or data.boot_id != watch.boot_id:
        if is_of_an_earlier_boot(node, data.boot_id, data.at):
            store.ignored["earlier-boot"] += 1
            return
        node = note_boot(tx, node, data.boot_id, data.at)
        watch.samples, watch.streaks = {}, {}
    store.watches[data.node_id] = watch
    before = watch.samples
    watch.heard_at, watch.at, watch.sequence, watch.is_stale = tx.now, data.at, data.sequence, False
    watch.boot_id, watch.bad_samples = data.boot_id, data.bad_samples
    watch.samples = {sample.gpu_uuid: sample for sample in data.gpus}
    opened = store.open_of(data.node_id)
    _judge_cards(tx, node, watch, before, opened, rules)
    if opened:
        _judge_node(tx, node, watch, opened, rules)


def _judge_cards(
    tx: Tx[MonitorStore],
    node: Node,
    watch: NodeWatch,
    before: Mapping[str, GpuSampleV1],
    opened: Sequence[Incident],
    rules: Rules,
) -> None:
    usual = rules.heat_of("")
    heats = _heats(watch, node, rules)
    sick = {incident.gpu_uuid for incident in opened}
    for uuid, sample in watch.samples.items():
        heat = heats.get(uuid, usual)
        new_errors = mapping.new_errors_of(sample, before.get(uuid))
        streak = watch.streaks.get(uuid)
        if streak is None and uuid not in sick and not is_noteworthy(sample.temperature_c, sample.is_lost, new_errors, heat):
            continue
        seen = Seen(sample.temperature_c, sample.is_lost, new_errors)
        streak = watch.streaks[uuid] = streak_after(streak or NOTHING, seen, heat)
        mine = [incident for incident in opened if incident.gpu_uuid == uuid]
        card = node.card(uuid) or Card(uuid, "")
        in_grace = is_within_grace(node, tx.now, rules)
        for decision in judge(card, streak, seen, watch.boot_id, mine, rules, is_in_grace=in_grace):
            carry_out(tx, node.node_id, watch.boot_id, watch.at, decision)
        if is_settled(streak) and not mine:
            del watch.streaks[uuid]


def _heats(watch: NodeWatch, node: Node, rules: Rules) -> Mapping[str, Heat]:
    """The thresholds of the node's cards, looked up again only when its cards change."""
    if watch.cards is not node.cards:
        watch.cards = node.cards
        watch.heats = {card.uuid: rules.heat_of(card.model) for card in node.cards}
    return watch.heats


def _judge_node(tx: Tx[MonitorStore], node: Node, watch: NodeWatch, opened: Sequence[Incident], rules: Rules) -> None:
    """What the message itself shows: telemetry is back, the observer works since a boot, a card that had an incident is gone for good."""
    for incident in tuple(opened):
        if incident.kind == "telemetry-stale":
            carry_out(tx, node.node_id, watch.boot_id, watch.at, Closing(incident, "telemetry comes again"))
        elif incident.kind == "observer-hung" and incident.boot_id != watch.boot_id:
            told = f"the node has booted since (boot {watch.boot_id}) and tells samples"
            carry_out(tx, node.node_id, watch.boot_id, watch.at, Closing(incident, told))
    is_missing = any(incident.gpu_uuid is not None and incident.gpu_uuid not in watch.samples for incident in opened)
    watch.missing = watch.missing + 1 if is_missing else 0
    if watch.missing >= rules.clean_samples:
        known = {*watch.samples, *(card.uuid for card in node.cards)}
        for closing in without_hardware(opened, known, watch.boot_id):
            carry_out(tx, node.node_id, watch.boot_id, watch.at, closing)
