"""The toy service with a real bus and a real database around it: what integration tests of the runtime stand on."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
from gpuyard_contracts.envelope import Envelope
from gpuyard_contracts.messages.monitor import IncidentClosedV1, IncidentOpenedV1
from gpuyard_contracts.topology import Durable
from gpuyard_contracts.types import incident_id_of
from gpuyard_runtime.bootstrap import bootstrap
from gpuyard_runtime.bus import Bus, connect
from gpuyard_runtime.running import Running
from gpuyard_runtime.saying import enveloped
from gpuyard_runtime.settings import BusSettings, ServiceSettings
from pydantic import SecretStr

from tests.support.toy_service import toy_durable, toy_service

ROOT = Path(__file__).parents[2]
AT = datetime(2030, 1, 1, tzinfo=UTC)
PATIENCE_SECONDS = 60.0
POLL_SECONDS = 0.02


async def until(what: str, is_true: Callable[[], Awaitable[bool] | bool]) -> None:
    """Wait until something is true. Raises AssertionError, naming it, where it does not become so."""
    deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    while True:
        found = is_true()
        if found if isinstance(found, bool) else await found:
            return
        assert asyncio.get_running_loop().time() < deadline, f"never true: {what}"
        await asyncio.sleep(POLL_SECONDS)


def opened(number: int, node: str = "") -> Envelope[Any]:
    """An incident opens on a node; each number is an event of its own."""
    data = IncidentOpenedV1(
        incident_id=incident_id_of("n", "x", str(number), AT),
        kind="gpu-hot",
        node_id=node or f"n{number % 7}",
        action="none",
        evidence="",
        opened_at=AT,
    )
    return enveloped(data, source="test", at=AT, event_id=str(uuid4()))


class Stack:
    """An operator's view of the bus and the database."""

    def __init__(self, folder: Path, url: str, dsn: str, operator: Bus) -> None:
        self.folder = folder
        self.url = url
        self.dsn = dsn
        self.operator = operator

    def settings(self, **changes: Any) -> ServiceSettings:
        """Settings of a service on this stack."""
        return ServiceSettings(**({"nats_url": self.url, "postgres_dsn": SecretStr(self.dsn), "drain_seconds": 5.0} | changes))

    def environment(self, **changes: str) -> dict[str, str]:
        """The same as an environment for a process."""
        given = {"GPUYARD_NATS_URL": self.url, "GPUYARD_POSTGRES_DSN": self.dsn, "GPUYARD_HTTP_PORT_FILE": str(self.folder / "port")}
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GPUYARD_")}
        return kept | {"PYTHONPATH": str(ROOT)} | given | changes

    async def process(self, **changes: str) -> asyncio.subprocess.Process:
        """The toy as a process of its own."""
        command = (sys.executable, "-m", "tests.support.toy_process", str(self.folder))
        return await asyncio.create_subprocess_exec(
            *command, env=self.environment(**changes), cwd=ROOT, stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
        )

    @asynccontextmanager
    async def running(self, service: Any = None, **changes: Any) -> AsyncIterator[Running[Any]]:
        """A service in this process, started; drained at the end."""
        made = Running(service or toy_service(self.folder), self.settings(**changes))
        task = asyncio.create_task(made.serve(None))
        try:
            await until("the service works", lambda: task.done() or "process" not in made.health.reasons())
            assert not task.done(), f"it ended with {task.result()}"
            yield made
        finally:
            made.stop()
            await task

    async def publish(self, envelopes: Sequence[Envelope[Any]]) -> None:
        """Publish events."""
        await asyncio.gather(*(self.operator.publish(found) for found in envelopes))

    async def query(self, sql: str, *args: Any) -> list[Any]:
        """Rows of a query in the toy's schema."""
        conn = await asyncpg.connect(self.dsn, server_settings={"search_path": "toy"})
        try:
            return await conn.fetch(sql, *args)
        finally:
            await conn.close()

    async def count(self, table: str) -> int:
        """How many rows a table has."""
        return int((await self.query(f"select count(*) from {table}"))[0][0])

    async def stored(self, stream: str) -> list[Any]:
        """All messages of a stream, as deliveries."""
        last = (await self.operator.api(f"STREAM.INFO.{stream}"))["state"]["messages"]
        got: list[Any] = []
        if last:
            async for batch in self.operator.read(stream, [">"], after=0):
                got += batch
                if len(got) >= last:
                    break
        return got

    async def closed_ids(self) -> list[str]:
        """The ids of everything that the toy said."""
        return [found.headers["ce-id"] for found in await self.stored("EVT_MONITOR") if found.headers["ce-type"] == IncidentClosedV1.TYPE]

    async def letters(self) -> list[str]:
        """The bodies of all dead letters."""
        return [found.body.decode() for found in await self.stored("DLQ")]

    async def unacknowledged(self) -> tuple[int, int]:
        """What the toy's durable has not delivered, and what is not acknowledged."""
        info = await self.operator.api("CONSUMER.INFO.EVT_MONITOR.toy-evt-monitor")
        return info["num_pending"], info["num_ack_pending"]

    async def is_done(self) -> bool:
        """Whether everything was delivered, acknowledged and published."""
        return await self.unacknowledged() == (0, 0) and await self.count("outbox") == 0


@asynccontextmanager
async def toy_stack(folder: Path, url: str, dsn: str, durable: Durable | None = None) -> AsyncIterator[Stack]:
    """A stack with the topology's streams and the toy's durable."""
    operator = await connect(BusSettings(nats_url=url), name="operator")
    await bootstrap(operator, durables=[durable or toy_durable()])
    try:
        yield Stack(folder, url, dsn, operator)
    finally:
        await operator.close()
