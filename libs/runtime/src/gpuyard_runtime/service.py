"""A service as data, and what its handlers hold in their hands: :class:`Tx`.

Handlers are synchronous: they read and change the store, say events, and return. Everything that one unit of work does, for many messages
at once, commits in one database transaction together with the inbox rows that make a second delivery do nothing; what was said is
published after that, under ids that do not change when it is done again. So a handler may be written as if each message came exactly
once, and must still expect it late. :mod:`gpuyard_runtime.dispatch` keeps that promise.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Generic, NoReturn, TypeVar

from gpuyard_contracts.envelope import Ask, Envelope, Payload, Shape
from gpuyard_contracts.topology import Durable

from gpuyard_runtime.faults import Poison
from gpuyard_runtime.ids import derive
from gpuyard_runtime.saying import enveloped
from gpuyard_runtime.store import Store

S = TypeVar("S", bound=Store)


@dataclass(frozen=True, slots=True)
class Origin:
    """What the unit is working on just now: ids of what is said are derived from `id`."""

    id: str
    cause: Envelope[Any] | None = None
    traceparent: str | None = None
    correlation_id: str | None = None
    stream: str = ""
    sequence: int = 0


class Tx(Generic[S]):
    """The open unit of work. `store` is to be read and changed, `now` is the unit's instant (UTC).

    `cause` is the message being handled (None for asks, ticks, `act`, `after_unit`), `stream` and `sequence` its place in its stream.
    """

    __slots__ = ("_counts", "_effects", "_origin", "_parents", "_said", "_source", "now", "store")

    def __init__(self, store: S, now: datetime, source: str, unit_id: str) -> None:
        self.store = store
        self.now = now
        self._source = source
        self._origin = Origin(unit_id)
        self._counts: dict[tuple[str, str], int] = {}
        self._said: list[Envelope[Any]] = []
        self._parents: list[str | None] = []
        self._effects: list[Callable[[], Awaitable[None]]] = []

    @property
    def cause(self) -> Envelope[Any] | None:
        """The message being handled."""
        return self._origin.cause

    @property
    def stream(self) -> str:
        """The stream that the cause came from; empty without one."""
        return self._origin.stream

    @property
    def sequence(self) -> int:
        """The cause's sequence in its stream; 0 without one."""
        return self._origin.sequence

    @property
    def traceparent(self) -> str | None:
        """The trace context of what is being handled: keep it with a row to continue the trace later."""
        return self._origin.traceparent

    def say(
        self,
        payload: Payload,
        *,
        key: str | None = None,
        traceparent: str | None = None,
        correlation_id: str | None = None,
        once: str | None = None,
    ) -> Envelope[Any]:
        """Publish after the commit.

        The id is computed from the cause, the type and `key` (default: a running number), so the same handling gives the same id.
        `once` takes the cause's place: the same `once` of one type is the same event, whoever says it and whenever. `traceparent`: of the
        parent, where it is not the cause (a row's, in a tick or in `after_unit`).
        """
        origin = self._origin
        kind = payload.TYPE
        if once is not None:
            event_id = derive(once, kind, "once")
        else:
            if key is None:
                count = self._counts.get((origin.id, kind), 0)
                self._counts[origin.id, kind] = count + 1
                key = f"#{count}"
            event_id = derive(origin.id, kind, key)
        parent = traceparent or origin.traceparent
        made = enveloped(
            payload,
            source=self._source,
            at=self.now,
            event_id=event_id,
            traceparent=parent,
            correlation_id=correlation_id or payload.correlation() or origin.correlation_id or "",
            causation_id=None if origin.cause is None else origin.cause.id,
        )
        self._said.append(made)
        self._parents.append(parent)
        return made

    def reject(self, reason: str, detail: str) -> NoReturn:
        """Give this message up: dead letter with the reason, or the refusal of an ask. What its handler did before is undone."""
        raise Poison(reason, detail)

    def after_commit(self, effect: Callable[[], Awaitable[None]]) -> None:
        """Do something outside once the unit has committed: best effort, at most once, errors are only logged."""
        self._effects.append(effect)

    @property
    def said(self) -> list[Envelope[Any]]:
        """What this unit has said so far."""
        return self._said

    @property
    def parents(self) -> list[str | None]:
        """For each said event, the trace context it is a child of."""
        return self._parents

    @property
    def effects(self) -> list[Callable[[], Awaitable[None]]]:
        """What waits for the commit."""
        return self._effects

    def turn_to(self, origin: Origin) -> None:
        """The runtime turns to the next thing of the unit; not for handlers."""
        self._origin = origin


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A delivery that could not be decoded, for a service that answers even that. `event_id` as far as it was readable."""

    subject: str
    headers: Mapping[str, str]
    body: bytes
    reason: str
    detail: str
    event_id: str
    stream: str = ""
    sequence: int = 0


@dataclass(frozen=True, slots=True)
class Reading(Generic[S]):
    """What an inquiry may use: the store (to read only), the database pool (None on the memory harness) and the instant."""

    store: S
    db: Any
    now: datetime


def always_due(store: Any) -> bool:
    """The default of a tick's `when`."""
    return True


@dataclass(frozen=True, slots=True)
class Tick(Generic[S]):
    """A periodic duty: `run` in a unit of its own every `seconds`, skipped while `when` is false. A missed beat is not made up for."""

    name: str
    seconds: float
    run: Callable[[Tx[S]], None]
    when: Callable[[S], bool] = always_due


Handler = Callable[[Envelope[Any], Tx[S]], None]
Answerer = Callable[[Any, Tx[S]], Shape]
Inquirer = Callable[[Any, Reading[S]], Awaitable[Shape]]


@dataclass(frozen=True, kw_only=True)
class Service(Generic[S]):
    """All that the runtime must know of a service.

    - `handlers`: by payload class; delivered through the service's durables (contracts.topology), each exactly once in effect.
    - `hears`: by payload class; an own reader for each process without inbox. Streams that keep the last per subject are read from the
      beginning (the service is ready only when it has caught up), others from now on. Handle them so that repeating does nothing.
    - `asks`: request/reply on core NATS, answered after the commit. `reject` or an error refuses this one only.
    - `meanwhile`: how an ask is answered while the database is away, where the ordinary answer would change something: it must change and
      say nothing. Without one, or where it rejects, the asker hears that it cannot be done now.
    - `inquiries`: request/reply without a unit: read the store or the database, change nothing; so many of them at once
      (`inquiries_at_once`: 1 where they think rather than read, since nothing else goes on meanwhile).
    - `after_unit`: at the end of every unit, before it is written: decisions over the whole state. It must depend on the state alone: if it
      fails the unit commits without it, /readyz says so, and it runs again with the next one.
    - `on_load`: once, in the first unit after start. `on_malformed`: something unreadable came (it is dead-lettered anyway).
    - `on_given_up`: a message was read and could not be handled; in the unit of its dead letter, so that whoever asked can be told.
    - `gauges`: numbers for /metrics, read when asked for: name (without prefix) to a number, or to numbers by label values.
    - `forgets`: statements that delete what is over and was last touched before ``$1``, ``$2`` rows at most; run now and then with what no
      message can ask for any more, so that nothing grows for ever.
    - `durables`: what `handlers` are fed from; None takes the service's own from contracts.topology.
    - `leader`: one process works, others stand by. Without it all instances work at once on one database: then nothing may be kept in
      the store that another instance writes.
    """

    name: str
    store: Callable[[], S]
    migrations: Traversable | Path
    schema: str
    handlers: Mapping[type[Payload], Handler[S]] = field(default_factory=dict[type[Payload], Handler[S]])
    hears: Mapping[type[Payload], Handler[S]] = field(default_factory=dict[type[Payload], Handler[S]])
    asks: Mapping[type[Ask], Answerer[S]] = field(default_factory=dict[type[Ask], Answerer[S]])
    meanwhile: Mapping[type[Ask], Answerer[S]] = field(default_factory=dict[type[Ask], Answerer[S]])
    inquiries: Mapping[type[Ask], Inquirer[S]] = field(default_factory=dict[type[Ask], Inquirer[S]])
    inquiries_at_once: int = 16
    ticks: tuple[Tick[S], ...] = ()
    on_malformed: Callable[[Unreadable, Tx[S]], None] | None = None
    on_given_up: Callable[[Envelope[Any], Tx[S]], None] | None = None
    after_unit: Callable[[Tx[S]], None] | None = None
    on_load: Callable[[Tx[S]], None] | None = None
    gauges: Callable[[S], Mapping[str, float | Mapping[tuple[tuple[str, str], ...], float]]] | None = None
    forgets: tuple[str, ...] = ()
    durables: tuple[Durable, ...] | None = None
    leader: bool = True

    def tick(self, name: str) -> Tick[S]:
        """The tick of this name. Raises KeyError."""
        for tick in self.ticks:
            if tick.name == name:
                return tick
        raise KeyError(name)
