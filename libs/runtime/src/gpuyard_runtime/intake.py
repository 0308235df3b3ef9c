"""Where a service's work comes from: readers, durables, asks and inquiries, opened in order and watched.

State streams are read to their end before anything is handled, so that no decision is made on half of the state. A durable that exists no
longer, or one that has messages of which none comes, makes the service not ready; one that stays away ends the process.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from gpuyard_contracts.envelope import Ask, Malformed, Payload, Shape
from gpuyard_contracts.subjects import wildcard
from gpuyard_contracts.topology import Durable, durables_of, stream_of

from gpuyard_runtime.asks import read_ask, refusal_of, write_answer, write_refusal
from gpuyard_runtime.bus import ApiError, Bus
from gpuyard_runtime.database import meaning
from gpuyard_runtime.faults import EXIT_CONFIG, Fatal, Refused, RuntimeFault, Unavailable
from gpuyard_runtime.health import Health
from gpuyard_runtime.logs import log_of
from gpuyard_runtime.loop import Lane, Loop
from gpuyard_runtime.pull import Pull
from gpuyard_runtime.reader import Reader
from gpuyard_runtime.service import Answerer, Inquirer, Reading, Service
from gpuyard_runtime.store import Store
from gpuyard_runtime.wire import read_headers
from gpuyard_runtime.work import Asked

S = TypeVar("S", bound=Store)

RETRY_SECONDS = 0.5
CATCH_UP_POLL_SECONDS = 0.02
GONE_SECONDS = 30.0
"""How long a durable may be gone before the process ends: long enough for a bootstrap that is on its way."""
STILL_SECONDS = 10.0
"""How long nothing may come of a durable that has messages for us."""
MAX_WAITING_ASKS = 5000
MAX_INQUIRIES = 64
INQUIRY_SECONDS = 3.0
"""Nobody waits longer for an answer."""
LONGEST_BREATH_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Inquiry(Generic[S]):
    """A question that waits for its turn."""

    kind: type[Ask]
    inquirer: Inquirer[S]
    subject: str
    reply: bytes
    body: bytes
    at: float


class Intake(Generic[S]):
    """Opens and watches what feeds the loop."""

    def __init__(
        self,
        service: Service[S],
        bus: Bus,
        loop: Loop[S],
        health: Health,
        reading: Callable[[], Reading[S]],
        on_fatal: Callable[[Fatal], None],
        new_id: Callable[[], str],
    ) -> None:
        self._service = service
        self._bus = bus
        self._loop = loop
        self._health = health
        self._reading = reading
        self._on_fatal = on_fatal
        self._new_id = new_id
        self._readers: list[tuple[Reader, Lane]] = []
        self._pulls: list[tuple[Durable, Pull, Lane]] = []
        self._ends: list[Callable[[], Any]] = []
        self._gone_at: dict[str, float] = {}
        self._watcher: asyncio.Task[None] | None = None
        self._inquiries: deque[Inquiry[S]] = deque()
        self._inquirers: set[asyncio.Task[None]] = set()
        self._log = log_of("intake")

    async def open(self) -> None:
        """Open everything; returns when the service is fed. Raises Fatal."""
        await self._open_readers()
        durables = durables_of(self._service.name) if self._service.durables is None else self._service.durables
        for durable in durables if self._service.handlers else ():
            await self._open_durable(durable)
        for kind, answerer in self._service.asks.items():
            self._ends.append(await self._bus.answer(kind, partial(self._on_ask, kind, answerer), queue=self._service.name))
        for kind, inquirer in self._service.inquiries.items():
            self._ends.append(await self._bus.answer(kind, partial(self._on_inquiry, kind, inquirer), queue=self._service.name))
        self._watcher = asyncio.create_task(self._watch(durables))

    async def _open_readers(self) -> None:
        by_stream: dict[str, list[type[Payload]]] = {}
        for kind in self._service.hears:
            by_stream.setdefault(stream_of(kind.SUBJECT).name, []).append(kind)
        for stream, kinds in by_stream.items():
            is_state = stream_of(kinds[0].SUBJECT).is_state
            lane = self._loop.add_lane(f"reader {stream}", self._service.hears, is_guarded=False)
            reader = Reader(
                self._bus,
                stream,
                [wildcard(kind.SUBJECT) for kind in kinds],
                partial(self._loop.arrive, lane),
                partial(len, lane),
                after=None,
                is_state=is_state,
                batch=self._loop.unit_size,
            )
            lane.refill = reader.ask
            await self._until(f"reader {stream}", reader.open)
            self._readers.append((reader, lane))
        await self._catch_up()

    async def _catch_up(self) -> None:
        for reader, lane in self._readers:
            while not (reader.is_caught_up and not lane):
                self._health.tell(lane.name, reader.problem or "reading what is there")
                await asyncio.sleep(CATCH_UP_POLL_SECONDS)
            self._health.tell(lane.name, None)

    async def _open_durable(self, durable: Durable) -> None:
        lane = self._loop.add_lane(durable.name, self._service.handlers, is_guarded=True)
        if self._service.leader:
            await self._take_over(durable)
        deliver = partial(self._loop.arrive, lane)
        pull = await self._bus.open_pull(durable.stream, durable.name, deliver, partial(len, lane), batch=self._loop.unit_size)
        lane.refill = pull.ask
        self._pulls.append((durable, pull, lane))

    async def _take_over(self, durable: Durable) -> None:
        """Let the durable begin again where it was last acknowledged: what a dead process had taken comes now, in order, and not only
        after its acknowledgement time. We are its only consumer. A server that cannot do that delivers after that time."""
        try:
            await self._bus.api(f"CONSUMER.RESET.{durable.stream}.{durable.name}")
        except (ApiError, Unavailable) as error:
            self._log.info("not_reset", durable=durable.name, detail=str(error))

    async def _until(self, part: str, attempt: Callable[[], Any]) -> None:
        """Attempt until it works, saying why it does not."""
        while True:
            try:
                await attempt()
                self._health.tell(part, None)
                return
            except RuntimeFault as error:
                self._health.tell(part, str(error))
                await asyncio.sleep(RETRY_SECONDS)

    def _on_ask(self, kind: type[Ask], answerer: Answerer[S], subject: bytes, reply: bytes, headers: bytes, body: bytes) -> None:
        send = partial(self._reply, reply)
        try:
            ask = read_ask(kind, subject.decode("utf-8", "replace"), body)
        except Malformed as error:
            send(refusal_of(error))
            return
        if self._loop.in_front >= MAX_WAITING_ASKS:
            send(Refused("busy", "too many wait; try again"))
            return
        self._loop.put(Asked(ask, answerer, send, self._new_id(), _traceparent(headers)))

    def _on_inquiry(self, kind: type[Ask], inquirer: Inquirer[S], subject: bytes, reply: bytes, headers: bytes, body: bytes) -> None:
        if len(self._inquiries) >= MAX_INQUIRIES:
            self._reply(reply, Refused("busy", "too many wait; try again"))
            return
        self._inquiries.append(Inquiry(kind, inquirer, subject.decode("utf-8", "replace"), reply, body, asyncio.get_running_loop().time()))
        if len(self._inquirers) < self._service.inquiries_at_once:
            task = asyncio.create_task(self._inquire())
            self._inquirers.add(task)
            task.add_done_callback(self._inquirers.discard)

    async def _inquire(self) -> None:
        """Answer what is asked, one after the other, each in a turn of its own: the service's own work goes on in between for as long.

        Who has waited longer than anybody does has gone.
        """
        now = asyncio.get_running_loop().time
        while self._inquiries:
            asked = self._inquiries.popleft()
            if now() - asked.at > INQUIRY_SECONDS:
                continue
            began = now()
            await self._answer(asked)
            await asyncio.sleep(min(now() - began, LONGEST_BREATH_SECONDS))

    async def _answer(self, asked: "Inquiry[S]") -> None:
        try:
            ask = read_ask(asked.kind, asked.subject, asked.body)
            self._reply(asked.reply, await asked.inquirer(ask, self._reading()))
        except Exception as error:
            refused = refusal_of(meaning(error))
            if refused.reason == "internal":
                self._log.error("inquiry_failed", type=asked.kind.TYPE, exc_info=error)
            self._reply(asked.reply, refused)

    def _reply(self, to: bytes, answer: Shape | Refused) -> None:
        headers, body = write_refusal(answer) if isinstance(answer, Refused) else write_answer(answer)
        self._bus.reply(to, headers, body)

    async def _watch(self, durables: tuple[Durable, ...]) -> None:
        """Touch what is held; see that readers read and that durables exist and move."""
        pause = min([durable.ack_wait_seconds / 3 for durable in durables], default=STILL_SECONDS)
        while True:
            await asyncio.sleep(min(pause, STILL_SECONDS / 2))
            self._loop.touch()
            for reader, lane in self._readers:
                self._health.tell(f"{lane.name} open", reader.problem)
            for durable, pull, lane in self._pulls:
                await self._watch_durable(durable, pull, lane)

    async def _watch_durable(self, durable: Durable, pull: Pull, lane: Lane) -> None:
        part = f"durable {durable.name}"
        now = asyncio.get_running_loop().time()
        try:
            info = await self._bus.api(f"CONSUMER.INFO.{durable.stream}.{durable.name}")
        except ApiError as error:
            self._health.tell(part, f"gone: {error}")
            if now - self._gone_at.setdefault(part, now) > GONE_SECONDS:
                self._on_fatal(Fatal(EXIT_CONFIG, f"{part} of {durable.stream} is gone"))
            return
        except Unavailable:
            return  # the connection says so itself
        self._gone_at.pop(part, None)
        is_still = int(info.get("num_pending", 0)) > 0 and not lane and now - pull.moved_at > STILL_SECONDS
        self._health.tell(part, f"has {info['num_pending']} messages and none comes" if is_still else None)
        if is_still:
            pull.restart()

    async def close(self) -> None:
        """Take nothing more."""
        if self._watcher is not None:
            self._watcher.cancel()
        for end in self._ends:
            end()
        for _, pull, _ in self._pulls:
            self._bus.close_pull(pull)
        for reader, _ in self._readers:
            await reader.close()


def _traceparent(headers: bytes) -> str | None:
    return read_headers(headers).get("traceparent") if headers else None
