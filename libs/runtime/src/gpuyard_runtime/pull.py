"""Taking batches from a consumer of a stream: our own pull protocol.

Each pull asks for a number of messages and expires; the next is asked for before the last is exhausted, so that a busy consumer never
waits for a round trip and an idle one costs a request every few seconds. What was asked for and has not come is `credit`; a pull whose
end was lost (server restart) is written off when it must have expired.
"""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Protocol

from pydantic_core import to_json

from gpuyard_runtime.wire import plain_frame, read_headers, status_of
from gpuyard_runtime.work import Delivery

EXPIRES_SECONDS = 4.0
BATCH = 200

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ACK = b"+ACK"
_TOUCH = b"+WPI"


class PullBus(Protocol):
    """What a pull needs of the bus."""

    def post(self, frames: list[bytes]) -> None:
        """Write frames."""
        ...

    def request_frame(self, subject: str, reply: str, body: bytes) -> bytes:
        """A publish with a reply subject."""
        ...


class Pull:
    """One consumer, pulled. `deliver` is called for each message, `buffered` says how many wait to be handled.

    `missing` is why nothing can come (the consumer is gone), or None; `pending` how many messages the stream still held for us when the
    last one came; `moved_at` when that was, by the loop's clock.
    """

    def __init__(
        self,
        bus: PullBus,
        stream: str,
        consumer: str,
        inbox: str,
        deliver: Callable[[Delivery], None],
        buffered: Callable[[], int],
        *,
        batch: int = BATCH,
    ) -> None:
        self.stream = stream
        self.consumer = consumer
        self.inbox = inbox
        self.missing: str | None = None
        self.pending = 0
        self.credit = 0
        self.moved_at = 0.0
        self.is_stopped = False
        self._bus = bus
        self._subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        self._deliver = deliver
        self._buffered = buffered
        self._batch = batch
        self._asked_at = 0.0
        self._clock = asyncio.get_running_loop().time  # asking for the loop is a system call, and this is asked for each message

    def ask(self) -> None:
        """Ask for more if there is room for it."""
        if self.is_stopped or self.credit > self._batch // 2 or self._buffered() >= self._batch:
            return
        self._asked_at = self._clock()
        self.credit += self._batch
        body = to_json({"batch": self._batch, "expires": int(EXPIRES_SECONDS * 1e9)})
        self._bus.post([self._bus.request_frame(self._subject, self.inbox, body)])

    def restart(self) -> None:
        """Ask anew: what was asked for on a connection that is gone will not come."""
        self.credit = 0
        self.ask()

    def stop(self) -> None:
        """Ask for nothing more."""
        self.is_stopped = True

    def check(self) -> None:
        """To be called about once a second: write off what must have expired, and ask again."""
        if self.credit and self._clock() - self._asked_at > EXPIRES_SECONDS + 1.0:
            self.credit = 0
        self.ask()

    def on_message(self, subject: bytes, reply: bytes, headers: bytes, body: bytes) -> None:
        """A message or a status for one of our pulls; subscribed at `inbox`."""
        status = status_of(headers)
        if status is not None:
            self._on_status(status, headers)
            return
        self.credit = max(0, self.credit - 1)
        self.missing = None
        self._deliver(self._delivery(subject, reply, headers, body))
        if self.credit <= self._batch // 2:
            self.ask()

    def _delivery(self, subject: bytes, reply: bytes, headers: bytes, body: bytes) -> Delivery:
        # $JS.ACK.<stream>.<consumer>.<deliveries>.<stream seq>.<consumer seq>.<ns>.<pending>, or with domain and account in front.
        parts = reply.split(b".")
        at = 2 if len(parts) == 9 else 4
        self.pending = int(parts[at + 6])
        self.moved_at = self._clock()
        return Delivery(
            subject.decode("utf-8", "replace"),
            read_headers(headers) if headers else None,
            body,
            self.stream,
            int(parts[at + 3]),
            _EPOCH + timedelta(microseconds=int(parts[at + 5]) // 1000),
            partial(self._answer, reply, _ACK),
            partial(self._answer, reply, _TOUCH),
            self.consumer,
        )

    def _answer(self, reply: bytes, word: bytes) -> None:
        self._bus.post([plain_frame(reply, word)])

    def _on_status(self, status: tuple[int, str], headers: bytes) -> None:
        code, text = status
        if code == 100:
            return
        left = read_headers(headers).get("Nats-Pending-Messages", "")
        self.credit = max(0, self.credit - int(left)) if left.isdigit() else 0
        if code == 503 or (code == 409 and "deleted" in text.lower()):
            self.missing = f"consumer {self.consumer} of {self.stream} is gone"
            self.credit = self._batch  # asking at once would spin; `check` asks again when this is written off
            self._asked_at = self._clock() - EXPIRES_SECONDS
        elif code in (404, 408):
            self.missing = None
            self.ask()
