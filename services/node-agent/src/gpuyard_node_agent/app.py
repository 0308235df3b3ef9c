"""The composition root: starts the agent in an order that loses nothing, and stops it without touching what runs.

Start: folder lock, bus, journal, keeper, cards as they were last known, first heartbeat, then orders. Stop (SIGTERM): no new orders, what
is to be said goes out, the journal is closed; workloads live on with the keeper until the next agent adopts them or the lease ends.
"""

import asyncio
import contextlib
import fcntl
import gc
import os
import random
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from typing import Any, cast
from uuid import uuid4

from gpuyard_contracts.envelope import Malformed
from gpuyard_contracts.messages.asks import InjectFaultAskV1
from gpuyard_contracts.topology import node_durable
from gpuyard_runtime.asks import read_ask, refusal_of, write_answer, write_refusal
from gpuyard_runtime.bus import Bus, connect
from gpuyard_runtime.faults import EXIT_BUG, EXIT_CONFIG, EXIT_OK, Fatal
from gpuyard_runtime.health import Health, HealthServer
from gpuyard_runtime.logs import log_of
from gpuyard_runtime.work import Delivery

from gpuyard_node_agent import VERSION, handlers, intake, metrics, ticks
from gpuyard_node_agent.backends.kmsg import KernelLog
from gpuyard_node_agent.backends.simulated import SimulatedBackend
from gpuyard_node_agent.build import POLL_SECONDS, MachineClock, Parts, build
from gpuyard_node_agent.domain.faults import Fault
from gpuyard_node_agent.processes.procfs import close_memory
from gpuyard_node_agent.settings import AgentSettings

WAITING_SECONDS = 0.1
RETRY_SECONDS = 1.0
FLUSH_SECONDS = 1.0
FIRST_DISCOVERY_SECONDS = 10.0
"""How long a node that never knew its cards waits for them before it says what it is."""
HEARTBEAT_TIMEOUT_SECONDS = 1.5
JITTER = 0.1


class Agent:
    """One running agent."""

    def __init__(self, settings: AgentSettings) -> None:
        self.settings = settings
        self.health = Health()
        self._log = log_of("agent")
        self._stopped: asyncio.Future[Fatal | None] = asyncio.get_running_loop().create_future()
        self._tasks: list[asyncio.Task[None]] = []
        self._orders: asyncio.Task[None] | None = None
        self._bus: Bus | None = None
        self._parts: Parts | None = None
        self._kernel_log: KernelLog | None = None
        self._server: HealthServer | None = None
        self._lock = -1
        self._is_silent: Callable[[], bool] = lambda: False

    # -- life

    async def serve(self) -> int:
        """Start, work until stopped, drain. Returns the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self.stop)
        starting = asyncio.create_task(self._start())
        try:
            await asyncio.wait([starting, self._stopped], return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
            else:
                starting.cancel()
                await asyncio.gather(starting, return_exceptions=True)
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

    def stop(self) -> None:
        """Drain and end, as SIGTERM does."""
        if not self._stopped.done():
            self._stopped.set_result(None)

    def fail(self, fatal: Fatal) -> None:
        """The process cannot go on."""
        if not self._stopped.done():
            self._stopped.set_result(fatal)

    async def _start(self) -> None:
        settings = self.settings
        self.health.tell("process", "starting")
        close_memory()
        if settings.workload_uids is None and os.geteuid() == 0:
            self._log.warning("workloads_run_as_root", detail="set GPUYARD_WORKLOAD_UIDS to a range of user ids: each gets one of its own")
        self._take_folder()
        self._bus = bus = await connect(settings, name=f"node-agent-{settings.node_id}", on_fatal=self.fail)
        self._parts = parts = build(settings, bus, MachineClock())
        node, observer = parts.node, parts.observer
        numbers = metrics.registry(node, parts.outlet, parts.outputs, observer, parts.journal)
        self._server = HealthServer(self.health, numbers.render)
        await self._server.start(settings.http_host, settings.http_port, settings.http_port_file)
        handlers.resume(node)
        observer.recall()
        handlers.recover(await parts.runtime.open(lambda seen: handlers.on_seen(seen, node)), node)
        parts.workspace.find_old(set(parts.store.workloads))
        if parts.store.known_boot != node.boot_id:
            events = observer.say(Fault("booted", "booted"))
            parts.store.say(*events)
            for lane, event in events:
                parts.outlet.put(lane, event)
        await self._watch(bus, parts)
        gc.collect()
        gc.freeze()  # code and what the journal told: never looked through again
        self.health.tell("process", None)
        self._log.info("works", node=settings.node_id, backend=parts.backend.name, port=self._server.port)

    def _take_folder(self) -> None:
        folder = self.settings.state_dir
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = os.open(folder / "agent.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Fatal(EXIT_CONFIG, f"another agent works in {folder}") from None
        except OSError as error:
            raise Fatal(EXIT_CONFIG, f"the state folder {folder} cannot be used: {error.strerror}") from None

    async def _watch(self, bus: Bus, parts: Parts) -> None:
        """Everything that goes on while the agent lives; orders are taken once a heartbeat was answered."""
        settings, node, observer = self.settings, parts.node, parts.observer
        if isinstance(parts.backend, SimulatedBackend):
            simulated = parts.backend
            self._is_silent = lambda: simulated.is_silent
            await bus.answer(InjectFaultAskV1, self._answerer(bus, simulated), node_id=settings.node_id)
        else:
            self._kernel_log = KernelLog(observer.on_kernel_line, parts.store.observed.log_sequence)
            self._kernel_log.open()
        said: dict[str, object] = {
            "display_name": settings.display_name or settings.node_id,
            "address": settings.address,
            "zone": settings.zone,
            "labels": dict(settings.labels),
            "agent_version": VERSION,
            "backend": parts.backend.name,
        }
        heart = ticks.Heart(node, bus, str(uuid4()), said, HEARTBEAT_TIMEOUT_SECONDS)
        first = asyncio.create_task(observer.discover())
        if node.machine is None:
            await asyncio.wait([first], timeout=FIRST_DISCOVERY_SECONDS)
        self._tasks.append(asyncio.create_task(self._after_discovery(first, parts)))
        self._repeat("heartbeat", settings.heartbeat_seconds, lambda: self._beat(heart), jitter=JITTER)
        self._repeat("usage", settings.usage_seconds, lambda: _at_once(lambda: ticks.every_usage(node)))
        self._repeat("outputs", POLL_SECONDS, parts.outputs.poll)
        self._repeat("waiting", WAITING_SECONDS, lambda: _at_once(lambda: handlers.retry_waiting(node)))
        self._repeat("flush", FLUSH_SECONDS, lambda: _at_once(lambda: self._flush(parts, heart)))
        self._orders = asyncio.create_task(self._take_orders(bus, parts, heart))

    async def _after_discovery(self, first: "asyncio.Task[bool]", parts: Parts) -> None:
        """Sampling begins when the cards have been looked for once."""
        await asyncio.wait([first])
        self._repeat("look", self.settings.telemetry_seconds, lambda: self._look(parts))
        self._repeat("discover", self.settings.discover_seconds, lambda: self._discover(parts), is_later=True)

    # -- duties

    def _repeat(
        self, name: str, seconds: float, duty: Callable[[], Coroutine[Any, Any, Any]], *, jitter: float = 0.0, is_later: bool = False
    ) -> None:
        self._tasks.append(asyncio.create_task(self._keep_on(name, seconds, duty, jitter, is_later)))

    async def _keep_on(self, name: str, seconds: float, duty: Callable[[], Awaitable[Any]], jitter: float, is_later: bool) -> None:
        """Every so often, counted from the last begin; a beat that was missed is not made up for. An error costs one round."""
        loop = asyncio.get_running_loop()
        due = loop.time() + (seconds if is_later else 0)
        while True:
            await asyncio.sleep(max(due - loop.time(), 0))
            due = max(due, loop.time() - seconds) + seconds * (1 + random.uniform(-jitter, jitter))
            try:
                await duty()
            except Exception:
                self._log.exception("duty_failed", duty=name)

    async def _beat(self, heart: ticks.Heart) -> None:
        if not self._is_silent():
            await heart.every_heartbeat()
            self.health.tell("heartbeat", heart.problem)

    async def _look(self, parts: Parts) -> None:
        if self._is_silent():
            return
        was_hung = parts.store.observed.is_hung
        if await parts.observer.look() and (was_hung or parts.node.machine is None):
            await self._discover(parts)

    async def _discover(self, parts: Parts) -> None:
        """Look for cards again. While one is lost the observer is started afresh, since a handle that has died stays dead."""
        if parts.node.lost:
            await parts.backend.restart()
        await parts.observer.discover()

    def _flush(self, parts: Parts, heart: ticks.Heart) -> None:
        parts.store.flush()
        if parts.outlet.problem is not None:
            parts.store.thin_ticks()
        parts.workspace.sweep(set(parts.store.workloads))
        self.health.tell("outlet", parts.outlet.problem)
        self.health.tell("journal", parts.journal.problem)
        self.health.tell("cards", parts.observer.problem)

    async def _take_orders(self, bus: Bus, parts: Parts, heart: ticks.Heart) -> None:
        """Batches until the drain; what the disk does not take comes again after its time."""
        await heart.was_answered.wait()
        async with contextlib.aclosing(cast("AsyncGenerator[Any, None]", bus.pull(node_durable(self.settings.node_id)))) as batches:
            async for batch in batches:
                await self._take_batch(batch, parts)

    async def _take_batch(self, batch: Sequence[Delivery], parts: Parts) -> None:
        while True:
            if await intake.take(batch, parts.node, parts.journal):
                return
            await asyncio.sleep(RETRY_SECONDS)

    def _answerer(self, bus: Bus, simulated: SimulatedBackend) -> Callable[[bytes, bytes, bytes, bytes], None]:
        def answer(subject: bytes, reply: bytes, headers: bytes, body: bytes) -> None:
            try:
                ask = read_ask(InjectFaultAskV1, subject.decode(), body)
                assert isinstance(ask, InjectFaultAskV1)
                bus.reply(reply, *write_answer(simulated.inject(ask)))
            except Malformed as error:
                bus.reply(reply, *write_refusal(refusal_of(error)))

        return answer

    # -- end

    async def _drain(self, *, is_orderly: bool) -> None:
        """No new orders; out with what is to be said; close. What runs is not touched."""
        self.health.is_draining = True
        for tasks in ([self._orders] if self._orders is not None else [], self._tasks):
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if self._kernel_log is not None:
            self._kernel_log.close()
        parts = self._parts
        if parts is not None:
            if is_orderly:
                ticks.every_usage(parts.node)
                await parts.outlet.idle(self.settings.drain_seconds)
            await parts.outlet.close()
            await parts.outputs.close()
            parts.workspace.writings.close()
            await parts.runtime.close()
            await parts.backend.close()
            with contextlib.suppress(OSError):
                parts.store.flush()
                parts.journal.close()
        if self._bus is not None:
            await self._bus.close()
        if self._server is not None:
            await self._server.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


async def _at_once(duty: Callable[[], Any]) -> None:
    duty()


async def run(settings: AgentSettings) -> int:
    """Run an agent until it is stopped. Returns the exit code."""
    return await Agent(settings).serve()
