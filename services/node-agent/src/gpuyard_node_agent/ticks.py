"""Periodic duties: each is one short round; :mod:`gpuyard_node_agent.app` repeats them."""

import asyncio

from gpuyard_contracts.messages.node import HeartbeatReplyV1, HeartbeatV1, HeldV1
from gpuyard_contracts.messages.placement import NodeFactsV1
from gpuyard_runtime.faults import Refused, Unavailable
from gpuyard_runtime.logs import log_of

from gpuyard_node_agent import mapping
from gpuyard_node_agent.domain.lease import answered
from gpuyard_node_agent.node import Node
from gpuyard_node_agent.ports import Bus

LOG = log_of("ticks")
USAGE_LANE = "usage"
HELD_PER_TICK = 1_000
"""Statements in one message: it stays well below the greatest message."""


class Heart:
    """Heartbeats, one at a time. `problem` is why the last one was not answered, or None."""

    def __init__(self, node: Node, bus: Bus, agent_id: str, said: dict[str, object], timeout_seconds: float) -> None:
        self.problem: str | None = "placement has not answered yet"
        self.was_answered = asyncio.Event()
        """Set by the first answer: orders are taken from then on."""
        self._node = node
        self._bus = bus
        self._agent_id = agent_id
        self._said = said
        self._timeout_seconds = timeout_seconds

    def facts(self) -> NodeFactsV1:
        """The node as it describes itself."""
        return mapping.facts(self._node.machine, self._node.lost, self._said)

    def heartbeat(self) -> HeartbeatV1:
        """What the node is, has and runs, now."""
        node, now_ms = self._node, self._node.clock.ms()
        return HeartbeatV1(
            node_id=node.node_id,
            boot_id=node.boot_id,
            agent_id=self._agent_id,
            sequence=now_ms,
            at=node.clock.now(),
            facts=self.facts(),
            lost_gpus=tuple(sorted(node.lost)),
            running=tuple(mapping.running(workload, now_ms) for workload in node.store.workloads.values() if workload.is_started),
            unreported_ends=node.ends_on_their_way(),
        )

    async def every_heartbeat(self) -> bool:
        """Tell placement, and renew the lease by its answer, counted from when this was sent. Whether it was answered."""
        node, sent_ms = self._node, self._node.clock.ms()
        try:
            reply: HeartbeatReplyV1 = await self._bus.ask(self.heartbeat(), seconds=self._timeout_seconds)
        except (Unavailable, Refused) as error:
            self._tell(f"placement does not answer: {error}")
            return False
        if not reply.is_accepted:
            self._tell(f"placement does not take this node: {reply.detail}")
            return False
        self._tell(None)
        self.was_answered.set()
        before = node.store.lease
        after = answered(before, sent_ms=sent_ms, lease_ms=reply.lease_ms, at=reply.at, now_ms=node.clock.ms())
        if after != before:
            if not before.is_held(node.clock.ms()):
                LOG.warning("lease_begins", node=node.node_id, horizon=str(after.horizon))
            node.store.lease_is(after)
            if after.until_ms is not None:
                node.runtime.renew(after.until_ms)
        return True

    def _tell(self, problem: str | None) -> None:
        if (problem is None) != (self.problem is None):
            LOG.info("heartbeat", problem=problem)
        self.problem = problem


def every_usage(node: Node) -> None:
    """State what everybody has held so far, the ended ones for the last time. Nothing held: nothing said."""
    now_ms = node.clock.ms()
    living = [mapping.held_of(workload, now_ms) for workload in node.store.workloads.values() if workload.is_started]
    finals: list[HeldV1] = list(node.finals.values())
    node.finals.clear()
    held = [*finals, *living]
    for number, start in enumerate(range(0, len(held), HELD_PER_TICK)):
        portion = tuple(held[start : start + HELD_PER_TICK])
        # Numbered by the boot clock, so that numbers go on rising through every restart of the agent.
        event = mapping.usage(portion, node.node_id, node.boot_id, sequence=now_ms + number, now=node.clock.now())
        node.store.say((USAGE_LANE, event))
        node.outlet.put(USAGE_LANE, event)
