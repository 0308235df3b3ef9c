"""A node agent of the simulation: a model, written from the protocol and not from the agent's code.

It takes orders from its durable, writes down what it will do before it does it, adopts what its keeper holds after its own death, says each
event until the bus has it, and beats with everything that runs. It may die between any two steps, and inside of taking an order.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from random import Random
from typing import Any

from gpuyard_contracts.envelope import Envelope, decode
from gpuyard_contracts.messages.node import HeartbeatReplyV1, HeartbeatV1, HeldV1, WorkloadEndedV1
from gpuyard_contracts.messages.placement import StartV1, StopV1
from gpuyard_contracts.topology import node_durable
from gpuyard_runtime.faults import Refused, Unavailable
from gpuyard_runtime.testing import World

from tests.simulation.machine import NO_SUCH_PROGRAM, Machine, Process, after, key_of
from tests.simulation.voice import Refusal, Voice

BEAT_SECONDS = 2.0
ANSWER_SECONDS = 2.0
USAGE_SECONDS = 10.0
LOOK_SECONDS = 4.0
PATIENCE_SECONDS = 5.0
ENDS_SHOWN_SECONDS = 3.0

POINTS = ("before the journal", "before the launch", "after the launch", "before the acknowledgement")
"""Where it may die inside of an act."""

Choice = tuple[str, Callable[[], None]]


class AgentDied(Exception):
    """The agent dies here."""


class Agent:
    """The agent of one machine. `choices` are what it could do now."""

    keeps_order = True
    """Whether it refuses old orders and lower attempts; the tests of the checkers turn it off."""

    def __init__(self, world: World, machine: Machine, random: Random, skew: float = 0.0) -> None:
        self.world = world
        self.machine = machine
        self.random = random
        self.node_id = machine.node_id
        self.voice = Voice(machine, world.clock, skew)
        self.journal = self.voice.journal
        self.durable = node_durable(self.node_id)
        self.is_cut = False
        self.die_at: str | None = None
        """The point at which it dies next."""
        self.starts = 0
        self.confirmed: dict[str, int] = {}
        """In how many heartbeats that were answered each key was; for the checkers."""
        self.longest_ask = timedelta(0)
        """How long a heartbeat was under way at most until it was answered; for the checkers."""
        world.bus.add_durable(self.durable)
        self.start()

    # Life and death.

    def start(self) -> None:
        """Start on what the journal and the keeper hold."""
        self.is_up, self.die_at = True, None
        self.starts += 1
        self.agent_id = f"agent-{self.node_id}-{self.starts}"
        self.was_answered = False
        self.waits: dict[str, datetime] = {}
        self.recent_ends: list[tuple[datetime, str]] = []
        self.finals: list[HeldV1] = []
        self._beat_at = self._usage_at = self._look_at = self._retry_at = self._now
        self.world.bus.durables[self.durable.name].reset()
        if self.journal.known_boot != self.machine.boot_id:
            self.voice.health("booted")
            self.journal.known_boot, is_same_boot = self.machine.boot_id, False
        else:
            is_same_boot = True
        for key, order in list(self.journal.orders.items()):
            self._recover(key, order, is_same_boot=is_same_boot)

    def die(self) -> None:
        """The process is gone; journal and keeper stay."""
        self.is_up = False
        self.die_at = None

    def _recover(self, key: str, order: StartV1, *, is_same_boot: bool) -> None:
        if key not in self.journal.launched:
            self.waits[key] = after(self._now, PATIENCE_SECONDS)
        elif self._process(key) is not None:
            if key in self.journal.stopping:
                self.machine.stop(key, 0, self._now)
        elif not is_same_boot or key in self.journal.said_start or key in self.journal.stopping:
            self.voice.ended(key, order, "vanished", self._now, None)
        elif self.machine.has_lease(self._now):
            self._launch(key, order)
        else:
            self.voice.refused(key, order, ("lease-over", "the lease is over", False))

    @property
    def _now(self) -> datetime:
        return self.world.clock.now()

    @property
    def is_connected(self) -> bool:
        """Whether it reaches the bus."""
        return self.is_up and not self.is_cut and not self.world.bus.is_away

    def choices(self) -> list[Choice]:
        """What could happen next on this node."""
        if not self.is_up:
            return []
        now, found = self._now, list[Choice]()
        if self.machine.gone or any(key not in self.journal.said_start for key in self.machine.running):
            found.append(("notices", self.notice))
        if self.waits and self._retry_at <= now:
            found.append(("tries what waits", self.retry))
        if self._usage_at <= now:
            found.append(("tells its use", self.tell_use))
        if self.is_connected:
            if self._beat_at <= now:
                found.append(("beats", self.beat))
            if self.was_answered and self.world.bus.durables[self.durable.name].can_deliver:
                found.append(("takes orders", self.take))
            if self.journal.unsaid:
                found.append(("says", self.say))
            if self._look_at <= now:
                found.append(("tells its cards", self.look))
        return found

    # Heartbeats.

    def beat(self) -> None:
        """Tell placement what runs; the answer comes later, or too late, or never."""
        now = self._now
        self.notice()
        self._beat_at = after(now, BEAT_SECONDS * self.random.uniform(0.9, 1.1))
        listed = sorted(key for key in self.journal.said_start if key in self.journal.orders)
        try:
            self.world.bus.ask(self._heartbeat(listed), partial(self._answered, now, self.agent_id, listed))
        except Unavailable:
            return

    def beat_if_due(self) -> None:
        """Beat, if it is time and the bus can be reached."""
        if self.is_connected and self._beat_at <= self._now:
            self.beat()

    def _heartbeat(self, keys: list[str]) -> HeartbeatV1:
        now = self._now
        self.recent_ends = [found for found in self.recent_ends if after(found[0], ENDS_SHOWN_SECONDS) >= now]
        ends = self.journal.ends() + [allocation_id for _, allocation_id in self.recent_ends]
        return HeartbeatV1(
            node_id=self.node_id,
            boot_id=self.machine.boot_id,
            agent_id=self.agent_id,
            sequence=round(now.timestamp() * 1000),
            at=self.voice.wall(),
            facts=self.machine.facts(),
            lost_gpus=self.machine.lost(),
            running=tuple(self.voice.running(key, self._process(key)) for key in keys),
            unreported_ends=tuple(dict.fromkeys(ends)),
        )

    def _answered(self, sent_at: datetime, agent_id: str, listed: list[str], answer: HeartbeatReplyV1 | Refused) -> None:
        now = self._now
        self.longest_ask = max(self.longest_ask, now - sent_at)
        if isinstance(answer, Refused) or not self.is_connected or agent_id != self.agent_id or now > after(sent_at, ANSWER_SECONDS):
            return
        if not answer.is_accepted:
            return
        self.was_answered = True
        for key in listed:
            self.confirmed[key] = self.confirmed.get(key, 0) + 1
        until = after(sent_at, answer.lease_ms / 1000)
        if now >= until:
            return
        if not self.machine.has_lease(now):
            self.journal.horizon = answer.at if self.journal.horizon is None else max(answer.at, self.journal.horizon)
        self.machine.renew(until)

    # Orders.

    def take(self) -> None:
        """Take some orders, carry them out, acknowledge them."""
        batch = self.world.bus.pull(self.durable, self.random.randint(1, 6))
        if self.random.random() < self.world.faults.shuffle:
            self.random.shuffle(batch)
        for delivery in batch:
            event = decode(delivery.subject, delivery.headers, delivery.body, sequence=delivery.sequence, arrived=delivery.arrived)
            if isinstance(event.data, StartV1):
                self._on_start(event.data, event)
            elif isinstance(event.data, StopV1):
                self._on_stop(event.data, event)
        self._pass("before the acknowledgement")
        for delivery in batch:
            delivery.ack()

    def _pass(self, point: str) -> None:
        if self.die_at == point:
            raise AgentDied(point)

    def _on_start(self, order: StartV1, event: Envelope[Any]) -> None:
        key = key_of(order.allocation_id, order.rendezvous.rank)
        if key in self.journal.orders or self.journal.past.get(key) == "ended":
            return
        self._pass("before the journal")
        self.journal.causes[key] = event
        verdict = self._verdict(key, order)
        if verdict is not None and not isinstance(verdict, str):
            self.voice.refused(key, order, verdict)
            return
        self.journal.orders[key] = order
        self.journal.know(order.job_id, order.attempt)
        if verdict is None:
            self._launch(key, order)
        else:
            self.waits[key] = after(self._now, PATIENCE_SECONDS)

    def _verdict(self, key: str, order: StartV1) -> Refusal | str | None:
        """Why it is refused, or for what it waits; None: it starts."""
        journal = self.journal
        if journal.past.get(key) == "barred":
            return "order-too-old", "it was told to stop before it was started", False
        if self.keeps_order and journal.attempts.get(order.job_id, 0) > order.attempt:
            return "lower-attempt", f"attempt {journal.attempts[order.job_id]} is known here", False
        if not self.machine.has_lease(self._now):
            return "lease-over", "the node has lost its lease", False
        if self.keeps_order and journal.horizon is not None and order.issued_at <= journal.horizon:
            return "order-too-old", "issued before this node's lease began", False
        others = [found for other, found in journal.orders.items() if other != key and other in journal.launched]
        older = [found for found in others if found.job_id == order.job_id and found.attempt < order.attempt]
        for found in older:
            self._stop(key_of(found.allocation_id, found.rendezvous.rank), 0)
        if older:
            return "gpu-busy"
        if order.spec.command[0] == NO_SUCH_PROGRAM:
            return "bad-command", "no such program", True
        return self._room(order, others)

    def _room(self, order: StartV1, others: list[StartV1]) -> str | None:
        for part in order.slices:
            card = self.machine.card(part.gpu_uuid)
            if card is None or card.is_lost:
                return "gpu-missing"
            held = [theirs for found in others for theirs in found.slices if theirs.gpu_uuid == part.gpu_uuid]
            if part.milli + sum(theirs.milli for theirs in held) > 1000:
                return "gpu-busy"
            if part.memory_mib + sum(theirs.memory_mib for theirs in held) > card.memory_mib:
                return "no-room"
        return None

    def retry(self) -> None:
        """Try again what waits; who has waited long enough is refused."""
        now = self._now
        self._retry_at = after(now, 0.5)
        for key, deadline in list(self.waits.items()):
            order = self.journal.orders.get(key)
            if order is None or key in self.journal.launched:
                del self.waits[key]
                continue
            verdict = self._verdict(key, order)
            if isinstance(verdict, str) and now >= deadline:
                verdict = (verdict, "it did not come right in time", False)
            if verdict is None:
                del self.waits[key]
                self._launch(key, order)
            elif not isinstance(verdict, str):
                del self.waits[key]
                self.voice.refused(key, order, verdict)

    def _launch(self, key: str, order: StartV1) -> None:
        self.journal.launched.add(key)
        self._pass("before the launch")
        self.machine.start(key, order, self._now)
        self._pass("after the launch")

    def _on_stop(self, order: StopV1, event: Envelope[Any]) -> None:
        key = key_of(order.allocation_id, order.rank)
        self._pass("before the journal")
        if key in self.journal.launched and key in self.journal.orders:
            self._stop(key, order.grace_ms)
        else:
            self.waits.pop(key, None)
            self.voice.not_running(key, order, event)

    def _stop(self, key: str, grace_ms: int) -> None:
        self.journal.stopping.add(key)
        self.machine.stop(key, grace_ms, self._now)

    # Processes.

    def _process(self, key: str) -> Process | None:
        return self.machine.running.get(key) or self.machine.gone.get(key)

    def notice(self) -> None:
        """Take in what the keeper tells: processes that have begun, and those that are gone."""
        for key, process in [*self.machine.gone.items(), *self.machine.running.items()]:
            if key not in self.journal.said_start:
                self.voice.started(key, process.order, process)
        for key, process in list(self.machine.gone.items()):
            ended_at = process.ended_at or self._now
            self.finals.append(self.voice.held(process, ended_at))
            self.voice.ended(key, process.order, process.how, ended_at, process)
            del self.machine.gone[key]

    # What it says.

    def say(self) -> None:
        """Publish the oldest of some lane; it may die before it has noted that."""
        event_id = self.random.choice(list(self.journal.heads()))
        event = self.journal.unsaid[event_id][1]
        try:
            self.world.bus.publish(event)
        except Unavailable:
            return
        self._pass("before the acknowledgement")
        del self.journal.unsaid[event_id]
        if isinstance(event.data, WorkloadEndedV1):
            self.recent_ends.append((self._now, event.data.allocation_id))

    def tell_use(self) -> None:
        """State what everybody has held so far, the ended ones for the last time."""
        now = self._now
        self._usage_at = after(now, USAGE_SECONDS)
        held = [*self.finals, *(self.voice.held(found, now) for found in self.machine.running.values())]
        self.finals = []
        if held:
            self.voice.usage(held, self.agent_id)

    def look(self) -> None:
        """Tell how the cards are."""
        self._look_at = after(self._now, LOOK_SECONDS)
        self.world.bus.publish(self.voice.telemetry())

    def tell_fault(self, kind: str, uuid: str, xid: int | None = None) -> None:
        """Something happened to a card; an agent that is not there misses it."""
        if self.is_up:
            self.voice.health(kind, uuid, xid)
