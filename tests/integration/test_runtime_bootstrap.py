"""Streams, durables and schemas: made once, compared field by field, never guessed about; and readers that survive."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from gpuyard_contracts.topology import DURABLES, STREAMS, Durable, Stream
from gpuyard_local.nats import Nats
from gpuyard_runtime.bootstrap import Drifted, bootstrap, ensure_durable
from gpuyard_runtime.bus import Bus, connect
from gpuyard_runtime.migrate import MigrationRefused, migrate
from gpuyard_runtime.settings import BusSettings

from tests.support.toy_service import toy_durable
from tests.support.toy_stack import opened, until


@pytest.fixture
async def bus(own_nats: Nats) -> AsyncIterator[Bus]:
    """A bus without streams."""
    made = await connect(BusSettings(nats_url=own_nats.url), name="operator")
    yield made
    await made.close()


async def test_the_whole_topology_is_made_once_and_the_second_time_nothing_is_done(bus: Bus) -> None:
    first = await bootstrap(bus)
    assert len(first.created) == len(STREAMS) + len(DURABLES)
    second = await bootstrap(bus)
    assert (second.created, second.repaired, second.drift) == ([], [], [])


SMALL = Stream("SMALL", ("small.>",), "test", max_bytes=1000)
OWN = Durable("test", "SMALL", "own", ("small.a.>",))


@pytest.mark.parametrize(
    ("stream", "durable", "field"),
    [
        (replace(SMALL, max_bytes=2000), OWN, "max_bytes"),
        (replace(SMALL, subjects=("small.>", "other.>")), OWN, "subjects"),
        (replace(SMALL, discard="new"), OWN, "discard"),
        (SMALL, replace(OWN, filters=("small.a.>", "small.b.>")), "filter_subjects"),
        (SMALL, replace(OWN, ack_wait_seconds=5.0), "ack_wait"),
        (SMALL, replace(OWN, max_ack_pending=7), "max_ack_pending"),
    ],
)
async def test_drift_is_named_by_field_left_alone_and_repaired_when_asked_for(
    bus: Bus, stream: Stream, durable: Durable, field: str
) -> None:
    await bootstrap(bus, streams=[SMALL], durables=[OWN])
    with pytest.raises(Drifted) as caught:
        await bootstrap(bus, streams=[stream], durables=[durable])
    assert [found.field for found in caught.value.drift] == [field]
    report = await bootstrap(bus, streams=[stream], durables=[durable], repair=True)
    assert len(report.repaired) == 1
    assert (await bootstrap(bus, streams=[stream], durables=[durable])).drift == []


async def test_what_cannot_be_changed_is_said_and_not_forced(bus: Bus) -> None:
    await bootstrap(bus, streams=[SMALL], durables=[])
    with pytest.raises(Drifted, match="a change that the server takes"):
        await bootstrap(bus, streams=[replace(SMALL, retention="workqueue")], durables=[], repair=True)


async def test_a_single_durable_can_be_made_later(bus: Bus) -> None:
    await bootstrap(bus, streams=[SMALL], durables=[])
    assert (await ensure_durable(bus, OWN)).created == ["durable own"]


async def test_a_reader_goes_on_where_it_was_after_its_consumer_and_the_server_are_gone(bus: Bus, own_nats: Nats) -> None:
    await bootstrap(bus, durables=[toy_durable()])
    got: list[int] = []

    async def follow() -> None:
        async for batch in bus.read("EVT_MONITOR", ["gpuyard.evt.monitor.>"], after=0):
            got.extend(delivery.sequence for delivery in batch)

    following = asyncio.create_task(follow())
    await bus.publish(opened(1))
    await until("the first is read", lambda: got == [1])
    for name in (await bus.api("CONSUMER.NAMES.EVT_MONITOR"))["consumers"]:
        if name != toy_durable().name:
            await bus.api(f"CONSUMER.DELETE.EVT_MONITOR.{name}")
    await bus.publish(opened(2))
    await until("the second is read", lambda: got == [1, 2])
    own_nats.kill()
    await until("the bus is away", lambda: not bus.is_connected)
    own_nats.start()
    await until("the bus is back", lambda: bus.is_connected)
    await bus.publish(opened(3))
    await until("the third is read", lambda: got == [1, 2, 3])
    following.cancel()
    await asyncio.wait([following])


async def test_a_durable_is_pulled_on_after_a_restart_of_the_server(bus: Bus, own_nats: Nats) -> None:
    await bootstrap(bus, durables=[toy_durable()])
    got: list[int] = []

    async def pull() -> None:
        async for batch in bus.pull(toy_durable()):
            for delivery in batch:
                got.append(delivery.sequence)
                delivery.ack()

    pulling = asyncio.create_task(pull())
    await bus.publish(opened(1))
    await until("the first is taken", lambda: got == [1])
    own_nats.kill()
    await until("the bus is away", lambda: not bus.is_connected)
    own_nats.start()
    await until("the bus is back", lambda: bus.is_connected)
    await bus.publish(opened(2))
    await until("the second is taken", lambda: got[-1] == 2)
    pulling.cancel()
    await asyncio.wait([pulling])


async def test_a_schema_is_migrated_forward_each_file_once(dsn: str, tmp_path: Path) -> None:
    (tmp_path / "0001_a.sql").write_text("create table a (id int)")
    assert await migrate(dsn, "svc", "svc", tmp_path) == ["0001_runtime.sql", "0002_outbox_as_it_is.sql", "0001_a.sql"]
    (tmp_path / "0002_b.sql").write_text("create table b (id int)")
    assert await migrate(dsn, "svc", "svc", tmp_path) == ["0002_b.sql"]
    assert await migrate(dsn, "svc", "svc", tmp_path) == []


async def test_processes_that_migrate_at_once_wait_for_each_other(dsn: str, tmp_path: Path) -> None:
    (tmp_path / "0001_a.sql").write_text("create table a (id int)")
    done = await asyncio.gather(*(migrate(dsn, "svc", "svc", tmp_path) for _ in range(5)))
    assert sorted(len(names) for names in done) == [0, 0, 0, 0, 3]


async def test_a_file_that_fails_is_not_half_applied(dsn: str, tmp_path: Path) -> None:
    (tmp_path / "0001_a.sql").write_text("create table a (id int); create table a (id int)")
    with pytest.raises(asyncpg.DuplicateTableError):
        await migrate(dsn, "svc", "svc", tmp_path)
    (tmp_path / "0001_a.sql").write_text("create table a (id int)")
    assert await migrate(dsn, "svc", "svc", tmp_path) == ["0001_a.sql"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda folder: (folder / "0002_b.sql").write_text("create table c (id int)"), "was changed after it was applied"),
        (lambda folder: (folder / "0002_b.sql").unlink(), "does not know"),
        (lambda folder: (folder / "0001_z.sql").write_text("select 1"), "sorts before"),
    ],
)
async def test_a_past_that_does_not_fit_is_refused(dsn: str, tmp_path: Path, change: Any, says: str) -> None:
    for name in ("0001_a", "0002_b"):
        (tmp_path / f"{name}.sql").write_text(f"create table {name[-1]} (id int)")
    await migrate(dsn, "svc", "svc", tmp_path)
    change(tmp_path)
    with pytest.raises(MigrationRefused, match=says):
        await migrate(dsn, "svc", "svc", tmp_path)
