"""One service in the :class:`~gpuyard_runtime.testing.world.World`: what it could do next, and its death and restart."""

from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from random import Random
from typing import Any, Protocol, TypeVar, cast

from gpuyard_contracts.envelope import Ask, Malformed, Payload, Shape
from gpuyard_contracts.subjects import wildcard
from gpuyard_contracts.topology import Durable, durables_of, stream_of

from gpuyard_runtime.asks import refusal_of
from gpuyard_runtime.clock import ManualClock
from gpuyard_runtime.dispatch import Dispatcher, Rest
from gpuyard_runtime.faults import Poison, Refused, RetryLater, Unavailable
from gpuyard_runtime.ids import derive
from gpuyard_runtime.service import Handler, Reading, Service, Tick, Tx
from gpuyard_runtime.testing.drive import drive
from gpuyard_runtime.testing.memory_bus import MemoryBus, MemoryReader
from gpuyard_runtime.testing.memory_units import CRASH_POINTS, Crash, MemoryDatabase, MemoryUnits
from gpuyard_runtime.units import Committed
from gpuyard_runtime.work import Act, Asked, Beat, Delivery, Work, work_of

T = TypeVar("T")

Action = Callable[[], None]
Reply = Callable[[Shape | Refused], None]


class Chances(Protocol):
    """How often an acknowledgement is lost and a batch shuffled; see :class:`~gpuyard_runtime.testing.world.Faults`."""

    @property
    def shuffle(self) -> float:
        """Chance that a batch is out of order."""
        ...

    @property
    def lose_ack(self) -> float:
        """Chance that an acknowledgement is lost."""
        ...


class Surroundings(Protocol):
    """What a member needs of its world."""

    bus: MemoryBus
    clock: ManualClock
    random: Random
    max_batch: int
    failures: list[BaseException]

    @property
    def faults(self) -> Chances:
        """How often something goes wrong."""
        ...


class Member:
    """A service with its database; between two calls it waits for nothing."""

    def __init__(self, world: Surroundings, service: Service[Any], database: MemoryDatabase) -> None:
        self.name = service.name
        self.service = service
        self.database = database
        self.asked: deque[Asked] = deque()
        self.is_up = False
        self._world = world
        self._durables: Sequence[Durable] = durables_of(service.name) if service.durables is None else service.durables
        self._ids = 0
        self._crash_at: str | None = None
        self._waiting: dict[str, list[Work]] = {}
        self._paused: dict[str, datetime] = {}
        self._readers: dict[str, MemoryReader] = {}
        self._ends: list[Callable[[], None]] = []
        self._due: dict[str, datetime] = {}
        self.start()

    @property
    def store(self) -> Any:
        """The store; only while it is up."""
        return self._units.store

    def start(self) -> None:
        """Start on what the database holds; state streams are read to their end before anything else."""
        service, world = self.service, self._world
        self._units = MemoryUnits(service.store, self.database, self._pass)
        self._dispatcher = Dispatcher(service, self._units, self, world.clock, self._new_id, self, self._spawn)
        self.is_up = True
        for durable in self._durables:
            world.bus.add_durable(durable).reset()
        self._due = {tick.name: world.clock.now() + timedelta(seconds=tick.seconds) for tick in service.ticks}
        if service.on_load is not None:
            self._process([Beat("on_load", service.on_load, self._new_id())])
        self._open_readers()
        for kind, answerer in service.asks.items():
            self._ends.append(world.bus.answer(kind, partial(self._on_ask, answerer)))
        for kind, inquirer in service.inquiries.items():
            self._ends.append(world.bus.answer(kind, partial(self._on_inquiry, inquirer)))

    def _open_readers(self) -> None:
        kinds: dict[str, list[type[Payload]]] = {}
        for kind in self.service.hears:
            kinds.setdefault(stream_of(kind.SUBJECT).name, []).append(kind)
        for stream, found in kinds.items():
            is_state = stream_of(found[0].SUBJECT).is_state
            reader = self._world.bus.open_reader(stream, [wildcard(kind.SUBJECT) for kind in found], is_state=is_state)
            self._readers[stream] = reader
            while is_state and not reader.is_caught_up:
                self._hear(stream, reader)

    def die(self) -> None:
        """Lose everything but the database."""
        self.is_up = False
        self._waiting.clear()
        self._paused.clear()
        self._readers.clear()
        self.asked.clear()
        for end in self._ends:
            end()
        self._ends.clear()

    def arm(self, random: Random) -> None:
        """Die at a crash point of the next action."""
        self._crash_at = random.choice(CRASH_POINTS)

    def disarm(self) -> None:
        """Do not die any more."""
        self._crash_at = None

    def choices(self) -> list[tuple[str, Action]]:
        """What could happen next."""
        now = self._world.clock.now()
        found: list[tuple[str, Action]] = []
        for durable in self._durables:
            waits = self._waiting.get(durable.name)
            if self._paused.get(durable.name, now) <= now and (waits or self._world.bus.durables[durable.name].can_deliver):
                found.append((f"{self.name} takes {durable.stream}", partial(self._take, durable)))
        for stream, reader in self._readers.items():
            if not reader.is_caught_up and self._paused.get(stream, now) <= now:
                found.append((f"{self.name} hears {stream}", partial(self._hear, stream, reader)))
        if self.database.outbox and not self._world.bus.is_away and not self.database.is_away:
            found.append((f"{self.name} publishes", self._publish))
        if self.asked:
            found.append((f"{self.name} answers", self.do_asked))
        found += [
            (f"{self.name} ticks {tick.name}", partial(self._beat, tick))
            for tick in self.service.ticks
            if self._due[tick.name] <= now and tick.when(self.store)
        ]
        return found

    def act(self, fn: Callable[[Tx[Any]], T]) -> T:
        """Run a function in a unit. Raises what it raises, and Crash if this member dies."""
        got: list[T] = []
        failed: list[BaseException] = []
        self._process([Act(fn, self._new_id(), None, got.append, failed.append)])
        if failed:
            raise failed[0]
        return got[0]

    def do_asked(self) -> None:
        """Answer what was asked, in one unit."""
        asked: list[Work] = list(self.asked)
        self.asked.clear()
        self._process(asked)

    def _take(self, durable: Durable) -> None:
        world = self._world
        items = self._waiting.pop(durable.name, [])
        batch = world.bus.pull(durable, 1 + world.random.randrange(world.max_batch))
        if world.faults.shuffle and world.random.random() < world.faults.shuffle:
            world.random.shuffle(batch)
        items += self._works(batch, self.service.handlers, is_guarded=True)
        self._process(items)

    def _hear(self, stream: str, reader: MemoryReader) -> None:
        batch = self._world.bus.read(reader, 1 + self._world.random.randrange(self._world.max_batch))
        for delivery in batch:
            delivery.lane = stream
        self._process([*self._waiting.pop(stream, []), *self._works(batch, self.service.hears, is_guarded=False)])

    def _works(self, batch: Sequence[Delivery], handlers: Mapping[Any, Handler[Any]], *, is_guarded: bool) -> list[Work]:
        found: list[Work] = []
        for delivery in batch:
            delivery.ack = partial(self._ack, delivery.ack)
            work = work_of(self.service, delivery, handlers, is_guarded=is_guarded)
            if work is None:
                delivery.ack()
            else:
                found.append(work)
        return found

    def _ack(self, ack: Callable[[], None]) -> None:
        self._pass("before_ack")
        if not (self._world.faults.lose_ack and self._world.random.random() < self._world.faults.lose_ack):
            ack()

    def _process(self, items: Sequence[Work]) -> None:
        if not items:
            return
        rest: Rest = drive(self._dispatcher.process(items))
        now = self._world.clock.now()
        for item in rest.items:
            self._waiting.setdefault(item.lane, []).append(item)
        for lane, seconds in rest.pauses.items():
            self._paused[lane] = now + timedelta(seconds=seconds)

    def _publish(self) -> None:
        """Publish the oldest unit that is left; it may die between two messages."""
        outbox_id = min(self.database.outbox)
        try:
            for envelope in self.database.outbox[outbox_id]:
                self._world.bus.publish(envelope)
                self._pass("after_publish")
        except Unavailable:
            return
        del self.database.outbox[outbox_id]

    def _beat(self, tick: Tick[Any]) -> None:
        self._due[tick.name] = self._world.clock.now() + timedelta(seconds=tick.seconds)
        self._process([Beat.of(tick, self._new_id())])

    def _on_ask(self, answerer: Callable[[Any, Tx[Any]], Shape], ask: Ask, reply: Reply) -> None:
        self.asked.append(Asked(ask, answerer, reply, self._new_id(), None))

    def _on_inquiry(self, inquirer: Callable[[Any, Reading[Any]], Awaitable[Shape]], ask: Ask, reply: Reply) -> None:
        try:
            waiting = inquirer(ask, Reading(self.store, None, self._world.clock.now()))
            reply(drive(cast("Coroutine[Any, Any, Shape]", waiting)))
        except Exception as error:
            reply(refusal_of(error))

    # What follows is called by the dispatcher: its outlet, its watch.

    def take(self, unit: Committed) -> None:
        """The outbox row stays until a step publishes it."""

    async def room(self) -> None:
        """There is always room."""

    def committed(self, done: Sequence[Work], repeated: int, tx: Tx[Any]) -> None:
        """Nothing to note."""

    def gave_up(self, item: Work, error: BaseException) -> None:
        """Keep what no service foresaw."""
        self._note(error)

    def waits(self, item: Work, error: BaseException) -> None:
        """Keep what no service foresaw."""
        self._note(error)

    def undecided(self, error: BaseException | None) -> None:
        """Keep what no service foresaw."""
        if error is not None:
            self._note(error)

    def _note(self, error: BaseException) -> None:
        if not isinstance(error, (Poison, RetryLater, Malformed, Refused, Unavailable)):
            self._world.failures.append(error)

    def _spawn(self, effect: Callable[[], Awaitable[None]]) -> None:
        drive(cast("Coroutine[Any, Any, None]", effect()))

    def _new_id(self) -> str:
        self._ids += 1
        return derive("world", self.name, str(self._ids))

    def _pass(self, point: str) -> None:
        if self._crash_at == point:
            self._crash_at = None
            raise Crash(point)
