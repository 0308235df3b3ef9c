"""What placement answers to a heartbeat, and what it makes of it.

A clean heartbeat (nothing changed, nothing odd) writes nothing: its instant and its list are kept in memory, and the answer
renews the lease.
"""

from datetime import timedelta

from gpuyard_contracts.messages.node import HeartbeatReplyV1, HeartbeatV1
from gpuyard_contracts.messages.placement import NodeEnrolledV1, NodeStatusChangedV1
from gpuyard_runtime.service import Tx

from gpuyard_placement import acts
from gpuyard_placement.domain import enrol
from gpuyard_placement.domain.model import Mark, Node, RankKey
from gpuyard_placement.domain.reconcile import Expected, Heard, Running, Verdict, judge
from gpuyard_placement.domain.states import RanksLost
from gpuyard_placement.mapping import messages
from gpuyard_placement.store import PlacementStore


def on_heartbeat(ask: HeartbeatV1, tx: Tx[PlacementStore]) -> HeartbeatReplyV1:
    """Enrol the node or renew its lease, and reconcile what it runs.

    Twice and late (a sequence that is not above the agent's last): it is answered, and not judged again.
    """
    store = tx.store
    known = store.node(ask.node_id)
    presence = messages.presence_of(ask, known)
    mark = enrol.agent(ask.agent_id, store.marks.get(ask.node_id) or Mark(ask.node_id, 0, tx.now, ""))
    problem = mark if isinstance(mark, str) else enrol.refusal(presence, known, store.owners_of(presence.facts.gpus))
    if isinstance(mark, str) or problem is not None:
        acts.ignore(tx, "heartbeat-refused")
        return HeartbeatReplyV1(is_accepted=False, lease_ms=0, at=tx.now, detail=problem or "")
    store.heard_at[ask.node_id] = tx.now
    before = store.heard.get(ask.node_id)
    if before is None or before.agent_id != ask.agent_id or ask.sequence > before.sequence:
        if mark is not store.marks.get(ask.node_id):
            store.marks.put(mark)
        _welcome(tx, enrol.enrol(presence, known), known, before)
        _reconcile(tx, ask, before)
    return _accepted(tx)


def on_heartbeat_meanwhile(ask: HeartbeatV1, tx: Tx[PlacementStore]) -> HeartbeatReplyV1:
    """Renew the lease of a node that is known, from the agent that is known, while nothing can be written; what it runs is judged later.

    A database that is away must not stop the work of the fleet. Twice and late: renewing is renewing.
    """
    known, mark = tx.store.node(ask.node_id), tx.store.marks.get(ask.node_id)
    if known is None or mark is None or known.status == "lost" or ask.boot_id != known.boot_id or ask.agent_id != mark.agent_id:
        tx.reject("not-now", "the database is away; only the leases of nodes that are known are renewed meanwhile")
    tx.store.heard_at[ask.node_id] = tx.now
    return _accepted(tx)


def _accepted(tx: Tx[PlacementStore]) -> HeartbeatReplyV1:
    return HeartbeatReplyV1(is_accepted=True, lease_ms=tx.store.policy.lease // timedelta(milliseconds=1), at=tx.now)


def _welcome(tx: Tx[PlacementStore], found: enrol.Enrolled, known: Node | None, before: Heard | None) -> None:
    """Save and say what has changed of the node itself."""
    node = found.node
    if node is known:
        return
    tx.store.nodes.put(node)
    if found.has_other_hardware:
        tx.say(NodeEnrolledV1(node_id=node.node_id, facts=messages.told_facts(node.facts.text), at=tx.now))
    if known is not None and known.status != node.status:
        detail = "its lease had ended; what still runs there is stopped" if known.status == "lost" else "heard again"
        tx.say(NodeStatusChangedV1(node_id=node.node_id, status=node.status, was=known.status, detail=detail, at=tx.now))
    if found.has_rebooted:
        _bury(tx, node.node_id, before)


def _bury(tx: Tx[PlacementStore], node_id: str, before: Heard | None) -> None:
    """The node has rebooted: every rank that ran there is dead. One whose start order may still be on its way is not."""
    store = tx.store
    for found in store.allocations_on(node_id):
        proofs = {
            rank: store.proof_of(found, rank)
            for rank, (plan, state) in enumerate(zip(found.terms.plan, found.ranks, strict=True))
            if plan.node_id == node_id
            and (state.status == "started" or (before is not None and before.proof_of((found.allocation_id, rank)) is not None))
        }
        if proofs:
            acts.happen(tx, found, RanksLost(node_id, "node-restarted", f"node {node_id} was restarted", proofs))


def _reconcile(tx: Tx[PlacementStore], ask: HeartbeatV1, before: Heard | None) -> None:
    """Hold what runs against what should run; see :mod:`gpuyard_placement.domain.reconcile`."""
    store = tx.store
    running = [messages.running_of(found) for found in ask.running]
    heard = Heard(ask.node_id, ask.agent_id, ask.sequence, tx.now, frozenset(found.key for found in running))
    verdict = judge(
        heard, before, running, frozenset(ask.unreported_ends), _expected(tx, ask.node_id), _just_released(tx, running), store.policy
    )
    _carry_out(tx, verdict)
    store.heard.put(verdict.heard)


def _expected(tx: Tx[PlacementStore], node_id: str) -> dict[RankKey, Expected]:
    store = tx.store
    return {
        (found.allocation_id, rank): Expected(found.ranks[rank], store.proof_of(found, rank))
        for found in store.allocations_on(node_id)
        for rank, plan in enumerate(found.terms.plan)
        if plan.node_id == node_id
    }


def _just_released(tx: Tx[PlacementStore], running: list[Running]) -> frozenset[str]:
    """Jobs among these that ended so lately that the list may be older than their end."""
    since = tx.now - tx.store.policy.stray_after_release
    ended = (tx.store.tombstones.get(found.job_id) for found in running)
    return frozenset(found.key for found in ended if found is not None and found.at > since)


def _carry_out(tx: Tx[PlacementStore], verdict: Verdict) -> None:
    node_id = verdict.heard.node_id
    for stray in verdict.strays:
        acts.ignore(tx, "stray-stopped")
        tx.say(messages.stray_order(node_id, stray, tx.now))
    for allocation_id, rank in verdict.asked:
        found = tx.store.live(allocation_id)
        if found is not None:
            acts.say(tx, found, messages.question(found, rank, tx.now))
    for allocation_id, rank in verdict.vanished:
        found = tx.store.live(allocation_id)
        if found is not None:
            detail = f"rank {rank} does not run on node {node_id} any more, and the node did not say how it ended"
            acts.happen(tx, found, RanksLost(node_id, "process-vanished", detail, {rank: tx.store.proof_of(found, rank)}))
