"""The things that a unit of work is made of: deliveries, asks, acts, beats. Each knows how it is done, settled and given up.

`lane` is what waits when one of its items must wait: a durable, a reader. Asks, acts and beats have no lane, they never wait.
`key` is the inbox key; without one the item needs no inbox.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar

from gpuyard_contracts.envelope import Ask, Envelope, Malformed, Shape, decode

from gpuyard_runtime.asks import refusal_of
from gpuyard_runtime.dead_letters import DeadLetterV1, letter
from gpuyard_runtime.faults import Refused
from gpuyard_runtime.service import Handler, Origin, Service, Tick, Tx, Unreadable

T = TypeVar("T")


def nothing() -> None:
    """For deliveries that need no acknowledgement."""


@dataclass(slots=True)
class Delivery:
    """One message as the bus hands it over. `ack` says it is done, `touch` that it is still being worked on."""

    subject: str
    headers: Mapping[str, str] | None
    body: bytes
    stream: str
    sequence: int
    arrived: datetime
    ack: Callable[[], None] = nothing
    touch: Callable[[], None] = nothing
    lane: str = ""


class Work(Protocol):
    """One item of a unit."""

    @property
    def lane(self) -> str:
        """What waits with this item; empty: it never waits."""
        ...

    @property
    def key(self) -> str | None:
        """The inbox key, or None where a repeat does no harm."""
        ...

    @property
    def kind(self) -> str:
        """The type for metrics and logs; never a concrete subject."""
        ...

    origin: Origin
    tries: int

    def apply(self, tx: Tx[Any]) -> None:
        """Do it, within the unit."""
        ...

    def settle(self) -> None:
        """The unit has committed (or the item was done before): acknowledge, reply."""
        ...

    def give_up(self, error: BaseException) -> DeadLetterV1 | None:
        """It cannot be done: tell who waits for it; a letter where one must be written (the item is then settled after that)."""
        ...


class Handled:
    """A message of a stream with its handler; `is_guarded` by the inbox unless it was only heard."""

    __slots__ = ("delivery", "event", "handler", "is_guarded", "key", "origin", "service", "tries")

    def __init__(self, service: Service[Any], delivery: Delivery, event: Envelope[Any], handler: Handler[Any], *, is_guarded: bool) -> None:
        self.service = service.name
        self.delivery = delivery
        self.event = event
        self.handler = handler
        self.is_guarded = is_guarded
        inbox_key = event.inbox_key
        self.key: str | None = inbox_key if is_guarded else None
        self.origin = Origin(inbox_key, event, event.traceparent, event.correlation_id, delivery.stream, delivery.sequence)
        self.tries = 0

    @property
    def lane(self) -> str:
        """The durable or reader."""
        return self.delivery.lane

    @property
    def kind(self) -> str:
        """The event's type."""
        return self.event.type

    def apply(self, tx: Tx[Any]) -> None:
        """Call the handler."""
        self.handler(self.event, tx)

    def settle(self) -> None:
        """Acknowledge."""
        self.delivery.ack()

    def give_up(self, error: BaseException) -> DeadLetterV1 | None:
        """A dead letter with what was raised."""
        found = self.delivery
        reason, detail = reason_of(error)
        return letter(self.service, found.subject, found.stream, found.sequence, reason, detail, found.headers, found.body)


class Garbled:
    """A message that cannot be read: the service may answer it, a dead letter is written in the same unit."""

    __slots__ = ("delivery", "key", "malformed", "origin", "service", "tries")

    def __init__(self, service: Service[Any], delivery: Delivery, malformed: Malformed, *, is_guarded: bool) -> None:
        self.service = service
        self.delivery = delivery
        self.malformed = malformed
        place = f"{delivery.stream or delivery.subject}#{delivery.sequence}"
        self.key: str | None = place if is_guarded else None
        self.origin = Origin(place, None, None, None, delivery.stream, delivery.sequence)
        self.tries = 0

    @property
    def lane(self) -> str:
        """The durable or reader."""
        return self.delivery.lane

    @property
    def kind(self) -> str:
        """What all of them are counted as."""
        return "malformed"

    def apply(self, tx: Tx[Any]) -> None:
        """Let the service answer, and write the letter."""
        found = self.delivery
        if self.service.on_malformed is not None:
            headers = dict(found.headers or {})
            told = Unreadable(
                found.subject,
                headers,
                found.body,
                self.malformed.reason,
                self.malformed.detail,
                headers.get("ce-id", ""),
                found.stream,
                found.sequence,
            )
            self.service.on_malformed(told, tx)
        tx.say(self._letter(self.malformed.reason, self.malformed.detail), key="dead-letter")

    def settle(self) -> None:
        """Acknowledge."""
        self.delivery.ack()

    def give_up(self, error: BaseException) -> DeadLetterV1 | None:
        """The same letter, without the service's answer."""
        return self._letter(self.malformed.reason, f"{self.malformed.detail}; answering it failed: {reason_of(error)[1]}")

    def _letter(self, reason: str, detail: str) -> DeadLetterV1:
        found = self.delivery
        return letter(self.service.name, found.subject, found.stream, found.sequence, reason, detail, found.headers, found.body)


class Asked:
    """An ask that is answered after the commit."""

    __slots__ = ("answer", "answerer", "ask", "origin", "reply", "tries")

    lane = ""
    key = None

    def __init__(
        self,
        ask: Ask,
        answerer: Callable[[Any, Tx[Any]], Shape],
        reply: Callable[[Shape | Refused], None],
        ask_id: str,
        traceparent: str | None,
    ) -> None:
        self.ask = ask
        self.answerer = answerer
        self.reply = reply
        self.origin = Origin(ask_id, None, traceparent)
        self.tries = 0
        self.answer: Shape | None = None

    @property
    def kind(self) -> str:
        """The ask's type."""
        return self.ask.TYPE

    def apply(self, tx: Tx[Any]) -> None:
        """Work the answer out."""
        self.apply_as(self.answerer, tx)

    def apply_as(self, answerer: Callable[[Any, Tx[Any]], Shape], tx: Tx[Any]) -> None:
        """Work the answer out in another way."""
        self.answer = answerer(self.ask, tx)

    def settle(self) -> None:
        """Send the answer."""
        assert self.answer is not None
        self.reply(self.answer)

    def give_up(self, error: BaseException) -> DeadLetterV1 | None:
        """Refuse."""
        self.reply(refusal_of(error))
        return None


class Act(Generic[T]):
    """A function that someone in this process waits for."""

    __slots__ = ("done", "failed", "fn", "origin", "result", "tries")

    lane = ""
    key = None
    kind = "act"

    def __init__(
        self,
        fn: Callable[[Tx[Any]], T],
        act_id: str,
        traceparent: str | None,
        done: Callable[[T], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self.fn = fn
        self.done = done
        self.failed = failed
        self.origin = Origin(act_id, None, traceparent)
        self.tries = 0
        self.result: T | None = None

    def apply(self, tx: Tx[Any]) -> None:
        """Call it."""
        self.result = self.fn(tx)

    def settle(self) -> None:
        """Give the result to who waits."""
        self.done(self.result)  # pyright: ignore[reportArgumentType]  # set by apply, and T may be None itself

    def give_up(self, error: BaseException) -> DeadLetterV1 | None:
        """Raise the error where it is waited for."""
        self.failed(error)
        return None


class Beat:
    """One beat of a tick, or the unit after start."""

    __slots__ = ("error", "name", "origin", "run", "tries", "unless_due")

    lane = ""
    key = None

    def __init__(self, name: str, run: Callable[[Tx[Any]], None], beat_id: str, unless_due: Callable[[Any], bool] | None = None) -> None:
        self.name = name
        self.run = run
        self.unless_due = unless_due
        self.origin = Origin(beat_id)
        self.tries = 0
        self.error: BaseException | None = None

    @classmethod
    def of(cls, tick: Tick[Any], beat_id: str) -> "Beat":
        """One beat of this tick."""
        return cls(f"tick.{tick.name}", tick.run, beat_id, tick.when)

    @property
    def kind(self) -> str:
        """The tick's name."""
        return self.name

    def apply(self, tx: Tx[Any]) -> None:
        """Run it if it is due."""
        if self.unless_due is None or self.unless_due(tx.store):
            self.run(tx)

    def settle(self) -> None:
        """Nobody waits for it."""

    def give_up(self, error: BaseException) -> DeadLetterV1 | None:
        """It comes again; the error is kept for who looks."""
        self.error = error
        return None


def reason_of(error: BaseException) -> tuple[str, str]:
    """Reason and detail of a dead letter."""
    reason = getattr(error, "reason", None)
    detail = getattr(error, "detail", None)
    if isinstance(reason, str) and isinstance(detail, str):
        return reason, detail
    return "handler-failed", f"{type(error).__name__}: {error}"


def work_of(service: Service[Any], delivery: Delivery, handlers: Mapping[Any, Handler[Any]], *, is_guarded: bool) -> Work | None:
    """The work in a delivery. None: the service has no handler for messages of this class, and it is done by being ignored."""
    try:
        event = decode(delivery.subject, delivery.headers, delivery.body, sequence=delivery.sequence, arrived=delivery.arrived)
    except Malformed as malformed:
        return Garbled(service, delivery, malformed, is_guarded=is_guarded)
    except (
        Exception
    ) as error:  # `decode` promises not to; if it breaks the promise, one message is lost to the dead letters and not the service
        return Garbled(service, delivery, Malformed("undecodable", f"{type(error).__name__}: {error}"), is_guarded=is_guarded)
    handler = handlers.get(type(event.data))
    return None if handler is None else Handled(service, delivery, event, handler, is_guarded=is_guarded)
