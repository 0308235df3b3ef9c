"""A service, running: started in an order that loses nothing, stopped so that nothing is cut off.

Start: health server, migrations, bus, leadership, the store and what was left in the outbox, state streams up to their end, then
durables, asks and ticks. Stop (SIGTERM, SIGINT): nothing new is taken, the open unit commits, the outbox empties, acknowledgements are
flushed, the lock is freed. Exit codes are in :mod:`gpuyard_runtime.faults`; whatever cannot be waited for ends the process, and its
supervisor starts it again.
"""

import asyncio
import contextlib
import gc
import signal
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Generic, NoReturn, TypeVar
from uuid import uuid4

import asyncpg
import uvloop
from pydantic import ValidationError

from gpuyard_runtime import logs
from gpuyard_runtime.bus import Bus, connect
from gpuyard_runtime.clock import Clock, SystemClock
from gpuyard_runtime.database import make_pool, meaning
from gpuyard_runtime.dispatch import Dispatcher
from gpuyard_runtime.faults import EXIT_BUG, EXIT_CONFIG, EXIT_FENCED, EXIT_OK, Fatal, Fenced, Unavailable
from gpuyard_runtime.health import Health, HealthServer
from gpuyard_runtime.intake import Intake
from gpuyard_runtime.leader import Leadership
from gpuyard_runtime.loop import Loop
from gpuyard_runtime.metrics import Metrics
from gpuyard_runtime.migrate import MigrationRefused, migrate
from gpuyard_runtime.outbox import Relay
from gpuyard_runtime.postgres import PostgresUnits
from gpuyard_runtime.service import Reading, Service, Tx
from gpuyard_runtime.settings import ServiceSettings
from gpuyard_runtime.store import Store
from gpuyard_runtime.watch import ServiceWatch
from gpuyard_runtime.work import Act

if TYPE_CHECKING:
    from gpuyard_runtime.traces import Spans

S = TypeVar("S", bound=Store)
T = TypeVar("T")

GC_THRESHOLDS = (20_000, 20, 20)
"""A unit makes thousands of objects that it drops again: looked through at every 700th, as is usual, they cost a tenth of the time. What is
there when the service is ready (code, rows) is taken out of the search."""

INBOX_DAYS = 36
"""Longer than any stream keeps a message (35 days), so that nothing can come again whose key is forgotten."""
PRUNE_SECONDS = 600.0
RETRY_SECONDS = 0.5


def new_id() -> str:
    """A random id, as a uuid."""
    return str(uuid4())


class Running(Generic[S]):
    """One running service. Made by :func:`run`; `beside` functions get it when the service works."""

    def __init__(self, service: Service[S], settings: ServiceSettings, clock: Clock | None = None) -> None:
        self.service = service
        self.settings = settings
        self.health = Health()
        self.metrics = Metrics(service.name)
        self._clock = clock or SystemClock()
        self._log = logs.log_of("running")
        self._dsn = settings.postgres_dsn.get_secret_value()
        self._server = HealthServer(self.health, self._render)
        self._spans = _spans_to(settings.otlp_endpoint, service.name)
        self._effects: set[asyncio.Task[None]] = set()
        self._loop_task: asyncio.Task[None] | None = None
        self._beside_task: asyncio.Task[None] | None = None
        self._prune_task: asyncio.Task[None] | None = None
        self._stopped: asyncio.Future[Fatal | None] | None = None
        self._bus: Bus | None = None
        self._db: asyncpg.Pool | None = None
        self._leadership: Leadership | None = None
        self._units: PostgresUnits[S] | None = None
        self._relay: Relay | None = None
        self._loop: Loop[S] | None = None
        self._intake: Intake[S] | None = None
        self.health.tell("process", "starting")

    @property
    def store(self) -> S:
        """The store as the last committed unit left it: to read, not to change."""
        assert self._units is not None
        return self._units.store

    @property
    def db(self) -> asyncpg.Pool:
        """Connections for reading beside the units."""
        assert self._db is not None
        return self._db

    @property
    def bus(self) -> Bus:
        """The connection to the bus."""
        assert self._bus is not None
        return self._bus

    @property
    def port(self) -> int:
        """Where health and metrics are served."""
        return self._server.port

    async def act(self, fn: Callable[[Tx[S]], T], *, traceparent: str | None = None) -> T:
        """Run `fn` in a unit and return what it returned, after the commit. Calls that wait at the same time share a unit.

        Raises what `fn` raises (its changes are then undone), and Unavailable where the database is away or the service stops.
        """
        if self._loop is None or self.health.is_draining:
            raise Unavailable("the service is not running")
        waiting: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def done(value: T) -> None:
            if not waiting.done():
                waiting.set_result(value)

        def failed(error: BaseException) -> None:
            if not waiting.done():
                waiting.set_exception(error)

        self._loop.put(Act(fn, new_id(), traceparent, done, failed))
        return await waiting

    def reading(self) -> Reading[S]:
        """What an inquiry may use, at this instant."""
        return Reading(self.store, self._db, self._clock.now())

    def fail(self, fatal: Fatal) -> None:
        """The process cannot go on."""
        if self._stopped is not None and not self._stopped.done():
            self._stopped.set_result(fatal)

    def stop(self) -> None:
        """Drain and end, as SIGTERM does."""
        if self._stopped is not None and not self._stopped.done():
            self._stopped.set_result(None)

    async def serve(self, beside: Callable[["Running[S]"], Awaitable[None]] | None) -> int:
        """Start, work until stopped, drain. Returns the exit code."""
        self._stopped = asyncio.get_running_loop().create_future()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self.stop)
        settings = self.settings
        await self._server.start(settings.http_host, settings.http_port, settings.http_port_file)
        starting = asyncio.create_task(self._start(beside))
        try:
            await asyncio.wait([starting, self._stopped], return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
            else:
                starting.cancel()
            fatal = await self._stopped
        except Fatal as error:
            fatal = error
        except Exception:
            self._log.exception("failed")
            fatal = Fatal(EXIT_BUG, "an error that nobody foresaw")
        if fatal is not None:
            self._log.error("ends", code=fatal.code, detail=str(fatal))
        await self._drain(is_orderly=fatal is None)
        return EXIT_OK if fatal is None else fatal.code

    async def _start(self, beside: Callable[["Running[S]"], Awaitable[None]] | None) -> None:
        service, settings = self.service, self.settings
        await self._migrate()
        self._bus = bus = await connect(settings, name=service.name, on_fatal=self.fail)
        epoch = None
        if service.leader:
            self._leadership = Leadership(self._dsn, service.schema, service.name, self.health.teller("leadership"), self.fail)
            epoch = await self._leadership.acquire()
        self._db = await make_pool(self._dsn, service.schema, service.name, settings.postgres_pool_size)
        await self._assemble(bus, epoch)
        assert self._loop is not None
        assert self._intake is not None
        self._loop_task = asyncio.create_task(self._run_loop(self._loop))
        if service.on_load is not None:
            await self._load(service.on_load)
        await self._intake.open()
        self._loop.start_ticks()
        if beside is not None:
            self._beside_task = asyncio.create_task(self._run_beside(beside))
            await asyncio.sleep(0)  # so that it has said why it is not ready, if it has to, before the process is
        if gc.get_threshold() == GC_THRESHOLDS:  # the process is the service's own, see `main`
            gc.collect()
            gc.freeze()
        self.health.tell("process", None)
        self._log.info("works", port=self.port, epoch=epoch)

    async def _migrate(self) -> None:
        """Migrations, as soon as the database can be reached."""
        while True:
            try:
                await migrate(self._dsn, self.service.schema, self.service.name, self.service.migrations)
                self.health.tell("database", None)
                return
            except MigrationRefused as error:
                raise Fatal(EXIT_CONFIG, str(error)) from error
            except Exception as error:
                understood = meaning(error)
                if not isinstance(understood, Unavailable):
                    raise understood from error
                self.health.tell("database", str(understood))
                await asyncio.sleep(RETRY_SECONDS)

    async def _assemble(self, bus: Bus, epoch: int | None) -> None:
        service = self.service
        relay = self._relay = Relay(bus, self.health.teller("outbox"))
        relay.reply_to(await bus.open_inbox(relay.on_reply, is_wide=True))
        bus.reconnected.append(relay.resend)
        bus.check_with(relay, relay.check)
        units = self._units = PostgresUnits(
            service.store, self._dsn, service.schema, service.name, self._clock, relay, epoch=epoch, forgets=service.forgets
        )
        while True:
            try:
                await units.open()
                break
            except Unavailable as error:
                self.health.tell("database", str(error))
                await asyncio.sleep(RETRY_SECONDS)
        self.health.tell("database", None)
        watch = ServiceWatch(self.metrics, self.health, self._clock, self._spans)
        dispatcher = Dispatcher(service, units, relay, self._clock, new_id, watch, self._spawn)
        self._loop = Loop(service, dispatcher, self.health, self.metrics, new_id, unit_size=self.settings.unit_size, probe=units.probe)
        self._intake = Intake(service, bus, self._loop, self.health, self.reading, self.fail, new_id)
        bus.check_with(self, self._every_second)
        if service.gauges is not None:
            gauges = service.gauges
            self.metrics.add_gauges(lambda: gauges(self.store))
        self._prune_task = asyncio.create_task(self._prune())

    async def _load(self, on_load: Callable[[Tx[S]], None]) -> None:
        """The service's first unit; nothing is handled before it has committed. Raises what it raises."""
        while True:
            try:
                await self.act(on_load)
                return
            except Unavailable:  # said by the loop, which also does the waiting
                await asyncio.sleep(RETRY_SECONDS)

    async def _run_loop(self, loop: Loop[S]) -> None:
        try:
            await loop.run()
        except Fatal as error:
            self.fail(error)
        except Fenced as error:
            self.fail(Fatal(EXIT_FENCED, str(error)))
        except Exception:
            self._log.exception("loop_failed")
            self.fail(Fatal(EXIT_BUG, "the loop failed"))

    async def _run_beside(self, beside: Callable[["Running[S]"], Awaitable[None]]) -> None:
        try:
            await beside(self)
            self.stop()
        except Fatal as error:
            self.fail(error)
        except Exception:
            self._log.exception("beside_failed")
            self.fail(Fatal(EXIT_BUG, "what runs beside the service failed"))

    def _spawn(self, effect: Callable[[], Awaitable[None]]) -> None:
        """Start an effect after a commit; nobody waits for it."""

        async def guarded() -> None:
            try:
                await effect()
            except Exception as error:  # best effort, as `Tx.after_commit` says
                self._log.warning("effect_failed", exc_info=error)

        task = asyncio.create_task(guarded())
        self._effects.add(task)
        task.add_done_callback(self._effects.discard)

    def _every_second(self) -> None:
        self.health.tell("bus", None if self.bus.is_connected else "the bus is away")
        if self._relay is not None and self._relay.has_done and self._units is not None and self._loop is not None:
            self._loop.do_between(self._units.sweep)

    async def _prune(self) -> None:
        """Forget old inbox keys, again and again."""
        while True:
            await asyncio.sleep(PRUNE_SECONDS)
            if self._loop is not None:
                self._loop.do_between(self._prune_some)

    async def _prune_some(self) -> None:
        """Little by little, each between two units, until no old one is left: as many are forgotten as have come."""
        assert self._units is not None
        assert self._loop is not None
        if await self._units.prune(self._clock.now() - timedelta(days=INBOX_DAYS)):
            self._loop.do_between(self._prune_some)

    def _render(self) -> bytes:
        self.metrics.ready.set(1 if self.health.is_ready else 0)
        if self._relay is not None:
            self.metrics.unpublished.set(self._relay.unpublished)
        if self._loop is not None:
            self.metrics.waiting.set(self._loop.waiting)
        return self.metrics.render()

    async def _drain(self, *, is_orderly: bool) -> None:
        """Stop taking, finish what was begun, and let go of everything. Without order (fatal) nothing is waited for."""
        self.health.is_draining = True
        if self._beside_task is not None:
            self._beside_task.cancel()
            await asyncio.wait([self._beside_task], timeout=self.settings.drain_seconds)
        if self._intake is not None:
            await self._intake.close()
        if self._loop is not None:
            self._loop.stop()
        if self._loop_task is not None:
            if is_orderly:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self.settings.drain_seconds):
                        await self._finish(self._loop_task)
            self._loop_task.cancel()
        if self._prune_task is not None:
            self._prune_task.cancel()
        await self._close()

    async def _finish(self, loop_task: asyncio.Task[None]) -> None:
        """Wait for the last unit, for effects, and for the streams to have everything."""
        await loop_task
        await asyncio.gather(*self._effects)
        if self._relay is not None and self._units is not None:
            await self._relay.idle()
            with contextlib.suppress(Unavailable):
                await self._units.sweep()

    async def _close(self) -> None:
        for part in (self._bus, self._units, self._leadership):
            if part is not None:
                with contextlib.suppress(Exception):
                    await part.close()
        if self._db is not None:
            self._db.terminate()
        if self._spans is not None:
            self._spans.close()
        await self._server.close()
        self._log.info("stopped")


def _spans_to(endpoint: str, service: str) -> "Spans | None":
    if not endpoint:
        return None
    from gpuyard_runtime.traces import Spans  # OpenTelemetry is slow to import, and most services have no collector

    return Spans(service, endpoint)


async def run(
    service: Service[S],
    settings: ServiceSettings,
    *,
    beside: Callable[[Running[S]], Awaitable[None]] | None = None,
    clock: Clock | None = None,
) -> int:
    """Run a service until it is stopped; returns the exit code. `beside` runs next to it, once it works, and is cancelled at the drain."""
    logs.configure(service.name, settings.log_level)
    return await Running(service, settings, clock).serve(beside)


SettingsT = TypeVar("SettingsT", bound=ServiceSettings)


def main(
    service: Service[S] | Callable[[SettingsT], Service[S]],
    settings_class: type[SettingsT],
    *,
    beside: Callable[[Running[S]], Awaitable[None]] | None = None,
) -> NoReturn:
    """The whole of a service's ``__main__``: read the settings, run, exit. `service` may be made from the settings."""
    try:
        settings = settings_class()
    except ValidationError as error:
        for found in error.errors(include_url=False, include_input=False):
            name = "_".join(str(part) for part in found["loc"]).upper()
            sys.stderr.write(f"setting GPUYARD_{name}: {found['msg']}\n")
        sys.exit(EXIT_CONFIG)
    made = service if isinstance(service, Service) else service(settings)
    gc.set_threshold(*GC_THRESHOLDS)
    sys.exit(uvloop.run(run(made, settings, beside=beside)))
