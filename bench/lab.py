"""A bare bus and a bare database, and single services on them: what is measured without the rest of gpuyard.

The database is as durable as in production (fsync is on). Everything listens on loopback, lies in one temporary folder and ends with us.
"""

import asyncio
import os
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from gpuyard_contracts.envelope import Envelope
from gpuyard_contracts.topology import Durable
from gpuyard_local import readiness
from gpuyard_local.embedded import ServerProcess, clean_environment, free_port
from gpuyard_local.nats import Nats
from gpuyard_local.postgres import Postgres
from gpuyard_runtime.bootstrap import bootstrap
from gpuyard_runtime.bus import Bus, connect
from gpuyard_runtime.settings import BusSettings

from tests.support.servers import start_nats

ROOT = Path(__file__).parents[1]
POLL_SECONDS = 0.01
PATIENCE_SECONDS = 120.0
AT_ONCE = 500

T = TypeVar("T")


class TooSlow(Exception):
    """A measurement did not come to its end in time."""


def run(work: Coroutine[Any, Any, T], *, seconds: float = PATIENCE_SECONDS) -> T:
    """Run one bounded measurement. Raises TooSlow."""

    async def bounded() -> T:
        try:
            async with asyncio.timeout(seconds):
                return await work
        except TimeoutError:
            raise TooSlow(f"not done within {seconds:.0f} s") from None

    return asyncio.run(bounded())


@dataclass
class Lab:
    """The bus, the database and the services that were started on them."""

    folder: Path
    bus: Nats
    database: Postgres
    _services: list[ServerProcess] = field(default_factory=list[ServerProcess])

    @contextmanager
    def service(self, name: str, *arguments: str, **settings: str) -> Generator["Process"]:
        """A service as a process of its own, ready: ``python -m <arguments>`` with these settings. Stopped at the end."""
        port = free_port()
        environment = clean_environment() | {
            "PYTHONPATH": str(ROOT),
            "GPUYARD_NATS_URL": self.bus.url,
            "GPUYARD_POSTGRES_DSN": self.database.dsn(),
            "GPUYARD_HTTP_PORT": str(port),
            "GPUYARD_LOG_LEVEL": "warning",
            **settings,
        }
        server = ServerProcess(
            name,
            [sys.executable, "-m", *arguments],
            self.folder / f"{name}.log",
            lambda: readiness.ask(port) is None,
            is_tied=True,
            environment=environment,
        )
        server.start()
        self._services.append(server)
        try:
            assert server.pid is not None
            yield Process(server.pid, port)
        finally:
            server.stop()
            self._services.remove(server)

    def close(self) -> None:
        """Stop everything."""
        for server in list(self._services):
            server.kill()
        self.bus.stop()
        self.database.remove()

    @property
    def programs(self) -> dict[str, int]:
        """The pids of bus and database, by name."""
        return {name: pid for name, pid in (("nats", self.bus.pid), ("postgres", self.database.pid)) if pid is not None}

    @property
    def operator(self) -> "Operator":
        """Streams, durables and messages, from outside of any service."""
        return Operator(self.bus.url)


@dataclass(frozen=True, slots=True)
class Process:
    """One running service."""

    pid: int
    port: int

    @contextmanager
    def frozen(self) -> Generator[None]:
        """It does nothing meanwhile: what is published waits for it."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)


@dataclass(frozen=True, slots=True)
class Operator:
    """One who sees everything on a bus without users."""

    url: str

    def make(self, durables: Sequence[Durable]) -> None:
        """All streams, and these durables."""
        run(self.with_bus(lambda bus: bootstrap(bus, durables=durables)))

    def publish(self, envelopes: Sequence[Envelope[Any]]) -> None:
        """Put messages on their streams."""
        run(self.with_bus(lambda bus: _publish(bus, envelopes)))

    def wait_until_done(self, durable: Durable) -> float:
        """Wait until everything was delivered and acknowledged; returns when that was (monotonic seconds)."""
        return run(self.with_bus(lambda bus: _until_done(bus, durable)))

    async def with_bus(self, work: Callable[[Bus], Awaitable[T]]) -> T:
        """Do something on the bus, with a connection of its own."""
        bus = await connect(BusSettings(nats_url=self.url, nats_user="", nats_inbox_prefix="_INBOX.bench"), name="bench")
        try:
            return await work(bus)
        finally:
            await bus.close()


async def _publish(bus: Bus, envelopes: Sequence[Envelope[Any]]) -> None:
    for first in range(0, len(envelopes), AT_ONCE):
        await asyncio.gather(*(bus.publish(envelope, seconds=30) for envelope in envelopes[first : first + AT_ONCE]))


async def _until_done(bus: Bus, durable: Durable) -> float:
    while True:
        info = await bus.api(f"CONSUMER.INFO.{durable.stream}.{durable.name}")
        if not info["num_pending"] and not info["num_ack_pending"]:
            return time.perf_counter()
        await asyncio.sleep(POLL_SECONDS)


def sustained(lab: Lab, process: Process, durable: Durable, envelopes: Sequence[Envelope[Any]]) -> float:
    """Messages per second that a service takes from a durable while enough wait: published while it is frozen, then let go."""
    with process.frozen():
        lab.operator.publish(envelopes)
    began = time.perf_counter()
    return len(envelopes) / (lab.operator.wait_until_done(durable) - began)


@contextmanager
def a_lab() -> Generator[Lab]:
    """A lab in a temporary folder; nothing is left of it."""
    folder = Path(tempfile.mkdtemp(prefix="gpuyard-bench-"))
    try:
        database = Postgres(folder / "postgres", password=secrets.token_hex(8), log=folder / "postgres.log", is_tied=True)
        lab = Lab(folder, start_nats(folder), database)
        try:
            database.start()
            yield lab
        finally:
            lab.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def wait_until(is_true: Callable[[], bool]) -> None:
    """Wait until something is so. Raises TooSlow."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_true():
        if time.monotonic() > deadline:
            raise TooSlow(f"not done within {PATIENCE_SECONDS:.0f} s")
        time.sleep(POLL_SECONDS)
