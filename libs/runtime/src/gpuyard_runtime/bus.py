"""The connection to the bus: publishing with acknowledgement, asking and answering, pulling durables, following streams.

Streams and durables are made by the bootstrap step (:mod:`gpuyard_runtime.bootstrap`), never here. A denied subject or a connection that
is gone for good ends the process (`on_fatal`): a service that is deaf must not look alive.
"""

import asyncio
import contextlib
import os
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any

import nats.errors
from gpuyard_contracts.envelope import Ask, Envelope, Shape
from gpuyard_contracts.permissions import inbox_of
from gpuyard_contracts.subjects import wildcard
from gpuyard_contracts.topology import Durable
from pydantic_core import from_json, to_json

from gpuyard_runtime.asks import read_answer
from gpuyard_runtime.faults import EXIT_FORBIDDEN, EXIT_LOST, Fatal, RuntimeFault, Unavailable
from gpuyard_runtime.frames import outgoing
from gpuyard_runtime.logs import log_of
from gpuyard_runtime.outbox import ACK_SECONDS
from gpuyard_runtime.pull import Pull
from gpuyard_runtime.reader import Reader
from gpuyard_runtime.settings import BusSettings
from gpuyard_runtime.wire import LeanClient, Sink, frame, header_block, status_of
from gpuyard_runtime.work import Delivery

CONNECT_SECONDS = 5
RECONNECT_SECONDS = 1
CHECK_SECONDS = 1.0


class ApiError(RuntimeFault):
    """JetStream refused a request."""

    def __init__(self, code: int, detail: str) -> None:
        super().__init__(f"{detail} (code {code})")
        self.code = code


class Bus:
    """One connection. `reconnected` holds what must be done when it is back."""

    def __init__(self, client: LeanClient, name: str, inbox_prefix: str, lost_seconds: float, on_fatal: Callable[[Fatal], None]) -> None:
        self.name = name
        self._lost_seconds = lost_seconds
        self._on_fatal = on_fatal
        self.client = client
        self.inbox = f"{inbox_prefix}.{secrets.token_hex(8)}"
        self.reconnected: list[Callable[[], None]] = []
        self.lost_at: float | None = None
        self._log = log_of("bus")
        self._inboxes = 0
        self._publishes: dict[bytes, asyncio.Future[bytes]] = {}
        self._publish_prefix = ""
        self._checks: dict[object, Callable[[], None]] = {}
        self._checker: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Subscribe to what every connection needs."""
        self._publish_prefix = await self.open_inbox(self._on_published, is_wide=True)
        self._checker = asyncio.create_task(self._check())

    @property
    def is_connected(self) -> bool:
        """Whether the connection is up now."""
        return self.client.is_connected

    def post(self, frames: Iterable[bytes]) -> None:
        """Write frames with the next flush; see :meth:`gpuyard_runtime.wire.LeanClient.post`."""
        self.client.post(frames)

    def request_frame(self, subject: str, reply: str, body: bytes) -> bytes:
        """A publish with a reply subject."""
        return b"PUB %b %b %d\r\n%b\r\n" % (subject.encode(), reply.encode(), len(body), body)

    async def open_inbox(self, sink: Sink, *, is_wide: bool = False) -> str:
        """A private reply subject whose messages go to `sink`; a wide one is a prefix (with its dot) of many."""
        self._inboxes += 1
        subject = f"{self.inbox}.{self._inboxes}"
        await self.client.sink(f"{subject}.*" if is_wide else subject, sink)
        return f"{subject}." if is_wide else subject

    async def send(self, subject: str, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        """Publish on core NATS: nobody acknowledges it. Raises Unavailable while the connection is away."""
        if not self.is_connected:
            raise Unavailable("the bus is away")
        self.post([frame(subject.encode(), b"", header_block(headers or {}), body)])

    async def publish(self, envelope: Envelope[Any], *, seconds: float = ACK_SECONDS) -> int:
        """Publish on a stream and return the sequence it got; a repeated id within the stream's window gets the first one's.

        Raises Unavailable where no acknowledgement comes: publish the same envelope again.
        """
        if not self.is_connected:
            raise Unavailable("the bus is away")
        found = outgoing(envelope)
        token = secrets.token_hex(8).encode()
        waiting: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._publishes[token] = waiting
        self.post([frame(found.subject, self._publish_prefix.encode() + token, found.headers, found.body)])
        try:
            answer = from_json(await asyncio.wait_for(waiting, seconds))
        except TimeoutError:
            raise Unavailable(f"no stream acknowledged {envelope.type}") from None
        finally:
            self._publishes.pop(token, None)
        if "error" in answer:
            raise Unavailable(f"the stream refused {envelope.type}: {answer['error'].get('description', '')}")
        return int(answer["seq"])

    def _on_published(self, subject: bytes, reply: bytes, headers: bytes, body: bytes) -> None:
        waiting = self._publishes.get(subject.rpartition(b".")[2])
        if waiting is not None and not waiting.done():
            waiting.set_result(b'{"error":{"description":"no stream keeps the subject"}}' if status_of(headers) else body)

    async def ask(self, ask: Ask, *, seconds: float = 2.0, traceparent: str | None = None) -> Any:
        """Ask and return the answer, of the ask's REPLY class. Raises Refused, or Unavailable where nobody answers in time."""
        headers = {"traceparent": traceparent} if traceparent else None
        try:
            got = await self.client.request(
                ask.subject(), ask.model_dump_json(exclude_none=True).encode(), timeout=seconds, headers=headers
            )
        except (nats.errors.Error, TimeoutError) as error:
            raise Unavailable(f"nobody answered {ask.TYPE}: {type(error).__name__}") from None
        answer: Shape = read_answer(type(ask), got.headers, got.data)
        return answer

    async def answer(self, kind: type[Ask], sink: Sink, *, queue: str = "", **known: str) -> Callable[[], Any]:
        """Receive the asks of a class, those with the `known` fields; the sink replies by :meth:`reply`. Returns what ends it."""
        return await self.client.sink(wildcard(kind.SUBJECT, **known), sink, queue=queue)

    def reply(self, to: bytes, headers: Mapping[str, str], body: bytes) -> None:
        """Answer an ask."""
        if to:
            self.post([frame(to, b"", header_block(headers), body)])

    async def api(self, subject: str, body: Mapping[str, Any] | None = None, *, seconds: float = 5.0) -> dict[str, Any]:
        """One request to JetStream's API (``$JS.API.`` is put in front). Raises ApiError, or Unavailable."""
        try:
            got = await self.client.request(f"$JS.API.{subject}", b"" if body is None else to_json(body), timeout=seconds)
        except (nats.errors.Error, TimeoutError) as error:
            raise Unavailable(f"JetStream did not answer {subject.rsplit('.', 2)[0]}: {type(error).__name__}") from None
        answer = from_json(got.data)
        if "error" in answer:
            raise ApiError(int(answer["error"].get("err_code", 0)), str(answer["error"].get("description", "refused")))
        return answer

    async def open_pull(
        self, stream: str, consumer: str, deliver: Callable[[Delivery], None], buffered: Callable[[], int], *, batch: int
    ) -> Pull:
        """Start pulling a consumer; `deliver` is called for each message as it comes. The caller asks again when it has made room."""
        pull = Pull(self, stream, consumer, "", deliver, buffered, batch=batch)
        pull.inbox = await self.open_inbox(pull.on_message)
        self.reconnected.append(pull.restart)
        self._checks[pull] = pull.check
        pull.ask()
        return pull

    async def pull(self, durable: Durable, *, batch: int = 50) -> AsyncIterator[list[Delivery]]:
        """Batches of a durable, whatever is waiting, for a consumer without units; each delivery is acknowledged by its `ack`."""
        buffer: list[Delivery] = []
        came = asyncio.Event()

        def deliver(delivery: Delivery) -> None:
            buffer.append(delivery)
            came.set()

        pull = await self.open_pull(durable.stream, durable.name, deliver, lambda: len(buffer), batch=batch)
        try:
            while True:
                await came.wait()
                came.clear()
                found, buffer[:] = list(buffer), []
                pull.ask()
                yield found
        finally:
            self.close_pull(pull)

    def close_pull(self, pull: Pull) -> None:
        """Ask for nothing more."""
        pull.stop()
        self._checks.pop(pull, None)
        with contextlib.suppress(ValueError):
            self.reconnected.remove(pull.restart)

    async def read(
        self, stream: str, filters: Sequence[str], *, after: int | None = None, is_state: bool = False, batch: int = 200
    ) -> AsyncIterator[list[Delivery]]:
        """Follow a stream without a durable, in order, from `after` (a sequence; 0: from the beginning) or from now on.

        `is_state`: the last message of each subject first. Never ends by itself; close it.
        """
        buffer: list[Delivery] = []
        came = asyncio.Event()

        def deliver(delivery: Delivery) -> None:
            buffer.append(delivery)
            came.set()

        reader = Reader(self, stream, filters, deliver, lambda: len(buffer), after=after, is_state=is_state, batch=batch)
        await reader.open()
        try:
            while True:
                await came.wait()
                came.clear()
                found, buffer[:] = list(buffer), []
                reader.ask()
                yield found
        finally:
            await reader.close()

    def check_with(self, owner: object, check: Callable[[], None]) -> None:
        """Call `check` about once a second, until :meth:`uncheck`."""
        self._checks[owner] = check

    def uncheck(self, owner: object) -> None:
        """No longer check for this owner."""
        self._checks.pop(owner, None)

    async def _check(self) -> None:
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            if self.lost_at is not None and asyncio.get_running_loop().time() - self.lost_at > self._lost_seconds:
                self._on_fatal(Fatal(EXIT_LOST, "the bus is lost"))
                return
            for check in list(self._checks.values()):
                check()

    async def on_error(self, error: Exception) -> None:
        """nats-py tells of an error. Permission violations come this way only, and no exception is raised anywhere else."""
        text = str(error)
        if "permissions violation" in text.lower():
            self._log.error("bus_denied", detail=text[:500])
            if 'publish to "_inbox' not in text.lower():  # a reply that came too late for its permission: the asker has gone
                self._on_fatal(Fatal(EXIT_FORBIDDEN, text[:500]))
        elif "authorization" in text.lower():
            self._on_fatal(Fatal(EXIT_FORBIDDEN, text[:500]))
        else:
            self._log.warning("bus_error", detail=f"{type(error).__name__}: {text[:500]}")

    async def on_disconnected(self) -> None:
        """The connection is away."""
        if not self.client.closing and self.lost_at is None:
            self.lost_at = asyncio.get_running_loop().time()
            self._log.warning("bus_away")

    async def on_reconnected(self) -> None:
        """The connection is back: repeat what may have been lost."""
        self.lost_at = None
        self._log.info("bus_back")
        for again in list(self.reconnected):
            again()

    async def on_closed(self) -> None:
        """The connection is closed; nobody but :meth:`close` should do that."""
        if not self.client.closing:
            self._on_fatal(Fatal(EXIT_LOST, "the bus closed the connection"))

    async def close(self) -> None:
        """Flush what was posted and close."""
        if self._checker is not None:
            self._checker.cancel()
        self.client.closing = True
        with contextlib.suppress(nats.errors.Error, TimeoutError, OSError):
            if self.is_connected:
                await self.client.flush(2)
            await self.client.close()


async def connect(settings: BusSettings, *, name: str, on_fatal: Callable[[Fatal], None] | None = None) -> Bus:
    """Connect, trying for `bus_lost_seconds`. Raises Fatal where there is no bus or it does not know us.

    `on_fatal` hears of a denied subject and of a connection that is lost for good; without it the process exits there and then.
    """
    prefix = settings.nats_inbox_prefix or (inbox_of(settings.nats_user) if settings.nats_user else f"_INBOX.{name}")
    deadline = asyncio.get_running_loop().time() + settings.bus_lost_seconds
    while True:
        client = LeanClient()
        bus = Bus(client, name, prefix, settings.bus_lost_seconds, on_fatal or _exit)
        try:
            await _connect_once(client, bus, settings, prefix)
            break
        except (OSError, nats.errors.Error, TimeoutError) as error:
            await client.abandon()
            if "authorization" in str(error).lower():
                raise Fatal(EXIT_FORBIDDEN, f"the bus does not let user {settings.nats_user!r} in with this password") from None
            if asyncio.get_running_loop().time() > deadline:
                raise Fatal(EXIT_LOST, f"no bus at {settings.nats_url}: {type(error).__name__}") from None
            await asyncio.sleep(RECONNECT_SECONDS)
    await bus.open()
    return bus


async def _connect_once(client: LeanClient, bus: Bus, settings: BusSettings, prefix: str) -> None:
    await client.connect(
        settings.nats_url.split(","),
        name=bus.name,
        inbox_prefix=prefix,
        error_cb=bus.on_error,
        disconnected_cb=bus.on_disconnected,
        reconnected_cb=bus.on_reconnected,
        closed_cb=bus.on_closed,
        connect_timeout=CONNECT_SECONDS,
        reconnect_time_wait=RECONNECT_SECONDS,
        max_reconnect_attempts=-1,
        allow_reconnect=False,
        pending_size=64 * 1024 * 1024,
        user=settings.nats_user or None,
        password=settings.nats_password.get_secret_value() or None,
    )
    # From here on nats-py reconnects by itself, for ever; the first connect had to fail at once to be told why.
    client.options["allow_reconnect"] = True


def _exit(fatal: Fatal) -> None:
    os._exit(fatal.code)
