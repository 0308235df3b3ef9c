"""Following a stream without a durable: an own ephemeral consumer, in order, made again from where it was when it is lost.

State streams (last per subject) are read from the beginning; `is_caught_up` turns true when all that lay there has been delivered.
An ordinary consumer and no KV watch: a watch is blind for about 16 s after a restart of the server.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from gpuyard_runtime.faults import RuntimeFault
from gpuyard_runtime.logs import log_of
from gpuyard_runtime.pull import Pull
from gpuyard_runtime.work import Delivery, nothing

INACTIVE_SECONDS = 60
RETRY_SECONDS = 1.0


class ReaderBus(Protocol):
    """What a reader needs of the bus."""

    name: str
    reconnected: list[Callable[[], None]]

    async def api(self, subject: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """One request to JetStream's API."""
        ...

    async def open_pull(
        self, stream: str, consumer: str, deliver: Callable[[Delivery], None], buffered: Callable[[], int], *, batch: int
    ) -> Pull:
        """Start pulling a consumer."""
        ...

    def close_pull(self, pull: Pull) -> None:
        """Ask for nothing more."""
        ...

    def check_with(self, owner: object, check: Callable[[], None]) -> None:
        """Call `check` about once a second."""
        ...

    def uncheck(self, owner: object) -> None:
        """No longer check."""
        ...


class Reader:
    """One follower. `problem` is why nothing can come now, or None."""

    def __init__(
        self,
        bus: ReaderBus,
        stream: str,
        filters: Sequence[str],
        deliver: Callable[[Delivery], None],
        buffered: Callable[[], int],
        *,
        after: int | None,
        is_state: bool,
        batch: int,
    ) -> None:
        self.stream = stream
        self.is_caught_up = False
        self.problem: str | None = "not read yet"
        self._bus = bus
        self._filters = list(filters)
        self._deliver = deliver
        self._buffered = buffered
        self._batch = batch
        self._after = after
        self._is_state = is_state
        self._consumer = ""
        self._pull: Pull | None = None
        self._opening: asyncio.Task[None] | None = None
        self._log = log_of("reader")

    async def open(self) -> None:
        """Make the consumer and start. Raises Unavailable or ApiError."""
        await self._open()
        self._bus.reconnected.append(self._reopen)
        self._bus.check_with(self, self._check)

    async def _open(self) -> None:
        name = f"{self._bus.name}-{secrets.token_hex(8)}"
        made = await self._bus.api(f"CONSUMER.CREATE.{self.stream}.{name}", {"stream_name": self.stream, "config": self._config(name)})
        self._consumer = name
        if self._after is None and not self._is_state:
            self._after = int(made["delivered"]["stream_seq"])  # from now on; a consumer made again goes on from here
        self.is_caught_up = self.is_caught_up or int(made.get("num_pending", 0)) == 0
        self.problem = None
        self._pull = await self._bus.open_pull(self.stream, name, self._take, self._buffered, batch=self._batch)

    def _config(self, name: str) -> dict[str, Any]:
        config: dict[str, Any] = {
            "name": name,
            "ack_policy": "none",
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": INACTIVE_SECONDS * 1_000_000_000,
            "max_deliver": 1,
            "replay_policy": "instant",
        }
        config |= {"filter_subject": self._filters[0]} if len(self._filters) == 1 else {"filter_subjects": self._filters}
        if self._after is not None:
            return config | {"deliver_policy": "by_start_sequence", "opt_start_seq": self._after + 1}
        return config | {"deliver_policy": "last_per_subject" if self._is_state else "new"}

    def _take(self, delivery: Delivery) -> None:
        pull = self._pull
        if delivery.lane != self._consumer:
            return  # the last words of a consumer that was given up
        self._after = delivery.sequence
        delivery.ack = delivery.touch = nothing  # such a consumer takes no acknowledgements, and we may not publish any
        self._deliver(delivery)
        if pull is not None and pull.pending == 0:
            self.is_caught_up = True

    def ask(self) -> None:
        """Ask for more, now that there is room."""
        if self._pull is not None:
            self._pull.ask()

    def _check(self) -> None:
        if self._pull is not None and self._pull.missing is not None:
            self._reopen()

    def _reopen(self) -> None:
        """The consumer may be gone: make a new one that goes on after the last message."""
        if self._opening is None or self._opening.done():
            self._opening = asyncio.create_task(self._open_again())

    async def _open_again(self) -> None:
        await self._drop()
        while True:
            try:
                await self._open()
                return
            except RuntimeFault as error:
                self.problem = f"{self.stream} cannot be read: {error}"
                self._log.warning("reader_waits", stream=self.stream, detail=str(error))
                await asyncio.sleep(RETRY_SECONDS)

    async def _drop(self) -> None:
        old, self._consumer = self._consumer, ""
        if self._pull is not None:
            self._bus.close_pull(self._pull)
            self._pull = None
        if old:
            with contextlib.suppress(RuntimeFault):
                await self._bus.api(f"CONSUMER.DELETE.{self.stream}.{old}")

    async def close(self) -> None:
        """Stop, and delete the consumer."""
        if self._opening is not None:
            self._opening.cancel()
        self._bus.uncheck(self)
        with contextlib.suppress(ValueError):
            self._bus.reconnected.remove(self._reopen)
        await self._drop()
