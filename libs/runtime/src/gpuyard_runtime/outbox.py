"""What a unit said, from its row in the database to the stream's acknowledgement.

A committed unit's messages lie in one row of the outbox until the streams have acknowledged all of them; a process that dies in
between publishes them again at its next start, with the same ids, so that the streams and the inboxes behind them take them once. The relay
never blocks a unit until too many are unpublished. While the bus is away or a stream is full it waits, says so, and loses nothing.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from time import monotonic
from typing import Protocol

from pydantic_core import from_json

from gpuyard_runtime.frames import Outgoing, outgoing
from gpuyard_runtime.units import Committed
from gpuyard_runtime.wire import frame, status_of

UNPUBLISHED_UNITS = 64
"""Units that may wait to be published before the next one waits too."""
ACK_SECONDS = 5.0
"""An acknowledgement that takes longer is lost: everything unacknowledged is published again."""
LONGEST_PAUSE_SECONDS = 5.0


class Wire(Protocol):
    """What the relay needs of the bus."""

    @property
    def is_connected(self) -> bool:
        """Whether frames can be written now."""
        ...

    def post(self, frames: Iterable[bytes]) -> None:
        """Write frames; they are dropped while not connected."""
        ...


class Relay:
    """Publishes committed units in order and notes what the streams have. `told` hears why it waits, or None."""

    def __init__(self, wire: Wire, told: Callable[[str | None], None], *, limit: int = UNPUBLISHED_UNITS) -> None:
        self._wire = wire
        self._reply = b""
        self._told = told
        self._limit = limit
        self._token = 0
        self._unacked: dict[int, tuple[Outgoing, int]] = {}
        self._left: dict[int, int] = {}
        self._done: list[int] = []
        self._tries = 0
        self._is_stalled = False
        self._oldest_at = 0.0
        self._room = asyncio.Event()
        self._room.set()
        self._idle = asyncio.Event()
        self._idle.set()

    def reply_to(self, prefix: str) -> None:
        """Where streams answer: :meth:`on_reply` must be subscribed at ``<prefix>*`` before anything is taken."""
        self._reply = prefix.encode()

    @property
    def unpublished(self) -> int:
        """Units whose messages the streams do not all have."""
        return len(self._left)

    def holds(self, outbox_id: int) -> bool:
        """Whether this unit is already on its way or done."""
        return outbox_id in self._left or outbox_id in self._done

    def take(self, unit: Committed) -> None:
        """Publish a committed unit."""
        if unit.outbox_id:
            self.take_row(unit.outbox_id, [outgoing(envelope) for envelope in unit.said] if unit.encoded is None else unit.encoded)

    def take_row(self, outbox_id: int, messages: Sequence[Outgoing]) -> None:
        """Publish the messages of one outbox row."""
        if not messages:
            self._done.append(outbox_id)
            return
        if not self._unacked:
            self._oldest_at = monotonic()
        self._left[outbox_id] = len(messages)
        self._idle.clear()
        first = self._token + 1
        for found in messages:
            self._token += 1
            self._unacked[self._token] = (found, outbox_id)
        if len(self._left) >= self._limit:
            self._room.clear()
        if not self._is_stalled:
            self._wire.post(self._frame(token) for token in range(first, self._token + 1))

    def _frame(self, token: int) -> bytes:
        found = self._unacked[token][0]
        return frame(found.subject, b"%b%d" % (self._reply, token), found.headers, found.body)

    async def room(self) -> None:
        """Wait until not too many units wait to be published."""
        await self._room.wait()

    async def idle(self) -> None:
        """Wait until everything is published."""
        await self._idle.wait()

    @property
    def has_done(self) -> bool:
        """Whether outbox rows can be deleted."""
        return bool(self._done)

    def take_done(self) -> list[int]:
        """Outbox rows that can be deleted; each is given once."""
        done, self._done = self._done, []
        return done

    def put_back_done(self, done: list[int]) -> None:
        """The deletion of these rows did not commit."""
        self._done = done + self._done

    def on_reply(self, subject: bytes, reply: bytes, headers: bytes, body: bytes) -> None:
        """A stream's answer to one publish; subscribed at ``<reply prefix>*``."""
        token = int(subject[len(self._reply) :])
        if status_of(headers) is not None:
            self._stall("no stream keeps the subject")
            return
        if b'"error"' in body:
            self._stall(_problem_of(body))
            return
        found = self._unacked.pop(token, None)
        if found is None:
            return
        self._oldest_at = monotonic()
        if not self._is_stalled and self._tries:
            self._tries = 0
            self._told(None)
        left = self._left[found[1]] - 1
        if left:
            self._left[found[1]] = left
            return
        del self._left[found[1]]
        self._done.append(found[1])
        if len(self._left) < self._limit:
            self._room.set()
        if not self._left:
            self._idle.set()

    def _stall(self, reason: str) -> None:
        """A stream refused: send nothing more until a pause is over, so that the order is kept, then everything that is unacknowledged."""
        if self._is_stalled:
            return
        self._is_stalled = True
        self._tries += 1
        self._told(reason)
        pause = min(0.1 * 2 ** min(self._tries, 10), LONGEST_PAUSE_SECONDS)
        asyncio.get_running_loop().call_later(pause, self.resend)

    def resend(self) -> None:
        """Publish again all that is unacknowledged: after a pause, after a reconnect, when acknowledgements are overdue."""
        self._is_stalled = False
        self._oldest_at = monotonic()
        if self._unacked and self._wire.is_connected:
            self._wire.post([self._frame(token) for token in self._unacked])

    def check(self) -> None:
        """To be called about once a second: nothing may wait for an acknowledgement that got lost."""
        if self._unacked and not self._is_stalled and monotonic() - self._oldest_at > ACK_SECONDS:
            self._tries += 1
            self._told("the bus does not acknowledge")
            self.resend()


def _problem_of(body: bytes) -> str:
    try:
        error = from_json(body)["error"]
        return f"{str(error.get('description', 'refused'))[:200]} (code {error.get('err_code')})"
    except (ValueError, KeyError, AttributeError):
        return "the stream refused"
