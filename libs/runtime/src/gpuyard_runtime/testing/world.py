"""Many services on one bus in memory, with virtual time: what happens next is drawn from a seed, and a seed gives the same history again.

A step is one thing that could happen next on real parts: some of what waits for a service is delivered as one unit, a unit's messages are
published, a tick is due, a question is answered. Between any two of them a process may die, a delivery may come again or out of order, an
acknowledgement may be lost. The dispatcher is the real one. Invariants are asserted by the caller after each step, on what
:attr:`World.databases` and :attr:`World.bus` hold.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from gpuyard_contracts.envelope import Ask, Envelope, Payload
from gpuyard_contracts.topology import STREAMS, Durable, Stream, durables_of

from gpuyard_runtime.clock import ManualClock
from gpuyard_runtime.faults import Refused, Unavailable
from gpuyard_runtime.ids import derive
from gpuyard_runtime.saying import enveloped
from gpuyard_runtime.service import Service, Tx
from gpuyard_runtime.testing.member import Member
from gpuyard_runtime.testing.memory_bus import MemoryBus
from gpuyard_runtime.testing.memory_units import Crash, MemoryDatabase
from gpuyard_runtime.work import Delivery

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Faults:
    """How often something goes wrong, as chances for each step; 0 is never.

    `crash`: the service that acts dies at one of the crash points. `again`: something unacknowledged is delivered once more. `shuffle`:
    a batch is delivered out of order. `lose_ack`: an acknowledgement does not arrive.
    """

    crash: float = 0.0
    again: float = 0.0
    shuffle: float = 0.0
    lose_ack: float = 0.0


NO_FAULTS = Faults()


@dataclass(frozen=True, slots=True)
class Actor:
    """A participant that is no service: consumes a durable and reacts. Where `handle` raises Crash, it is delivered again."""

    name: str
    durable: Durable
    handle: Callable[[Delivery], None]


Action = Callable[[], None]


class World:
    """The simulation. :meth:`step` until it returns False: then nothing can happen before the clock moves (:meth:`advance`)."""

    def __init__(
        self,
        services: Sequence[Service[Any]],
        *,
        seed: int,
        faults: Faults = NO_FAULTS,
        clock: ManualClock | None = None,
        streams: Sequence[Stream] = STREAMS,
        max_batch: int = 20,
    ) -> None:
        self.random = Random(seed)
        self.faults = faults
        self.clock = clock or ManualClock()
        self.max_batch = max_batch
        self.log: list[str] = []
        """What happened, one line a step: the history to look at when a seed fails."""
        self.failures: list[BaseException] = []
        """Errors of handlers that were neither Poison nor RetryLater."""
        durables = [
            found for service in services for found in (durables_of(service.name) if service.durables is None else service.durables)
        ]
        self.bus = MemoryBus(self.clock, streams=streams, durables=durables)
        self.databases = {service.name: MemoryDatabase() for service in services}
        self.actors: list[Actor] = []
        self._published = 0
        self.members = {service.name: Member(self, service, self.databases[service.name]) for service in services}

    def store(self, service: str) -> Any:
        """A running service's store."""
        return self.members[service].store

    def add_actor(self, actor: Actor) -> None:
        """Let somebody else take part."""
        self.bus.add_durable(actor.durable)
        self.actors.append(actor)

    def publish(self, payload: Payload, *, source: str = "world", key: str | None = None, traceparent: str | None = None) -> Envelope[Any]:
        """Publish as somebody outside. The same `key` is the same event. Raises Unavailable while the bus is away or full."""
        self._published += 1
        event_id = derive("world", payload.TYPE, key or f"#{self._published}")
        made = enveloped(payload, source=source, at=self.clock.now(), event_id=event_id, traceparent=traceparent)
        self.bus.publish(made)
        return made

    def act(self, service: str, fn: Callable[[Tx[Any]], T]) -> T:
        """Run a function in a unit of a running service, as `Running.act` does. Raises what it raises, and Crash if the service dies."""
        return self.members[service].act(fn)

    def ask(self, ask: Ask) -> Any:
        """Ask, let the one asked answer at once, and return the answer. Raises Refused, or Unavailable where nobody answers."""
        got: list[Any] = []
        self.bus.ask(ask, got.append)
        for member in self.members.values():
            if not got and member.is_up and member.asked:
                self._guarded(member, member.do_asked)
        if not got:
            raise Unavailable(f"nobody answered {ask.TYPE}")
        if isinstance(got[0], Refused):
            raise got[0]
        return got[0]

    def step(self) -> bool:
        """One thing that can happen now. False: nothing can."""
        if self.faults.again and self.random.random() < self.faults.again:
            self._deliver_again()
        choices = self._choices()
        if not choices:
            return False
        name, action = choices[self.random.randrange(len(choices))]
        self.log.append(name)
        action()
        return True

    def settle(self, limit: int = 100_000) -> int:
        """Step until nothing can happen; returns how many steps. Raises AssertionError beyond `limit` (something feeds itself)."""
        for steps in range(limit):
            if not self.step():
                return steps
        raise AssertionError(f"no rest after {limit} steps; the last were {self.log[-10:]}")

    def advance(self, seconds: float) -> None:
        """Move the clock: ticks become due, acknowledgement times pass."""
        self.clock.advance(seconds)
        self.bus.expire()

    def crash(self, service: str) -> None:
        """A process dies. What it had taken comes again."""
        self.log.append(f"{service} dies")
        self.members[service].die()

    def restart(self, service: str) -> None:
        """A process starts, on what its database holds. A running one is left alone."""
        if not self.members[service].is_up:
            self.log.append(f"{service} starts")
            self.members[service].start()

    def _choices(self) -> list[tuple[str, Action]]:
        found: list[tuple[str, Action]] = []
        for member in self.members.values():
            if not member.is_up:
                found.append((f"{member.name} starts", member.start))
                continue
            found += [(name, lambda member=member, action=action: self._guarded(member, action)) for name, action in member.choices()]
        for actor in self.actors:
            if self.bus.durables[actor.durable.name].can_deliver:
                found.append((f"{actor.name} takes", lambda actor=actor: self._act_out(actor)))
        return found

    def _guarded(self, member: Member, action: Action) -> None:
        """Let a service act, and perhaps die in the middle of it."""
        if self.faults.crash and self.random.random() < self.faults.crash:
            member.arm(self.random)
        try:
            action()
        except Crash as crash:
            self.log.append(f"{member.name} dies at {crash}")
            member.die()
        finally:
            member.disarm()

    def _act_out(self, actor: Actor) -> None:
        for delivery in self.bus.pull(actor.durable, 1 + self.random.randrange(self.max_batch)):
            try:
                actor.handle(delivery)
            except Crash:
                self.log.append(f"{actor.name} dies")
                self.bus.durables[actor.durable.name].reset()
                return
            delivery.ack()

    def _deliver_again(self) -> None:
        waiting = [durable for durable in self.bus.durables.values() if durable.unacked]
        if waiting:
            durable = waiting[self.random.randrange(len(waiting))]
            number = list(durable.unacked)[self.random.randrange(len(durable.unacked))]
            self.log.append(f"{durable.durable.name} delivers {number} again")
            durable.redeliver([number])
