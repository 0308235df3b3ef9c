"""One service alone, in memory, for its unit tests: feed it messages, look at what it says and what it stored.

Every call is one unit of work on the real dispatcher, so that undo, inbox, dead letters and ids are what they are in production.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from typing import Any, Generic, TypeVar, cast

from gpuyard_contracts.envelope import Ask, Envelope, Malformed, Payload, Shape

from gpuyard_runtime.asks import refusal_of
from gpuyard_runtime.clock import ManualClock
from gpuyard_runtime.dead_letters import DeadLetterV1
from gpuyard_runtime.dispatch import Dispatcher, Rest
from gpuyard_runtime.faults import Poison, Refused, RetryLater
from gpuyard_runtime.ids import derive
from gpuyard_runtime.service import Reading, Service, Tx
from gpuyard_runtime.store import Store
from gpuyard_runtime.testing.drive import drive
from gpuyard_runtime.testing.memory_units import CRASH_POINTS, Crash, MemoryDatabase, MemoryUnits
from gpuyard_runtime.units import Committed
from gpuyard_runtime.work import Act, Asked, Beat, Delivery, Handled, Work, work_of

S = TypeVar("S", bound=Store)
T = TypeVar("T")


class Harness(Generic[S]):
    """A running service without processes. `said` and `dlq` collect everything since the start; errors of handlers are in `errors`.

    A handler that fails with anything but RetryLater and Poison raises out of :meth:`feed`, unless `is_strict` is false: then it is tried
    again and dead-lettered as in production. What must wait (RetryLater) stays in `waiting`; :meth:`retry` tries again.
    """

    def __init__(
        self, service: Service[S], *, clock: ManualClock | None = None, database: MemoryDatabase | None = None, is_strict: bool = True
    ) -> None:
        self.service = service
        self.is_strict = is_strict
        self.clock = clock or ManualClock()
        self.database = database or MemoryDatabase()
        self.envelopes: list[Envelope[Any]] = []
        self.dlq: list[DeadLetterV1] = []
        self.errors: list[BaseException] = []
        self.waiting: list[Work] = []
        self._ids = 0
        self._crash_at: str | None = None
        self._sequence = 0
        self.restart()

    def restart(self) -> None:
        """Start the service anew on what was committed; what waited is forgotten (the bus delivers it again: feed it again)."""
        self._crash_at = None
        self.waiting = []
        self._units = MemoryUnits(self.service.store, self.database, self._pass)
        self._dispatcher = Dispatcher(self.service, self._units, self, self.clock, self._new_id, self, self._spawn)
        for outbox_id, said in sorted(self.database.outbox.items()):
            self._publish(Committed(outbox_id, said))
        if self.service.on_load is not None:
            self._run([Beat("on_load", self.service.on_load, self._new_id())])

    @property
    def store(self) -> S:
        """The service's store."""
        return self._units.store

    @property
    def said(self) -> list[Payload]:
        """Everything said and published since the start, without dead letters."""
        return [envelope.data for envelope in self.envelopes]

    def said_of(self, kind: type[T]) -> list[T]:
        """What was said of one class."""
        return [data for data in self.said if isinstance(data, kind)]

    def journal(self, name: str) -> list[Any]:
        """All committed rows of a journal."""
        return self.database.journals.get(name, [])

    def rows(self, name: str) -> list[Any]:
        """All committed rows of a table, those that left the memory too."""
        return list(self.database.tables.get(name, {}).values())

    def envelope(
        self, data: Payload, *, id: str | None = None, time: datetime | None = None, source: str = "test", traceparent: str | None = None
    ) -> Envelope[Any]:
        """An envelope around a payload, as its publisher would make it; each with a new id."""
        event_id = id or self._new_id()
        return Envelope(
            id=event_id,
            source=source,
            time=time or self.clock.now(),
            data=data,
            subject=data.subject(),
            correlation_id=data.correlation(),
            traceparent=traceparent,
        )

    def feed(self, *messages: Payload | Envelope[Any], stream: str = "") -> list[Payload]:
        """Deliver messages in one unit; returns what was said. The same envelope again is a second delivery."""
        return self._run([self._work(message, stream) for message in messages])

    def feed_each(self, *messages: Payload | Envelope[Any]) -> list[Payload]:
        """Deliver messages one by one, each in a unit of its own."""
        return [data for message in messages for data in self.feed(message)]

    def feed_raw(self, subject: str, body: bytes, headers: Mapping[str, str] | None = None, *, stream: str = "RAW") -> list[Payload]:
        """Deliver bytes as a stranger may publish them; they are decoded as in production."""
        self._sequence += 1
        delivery = Delivery(subject, headers, body, stream, self._sequence, self.clock.now(), lane="raw")
        work = work_of(self.service, delivery, self.service.handlers, is_guarded=True)
        return [] if work is None else self._run([work])

    def ask(self, ask: Ask) -> Any:
        """Ask in a unit; returns the answer. Raises Refused."""
        kind = type(ask)
        if kind in self.service.inquiries:
            return self.inquire(ask)
        got: list[Shape | Refused] = []
        self._run([Asked(ask, self.service.asks[kind], got.append, self._new_id(), None)])
        if isinstance(got[0], Refused):
            raise got[0]
        return got[0]

    def inquire(self, ask: Ask) -> Any:
        """Ask without a unit; the inquiry must not need the database. Raises Refused."""
        waiting = self.service.inquiries[type(ask)](ask, Reading(self.store, None, self.clock.now()))
        try:
            return drive(cast("Coroutine[Any, Any, Shape]", waiting))
        except Exception as error:
            raise refusal_of(error) from error

    def act(self, fn: Callable[[Tx[S]], T], *, traceparent: str | None = None) -> T:
        """Run a function in a unit, as `Running.act` does; raises what it raises."""
        got: list[T] = []
        failed: list[BaseException] = []
        self._run([Act(fn, self._new_id(), traceparent, got.append, failed.append)])
        if failed:
            raise failed[0]
        return got[0]

    def tick(self, name: str) -> list[Payload]:
        """One beat of a tick, if it is due; returns what was said. Raises what it raises."""
        beat = Beat.of(self.service.tick(name), self._new_id())
        said = self._run([beat])
        if beat.error is not None:
            raise beat.error
        return said

    def retry(self) -> list[Payload]:
        """Try again what waits."""
        items, self.waiting = self.waiting, []
        return self._run(items)

    def crash_at(self, point: str) -> None:
        """Die (raise Crash) at the next passing of this point; then :meth:`restart`."""
        if point not in CRASH_POINTS:
            raise ValueError(f"{point!r} is none of {CRASH_POINTS}")
        self._crash_at = point

    # What follows is called by the dispatcher: its outlet, its watch.

    def take(self, unit: Committed) -> None:
        """Publish at once."""
        self._publish(unit)
        self._pass("before_ack")

    async def room(self) -> None:
        """There is always room."""

    def committed(self, done: Sequence[Work], repeated: int, tx: Tx[Any]) -> None:
        """Nothing to note."""

    def gave_up(self, item: Work, error: BaseException) -> None:
        """Keep the error for the test to see."""
        self.errors.append(error)

    def waits(self, item: Work, error: BaseException) -> None:
        """Keep the error for the test to see."""
        self.errors.append(error)

    def undecided(self, error: BaseException | None) -> None:
        """A failing `after_unit` fails the test."""
        if error is not None:
            raise error

    def _work(self, message: Payload | Envelope[Any], stream: str) -> Work:
        event = message if isinstance(message, Envelope) else self.envelope(message)
        kind = type(event.data)
        self._sequence += 1
        delivery = Delivery(
            event.subject, event.headers(), event.body(), stream or kind.TYPE, self._sequence, self.clock.now(), lane=f"lane.{kind.TYPE}"
        )
        if kind in self.service.handlers:
            return Handled(self.service, delivery, event, self.service.handlers[kind], is_guarded=True)
        if kind in self.service.hears:
            return Handled(self.service, delivery, event, self.service.hears[kind], is_guarded=False)
        raise LookupError(f"{self.service.name} neither handles nor hears {kind.__name__}")

    def _run(self, items: list[Work]) -> list[Payload]:
        before = len(self.envelopes)
        known = len(self.errors)
        rest: Rest = drive(self._dispatcher.process(items))
        self.waiting.extend(rest.items)
        for error in self.errors[known:]:
            if self.is_strict and not isinstance(error, (RetryLater, Poison, Malformed, Refused)):
                raise error
        return [envelope.data for envelope in self.envelopes[before:]]

    def _publish(self, unit: Committed) -> None:
        for envelope in unit.said:
            if isinstance(envelope.data, DeadLetterV1):
                self.dlq.append(envelope.data)
            else:
                self.envelopes.append(envelope)
        self._pass("after_publish")
        self.database.outbox.pop(unit.outbox_id, None)

    def _spawn(self, effect: Callable[[], Awaitable[None]]) -> None:
        try:
            drive(cast("Coroutine[Any, Any, None]", effect()))
        except Exception as error:  # as in production: an effect is best effort
            self.errors.append(error)

    def _new_id(self) -> str:
        self._ids += 1
        return derive("harness", self.service.name, str(self._ids))

    def _pass(self, point: str) -> None:
        if self._crash_at == point:
            self._crash_at = None
            raise Crash(point)
