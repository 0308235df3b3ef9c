"""The conformance suites against a real nats-server and a real PostgreSQL."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from gpuyard_contracts.envelope import Ask, Envelope, Shape
from gpuyard_contracts.topology import Durable
from gpuyard_local.nats import Nats
from gpuyard_local.postgres import Postgres
from gpuyard_runtime.asks import read_ask, write_answer, write_refusal
from gpuyard_runtime.bootstrap import bootstrap, ensure_durable
from gpuyard_runtime.bus import Bus, connect
from gpuyard_runtime.clock import SystemClock
from gpuyard_runtime.faults import Refused
from gpuyard_runtime.leader import RAISE_EPOCH
from gpuyard_runtime.migrate import migrate
from gpuyard_runtime.outbox import Relay
from gpuyard_runtime.postgres import PostgresUnits
from gpuyard_runtime.settings import BusSettings
from gpuyard_runtime.testing.bus_conformance import BUS, STREAMS
from gpuyard_runtime.testing.units_conformance import MIGRATION, UNITS, Note, ThingStore
from gpuyard_runtime.units import Units
from gpuyard_runtime.work import Delivery

SECONDS = 20


class Nowhere:
    """A wire that takes what is posted and never answers."""

    is_connected = True

    def post(self, frames: Any) -> None:
        """Drop it."""


class PostgresRig:
    """Units on PostgreSQL."""

    units: Units[ThingStore]

    def __init__(self, dsn: str, server: Postgres) -> None:
        self._dsn = dsn
        self._server = server
        self._lives: list[PostgresUnits[ThingStore]] = []

    async def open(self, folder: Path) -> None:
        """Migrate, and begin the first life."""
        (folder / "0001_things.sql").write_text(MIGRATION)
        await migrate(self._dsn, "suite", "suite", folder)
        self.units = await self._life()

    async def _query(self, sql: str, *args: Any) -> Any:
        conn = await asyncpg.connect(self._dsn, server_settings={"search_path": "suite"})
        try:
            return await conn.fetch(sql, *args)
        finally:
            await conn.close()

    async def _life(self) -> PostgresUnits[ThingStore]:
        [row] = await self._query(RAISE_EPOCH, "suite")
        relay = Relay(Nowhere(), lambda reason: None)
        made = PostgresUnits(ThingStore, self._dsn, "suite", "suite", SystemClock(), relay, epoch=row["epoch"])
        await made.open()
        self._lives.append(made)
        return made

    async def reopen(self) -> Units[ThingStore]:
        old, self.units = self.units, await self._life()
        return old

    async def committed(self) -> tuple[set[str], list[Note], int]:
        things = {row["id"] for row in await self._query("select id from things")}
        notes = [Note(**row) for row in await self._query("select id, text from notes order by id")]
        return things, notes, (await self._query("select count(*) from outbox"))[0][0]

    async def go_away(self) -> None:
        self._server.kill()

    async def come_back(self) -> None:
        if self._server.pid is None:
            self._server.start()

    async def close(self) -> None:
        """Close every life."""
        await self.come_back()
        for life in self._lives:
            await life.close()


@pytest.fixture
async def units_rig(dsn: str, shared_postgres: Postgres, tmp_path: Path) -> AsyncIterator[PostgresRig]:
    """A rig on a new database."""
    rig = PostgresRig(dsn, shared_postgres)
    await rig.open(tmp_path)
    yield rig
    await rig.close()


class NatsRig:
    """A bus on nats-server."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._got: dict[str, list[Delivery]] = {}
        self._came = asyncio.Event()

    async def publish(self, envelope: Envelope[Any]) -> int:
        return await self._bus.publish(envelope)

    async def pull(self, durable: Durable, count: int) -> list[Delivery]:
        if durable.name not in self._got:
            await ensure_durable(self._bus, durable)
            got = self._got[durable.name] = []
            await self._bus.open_pull(durable.stream, durable.name, lambda found: self._take(got, found), lambda: 0, batch=10)
        got = self._got[durable.name]
        async with asyncio.timeout(SECONDS):
            while len(got) < count:
                self._came.clear()
                await self._came.wait()
        taken = got[:count]
        del got[:count]
        return taken

    def _take(self, got: list[Delivery], found: Delivery) -> None:
        got.append(found)
        self._came.set()

    async def left(self, durable: Durable) -> tuple[int, int]:
        await self._bus.client.flush()
        info = await self._bus.api(f"CONSUMER.INFO.{durable.stream}.{durable.name}")
        return info["num_pending"], info["num_ack_pending"]

    async def pass_ack_wait(self, durable: Durable) -> None:
        """It passes by itself; `pull` waits."""

    async def take_over(self, durable: Durable) -> None:
        await self._bus.client.flush()
        await self._bus.api(f"CONSUMER.RESET.{durable.stream}.{durable.name}")

    async def read(
        self, stream: str, filters: Sequence[str], count: int, *, after: int | None = None, is_state: bool = False
    ) -> list[Delivery]:
        got: list[Delivery] = []
        async with asyncio.timeout(SECONDS):
            async for batch in self._bus.read(stream, filters, after=after, is_state=is_state):
                got += batch
                if len(got) >= count:
                    break
        return got

    async def answer(self, kind: type[Ask], answer: Callable[[Any], Shape | Refused]) -> None:
        def on_ask(subject: bytes, reply: bytes, headers: bytes, body: bytes) -> None:
            found = answer(read_ask(kind, subject.decode(), body))
            self._bus.reply(reply, *(write_refusal(found) if isinstance(found, Refused) else write_answer(found)))

        await self._bus.answer(kind, on_ask)
        await self._bus.client.flush()

    async def ask(self, ask: Ask) -> Any:
        return await self._bus.ask(ask, seconds=SECONDS)


@pytest.fixture
async def bus_rig(shared_nats: Nats) -> AsyncIterator[NatsRig]:
    """A rig on the suite's streams, empty."""
    bus = await connect(BusSettings(nats_url=shared_nats.url), name="suite")
    await bootstrap(bus, streams=STREAMS, durables=())
    yield NatsRig(bus)
    for stream in STREAMS:
        await bus.api(f"STREAM.DELETE.{stream.name}")
    await bus.close()


def _name(behaviour: Callable[..., Any]) -> str:
    return behaviour.__name__


@pytest.mark.parametrize("behaviour", UNITS, ids=_name)
async def test_units_on_postgres(behaviour: Callable[[Any], Awaitable[None]], units_rig: PostgresRig) -> None:
    await behaviour(units_rig)


@pytest.mark.parametrize("behaviour", BUS, ids=_name)
async def test_bus_on_nats(behaviour: Callable[[Any], Awaitable[None]], bus_rig: NatsRig) -> None:
    await behaviour(bus_rig)
