"""The bus in memory: streams, durables, readers, questions; nothing moves by itself, and the same calls give the same result.

What the real bus may do at any time (deliver again, deliver late, forget an acknowledgement, be full, be away) is done here when it is
asked for. Streams and durables come from the topology, as on the real bus.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache, partial
from typing import Any

from gpuyard_contracts.envelope import Ask, Envelope, Shape
from gpuyard_contracts.permissions import is_allowed
from gpuyard_contracts.subjects import wildcard
from gpuyard_contracts.topology import STREAMS, Durable, Stream

from gpuyard_runtime.asks import read_answer, read_ask, refusal_of, write_answer, write_refusal
from gpuyard_runtime.clock import Clock
from gpuyard_runtime.faults import Refused, Unavailable
from gpuyard_runtime.work import Delivery


@dataclass(frozen=True, slots=True)
class Stored:
    """One message of a stream."""

    sequence: int
    subject: str
    headers: Mapping[str, str]
    body: bytes
    arrived: datetime


class MemoryStream:
    """One stream. Duplicates within the window are dropped; state keeps the last per subject; a full one refuses."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.messages: dict[int, Stored] = {}
        self.last_sequence = 0
        self.is_full = False
        self._ids: dict[str, tuple[datetime, int]] = {}
        self._by_subject: dict[str, int] = {}

    def add(self, subject: str, headers: Mapping[str, str], body: bytes, now: datetime) -> int:
        """Keep a message and return its sequence; a repeated id gives the first one's. Raises Unavailable where the stream is full."""
        known = self._ids.get(headers.get("Nats-Msg-Id", ""))
        if known is not None and now - known[0] < timedelta(seconds=self.stream.duplicate_window_seconds):
            return known[1]
        if self.is_full:
            raise Unavailable(f"stream {self.stream.name} is full")
        self.last_sequence += 1
        if self.stream.is_state and subject in self._by_subject:
            self.messages.pop(self._by_subject[subject], None)
        self._by_subject[subject] = self.last_sequence
        self.messages[self.last_sequence] = Stored(self.last_sequence, subject, dict(headers), body, now)
        if "Nats-Msg-Id" in headers:
            self._ids[headers["Nats-Msg-Id"]] = (now, self.last_sequence)
        return self.last_sequence

    def after(self, sequence: int, filters: Sequence[str], limit: int) -> list[Stored]:
        """Messages behind a sequence that a filter takes, in order."""
        found: list[Stored] = []
        for number in range(sequence + 1, self.last_sequence + 1):
            stored = self.messages.get(number)
            if stored is not None and _is_taken(tuple(filters), stored.subject):
                found.append(stored)
                if len(found) == limit:
                    break
        return found


@dataclass
class MemoryDurable:
    """One durable: how far it has delivered, and what is delivered and not acknowledged (by sequence, with its deadline)."""

    durable: Durable
    stream: MemoryStream
    delivered: int = 0
    unacked: dict[int, datetime] = field(default_factory=dict[int, datetime])
    again: list[int] = field(default_factory=list[int])

    def pending(self) -> int:
        """Messages that are not acknowledged, delivered or not."""
        new = self.stream.after(self.delivered, self.durable.filters, self.durable.max_ack_pending)
        return len(new) + len(self.again) + len(self.unacked)

    @property
    def can_deliver(self) -> bool:
        """Whether a message can be delivered now."""
        if self.again:
            return True
        if len(self.unacked) >= self.durable.max_ack_pending:
            return False
        if self.stream.after(self.delivered, self.durable.filters, 1):
            return True
        self.delivered = self.stream.last_sequence  # nothing behind is for us: do not look at it again
        return False

    def take(self, limit: int, now: datetime) -> list[Stored]:
        """Deliver up to `limit` messages: those to be delivered again first."""
        found = [self.stream.messages[number] for number in self.again[:limit] if number in self.stream.messages]
        del self.again[:limit]
        new = self.stream.after(self.delivered, self.durable.filters, limit - len(found)) if len(found) < limit else []
        if new:
            self.delivered = new[-1].sequence
        found += new
        deadline = now + timedelta(seconds=self.durable.ack_wait_seconds)
        self.unacked.update((stored.sequence, deadline) for stored in found)
        return found

    def ack(self, sequence: int) -> None:
        """A message is done; a work queue forgets it."""
        self.unacked.pop(sequence, None)
        if sequence in self.again:
            self.again.remove(sequence)
        if self.stream.stream.retention == "workqueue":
            self.stream.messages.pop(sequence, None)

    def touch(self, sequence: int, now: datetime) -> None:
        """A message is still being worked on."""
        if sequence in self.unacked:
            self.unacked[sequence] = now + timedelta(seconds=self.durable.ack_wait_seconds)

    def expire(self, now: datetime) -> None:
        """What was not acknowledged in time is delivered again."""
        self.redeliver([number for number, deadline in self.unacked.items() if deadline <= now])

    def redeliver(self, sequences: Iterable[int]) -> None:
        """Deliver these again."""
        for number in sorted(sequences):
            if self.unacked.pop(number, None) is not None:
                self.again.append(number)
        self.again.sort()

    def reset(self) -> None:
        """A new consumer takes over: all that is not acknowledged comes again, in order."""
        self.redeliver(list(self.unacked))


class MemoryReader:
    """One follower of a stream; see :meth:`gpuyard_runtime.bus.Bus.read`."""

    def __init__(self, stream: MemoryStream, filters: Sequence[str], *, after: int | None, is_state: bool) -> None:
        self.stream = stream
        self.filters = tuple(filters)
        self.at = after if after is not None else 0 if is_state else stream.last_sequence

    @property
    def is_caught_up(self) -> bool:
        """Whether everything has been delivered."""
        if self.stream.after(self.at, self.filters, 1):
            return False
        self.at = self.stream.last_sequence
        return True

    def take(self, limit: int) -> list[Stored]:
        """The next messages."""
        found = self.stream.after(self.at, self.filters, limit)
        if found:
            self.at = found[-1].sequence
        return found


class MemoryBus:
    """All streams, durables and answerers. While `is_away` nothing can be published or asked."""

    def __init__(self, clock: Clock, *, streams: Sequence[Stream] = STREAMS, durables: Sequence[Durable] = ()) -> None:
        self.clock = clock
        self.streams = {stream.name: MemoryStream(stream) for stream in streams}
        self.durables: dict[str, MemoryDurable] = {}
        self.is_away = False
        self._answerers: list[tuple[str, type[Ask], Callable[[Ask, Callable[[Shape | Refused], None]], None]]] = []
        self.core: list[tuple[str, Mapping[str, str], bytes]] = []
        """What was published on subjects that no stream keeps."""
        for durable in durables:
            self.add_durable(durable)

    def add_durable(self, durable: Durable) -> MemoryDurable:
        """Make a durable, or return the one of this name."""
        return self.durables.setdefault(durable.name, MemoryDurable(durable, self.streams[durable.stream]))

    def stream_of(self, subject: str) -> MemoryStream | None:
        """The stream that keeps a subject."""
        return next((found for found in self.streams.values() if is_allowed(found.stream.subjects, subject)), None)

    def publish(self, envelope: Envelope[Any]) -> int:
        """Publish on a stream. Raises Unavailable."""
        return self.publish_raw(envelope.subject, envelope.body(), envelope.headers())

    def publish_raw(self, subject: str, body: bytes, headers: Mapping[str, str] | None = None) -> int:
        """Publish bytes, as a stranger may; returns the sequence. Raises Unavailable."""
        if self.is_away:
            raise Unavailable("the bus is away")
        stream = self.stream_of(subject)
        if stream is None:
            raise Unavailable(f"no stream keeps {subject}")
        return stream.add(subject, headers or {}, body, self.clock.now())

    def send(self, subject: str, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        """Publish on core NATS. Raises Unavailable."""
        if self.is_away:
            raise Unavailable("the bus is away")
        stream = self.stream_of(subject)
        if stream is not None:
            stream.add(subject, headers or {}, body, self.clock.now())
        else:
            self.core.append((subject, headers or {}, body))

    def pull(self, durable: Durable, limit: int) -> list[Delivery]:
        """Deliver what is waiting, up to `limit`."""
        found = self.add_durable(durable)
        return [self._delivery(stored, found) for stored in found.take(limit, self.clock.now())]

    def _delivery(self, stored: Stored, durable: MemoryDurable) -> Delivery:
        return Delivery(
            stored.subject,
            stored.headers,
            stored.body,
            durable.durable.stream,
            stored.sequence,
            stored.arrived,
            partial(durable.ack, stored.sequence),
            lambda: durable.touch(stored.sequence, self.clock.now()),
            durable.durable.name,
        )

    def open_reader(self, stream: str, filters: Sequence[str], *, after: int | None = None, is_state: bool = False) -> MemoryReader:
        """Follow a stream; see :meth:`gpuyard_runtime.bus.Bus.read`."""
        return MemoryReader(self.streams[stream], filters, after=after, is_state=is_state)

    def read(self, reader: MemoryReader, limit: int) -> list[Delivery]:
        """What a reader has not seen."""
        name = reader.stream.stream.name
        return [Delivery(found.subject, found.headers, found.body, name, found.sequence, found.arrived) for found in reader.take(limit)]

    def expire(self) -> None:
        """Let acknowledgement times pass, by the clock."""
        for durable in self.durables.values():
            durable.expire(self.clock.now())

    def answer(self, kind: type[Ask], answer: Callable[[Ask, Callable[[Shape | Refused], None]], None]) -> Callable[[], None]:
        """Answer asks of a class: `answer` gets the ask and how to reply. Returns what ends it."""
        entry = (wildcard(kind.SUBJECT), kind, answer)
        self._answerers.append(entry)
        return lambda: self._answerers.remove(entry)

    def ask(self, ask: Ask, got: Callable[[Any], None]) -> None:
        """Ask; `got` is called with the answer or the Refused, now or later. Raises Unavailable where nobody answers."""
        if self.is_away:
            raise Unavailable("the bus is away")
        subject, body = ask.subject(), ask.model_dump_json(exclude_none=True).encode()
        for pattern, kind, answer in self._answerers:
            if is_allowed((pattern,), subject):
                answer(read_ask(kind, subject, body), partial(_replied, kind, got))
                return
        raise Unavailable(f"nobody answers {ask.TYPE}")


@lru_cache(maxsize=16_384)
def _is_taken(filters: tuple[str, ...], subject: str) -> bool:
    """Whether a filter takes the subject; asked again at every step for what waits."""
    return is_allowed(filters, subject)


def _replied(kind: type[Ask], got: Callable[[Any], None], answer: Shape | Refused) -> None:
    headers, body = write_refusal(answer) if isinstance(answer, Refused) else write_answer(answer)
    try:
        got(read_answer(kind, headers, body))
    except Refused as refused:
        got(refusal_of(refused))
