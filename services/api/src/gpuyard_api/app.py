"""The composition root: the service for the runtime and, in the same process, the HTTP server over it.

One process: it is the only writer of api's tables (the runtime's leader lock) and serves all requests. Writes of requests that come
at once share a unit of work; reads go beside it, by SQL or from memory.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any, TypeVar

import uvicorn
from gpuyard_contracts import topology
from gpuyard_contracts.envelope import Ask, Envelope, Malformed, Payload, Shape, decode
from gpuyard_contracts.messages.monitor import IncidentClosedV1, IncidentOpenedV1
from gpuyard_contracts.messages.node import LogLinesV1
from gpuyard_contracts.messages.placement import NodeStateV1
from gpuyard_contracts.messages.scheduler import JobQueuedV1
from gpuyard_contracts.subjects import wildcard
from gpuyard_runtime.bus import ApiError
from gpuyard_runtime.faults import EXIT_CONFIG, Fatal, Unavailable
from gpuyard_runtime.running import Running
from gpuyard_runtime.service import Handler, Service, Tx
from gpuyard_runtime.work import Delivery

from gpuyard_api import acts, admin_file, handlers, ticks
from gpuyard_api.http.context import Yard
from gpuyard_api.http.heads import BoundedHeads
from gpuyard_api.hub import Hub
from gpuyard_api.mapping import JOB_STATES
from gpuyard_api.metrics import HttpMetrics, StoreGauges
from gpuyard_api.reads import SqlReads
from gpuyard_api.settings import ApiSettings
from gpuyard_api.store import ApiStore
from gpuyard_api.web import web

T = TypeVar("T")

LOG_PAUSE_SECONDS = 1.0
STOP_SECONDS = 5
KEEP_ALIVE_SECONDS = 75
BACKLOG = 1024


def _keep(event: Envelope[Any], tx: Tx[ApiStore]) -> None:
    handlers.on_told(event, tx)


def handled() -> dict[type[Payload], Handler[ApiStore]]:
    """What is done with each event that comes through api's durables."""
    found: dict[type[Payload], Handler[ApiStore]] = {
        kind: _keep for place in topology.durables_of("api") for kind in topology.kinds_of(place)
    }
    found |= dict.fromkeys(JOB_STATES, handlers.on_job_told)
    found[JobQueuedV1] = handlers.on_job_queued
    found[IncidentOpenedV1] = handlers.on_incident_opened
    found[IncidentClosedV1] = handlers.on_incident_closed
    return found


def make_service(hub: Hub, prune: ticks.Prune) -> Service[ApiStore]:
    """The service as data."""
    return Service(
        name="api",
        store=ApiStore,
        migrations=files("gpuyard_api") / "migrations",
        schema="api",
        handlers=handled(),
        hears={NodeStateV1: handlers.on_node_state},
        ticks=ticks.Ticks(prune).all(),
        after_unit=handlers.Broadcast(hub).after_unit,
        on_load=ticks.on_load,
        gauges=StoreGauges(hub).read,
    )


class RunningEngine:
    """The engine over the running process; see :class:`gpuyard_api.ports.Engine`."""

    def __init__(self, running: Running[ApiStore]) -> None:
        self._running = running

    @property
    def store(self) -> ApiStore:
        """What is in memory."""
        return self._running.store

    async def act(self, fn: Callable[[Tx[ApiStore]], T], *, traceparent: str | None = None) -> T:
        """Run a function in a unit."""
        return await self._running.act(fn, traceparent=traceparent)

    async def ask(self, ask: Ask, *, seconds: float) -> Shape:
        """Ask another service."""
        return await self._running.bus.ask(ask, seconds=seconds)

    async def logs(self, tenant: str, job_id: str, rank: int | None, *, is_following: bool) -> AsyncGenerator[Sequence[LogLinesV1]]:
        """What a job wrote."""
        subject = wildcard(LogLinesV1.SUBJECT, tenant=tenant, job_id=job_id, rank="*" if rank is None else str(rank))
        missing = await self._lying(subject)
        if not missing and not is_following:
            return
        async with contextlib.aclosing(self._running.bus.read("LOGS", [subject], after=0)) as batches:  # pyright: ignore[reportArgumentType]  # an async generator
            waiting = asyncio.ensure_future(anext(batches))
            try:
                while is_following or missing > 0:
                    done, _ = await asyncio.wait({waiting}, timeout=LOG_PAUSE_SECONDS)
                    if done:
                        deliveries = waiting.result()
                        missing -= len(deliveries)
                        yield _log_lines(deliveries)
                        waiting = asyncio.ensure_future(anext(batches))
                    elif is_following:
                        yield ()
                    else:
                        return  # what was counted has expired meanwhile
            finally:
                waiting.cancel()
                await asyncio.wait({waiting})

    async def _lying(self, subject: str) -> int:
        """How many messages lie in the stream under a subject. Raises Unavailable."""
        try:
            found = await self._running.bus.api("STREAM.INFO.LOGS", {"subjects_filter": subject}, seconds=3.0)
        except ApiError as error:
            raise Unavailable(f"bus: {error}") from error
        return sum((found["state"].get("subjects") or {}).values())

    def now(self) -> datetime:
        """The present instant."""
        return datetime.now(UTC)

    def complaints(self) -> list[str]:
        """Why the service is not ready."""
        return [f"{part}: {reason}" for part, reason in sorted(self._running.health.reasons().items())]


def _log_lines(deliveries: Sequence[Delivery]) -> list[LogLinesV1]:
    """The messages that can be read; a node that writes others is not the reader's concern."""
    found: list[LogLinesV1] = []
    for each in deliveries:
        with contextlib.suppress(Malformed):
            data = decode(each.subject, each.headers, each.body, sequence=each.sequence, arrived=each.arrived).data
            if isinstance(data, LogLinesV1):
                found.append(data)
    return found


class Server(uvicorn.Server):
    """uvicorn without a hand on signals: the runtime has them, and says when to stop. `on_listening` is called once requests are taken."""

    def __init__(self, config: uvicorn.Config, on_listening: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_listening = on_listening

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen."""
        await super().startup(sockets)
        self._on_listening()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave signals alone."""
        yield


class Api:
    """The service and the server that go together."""

    def __init__(self) -> None:
        self.hub = Hub()
        self._reads: SqlReads | None = None

    def service(self, settings: ApiSettings) -> Service[ApiStore]:
        """The service, for the runtime."""
        return make_service(self.hub, self._prune)

    async def _prune(self, before: datetime) -> None:
        if self._reads is not None:
            await self._reads.prune(before)

    async def serve(self, running: Running[ApiStore]) -> None:
        """Serve HTTP beside the running service, until cancelled; then streams end and open requests are finished."""
        settings = running.settings
        assert isinstance(settings, ApiSettings)
        running.health.tell("http", "not listening yet")
        await _let_first_operator_in(running, settings)
        self._reads = SqlReads(running.db)
        yard = Yard(RunningEngine(running), self._reads, self.hub)
        metrics = HttpMetrics(running.metrics.registry)
        app = web(yard, observe=metrics.observe, max_body_bytes=settings.max_body_bytes)
        listening = _listen(settings)
        server = Server(
            uvicorn.Config(
                app,
                http=BoundedHeads,
                log_config=None,
                access_log=False,
                lifespan="off",
                ws="none",
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=STOP_SECONDS,
                backlog=BACKLOG,
            ),
            lambda: running.health.tell("http", None),
        )
        serving = asyncio.ensure_future(server.serve([listening]))
        try:
            await asyncio.shield(serving)
        except asyncio.CancelledError:
            self.hub.close()
            server.should_exit = True
            await serving
            raise


async def _let_first_operator_in(running: Running[ApiStore], settings: ApiSettings) -> None:
    """Make the first operator's token, unless there is an operator. Raises Fatal where its file cannot be kept to its owner."""
    if running.store.live_admins():
        return
    try:
        token = admin_file.first_token(settings.admin_token_file)
    except (OSError, admin_file.Exposed) as error:
        raise Fatal(EXIT_CONFIG, f"the operator's token: {error}") from None
    await running.act(acts.first_operator(token))


def _listen(settings: ApiSettings) -> socket.socket:
    """The listening socket; its port is written to the file that was asked for. Raises Fatal."""
    family = socket.AF_INET6 if ":" in settings.api_host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.api_host, settings.api_port))
    except OSError as error:
        listening.close()
        raise Fatal(EXIT_CONFIG, f"cannot listen on {settings.api_host} port {settings.api_port}: {error.strerror}") from None
    if settings.api_port_file is not None:
        half = settings.api_port_file.with_name(f".{settings.api_port_file.name}.half")
        half.write_text(str(listening.getsockname()[1]))
        half.replace(settings.api_port_file)
    return listening
