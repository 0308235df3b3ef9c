"""The database's own word: no card is given away twice and no attempt comes back, whatever the program does."""

from collections.abc import AsyncIterator, Collection, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import asyncpg
import pytest
from gpuyard_contracts.messages.placement import NodeCordonV1
from gpuyard_placement.app import SERVICE
from gpuyard_placement.domain.model import Held, Policy
from gpuyard_placement.store import PlacementStore
from gpuyard_runtime.clock import SystemClock
from gpuyard_runtime.frames import Outgoing
from gpuyard_runtime.migrate import migrate
from gpuyard_runtime.postgres import PostgresUnits

from tests.unit.placement.fleet import Fleet, cards, ended, facts, gang, one, release

AT = datetime(2030, 1, 1, tzinfo=UTC)


class NoRelay:
    """Publishes nothing."""

    def take_done(self) -> list[int]:
        """Nothing is done."""
        return []

    def put_back_done(self, done: list[int]) -> None:
        """Nothing comes back."""

    def holds(self, outbox_id: int) -> bool:
        """Nothing is held."""
        return False

    def take_row(self, outbox_id: int, messages: Sequence[Outgoing]) -> None:
        """Nothing is said here."""


@pytest.fixture
async def conn(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection to placement's schema, freshly migrated."""
    await migrate(dsn, SERVICE.schema, SERVICE.name, SERVICE.migrations)
    made = await asyncpg.connect(dsn, server_settings={"search_path": SERVICE.schema})
    yield made
    await made.close()


def _held(name: str, milli: int, memory_mib: int = 100, *, gpu: str = "GPU-1", rank: int = 0) -> Held:
    return Held(gpu, f"job-{name}", rank, "a", milli, memory_mib, 1000)


async def _write(conn: asyncpg.Connection, *put: Held, drop: tuple[Held, ...] = ()) -> None:
    """Write slices as the service does, in one transaction."""
    store = PlacementStore(Policy())
    store.held.restore(drop)
    for row in drop:
        store.held.drop(store.held.key(row))
    for row in put:
        store.held.put(row)
    async with conn.transaction():
        await store.flush(conn)


async def _refused(conn: asyncpg.Connection, *put: Held) -> str:
    """The constraint that refuses these slices."""
    with pytest.raises(asyncpg.IntegrityConstraintViolationError) as caught:
        await _write(conn, *put)
    return str(caught.value.constraint_name)


async def _sums_are_right(conn: asyncpg.Connection) -> bool:
    """Whether gpu_load is the sum of slices_held."""
    wrong = await conn.fetchval(
        "select count(*) from gpu_load as load left join ("
        "  select gpu_uuid, sum(milli) as milli, sum(memory_mib) as memory_mib, count(*) as holders,"
        "    count(*) filter (where milli = 1000) as whole from slices_held group by gpu_uuid) as held using (gpu_uuid) "
        "where (load.milli, load.memory_mib, load.holders, load.whole) is distinct from "
        "  (coalesce(held.milli, 0), coalesce(held.memory_mib, 0), coalesce(held.holders, 0), coalesce(held.whole, 0))"
    )
    return wrong == 0


async def test_a_whole_card_has_one_owner(conn: asyncpg.Connection) -> None:
    """A second owner is refused by the database, in another transaction or in the same."""
    await _write(conn, _held("x", 1000))
    assert await _refused(conn, _held("y", 1000)) == "slices_held_one_owner_per_whole_card"
    assert await _refused(conn, _held("p", 1000, gpu="GPU-2"), _held("q", 1000, gpu="GPU-2")) == "slices_held_one_owner_per_whole_card"


async def test_nothing_lies_beside_a_whole_card(conn: asyncpg.Connection) -> None:
    """Not even a share of memory alone, which would add nothing to the compute."""
    await _write(conn, _held("x", 1000, 0))
    assert await _refused(conn, _held("y", 0, 1)) == "gpu_load_whole_card_is_held_alone"
    await _write(conn, _held("z", 0, 1, gpu="GPU-2"))
    assert await _refused(conn, _held("w", 1000, 0, gpu="GPU-2")) == "gpu_load_whole_card_is_held_alone"


async def test_shares_never_exceed_the_cards_compute(conn: asyncpg.Connection) -> None:
    """1001 thousandths are refused, 1000 are not."""
    await _write(conn, _held("x", 400), _held("y", 400, rank=1))
    assert await _refused(conn, _held("z", 201)) == "gpu_load_no_more_compute_than_the_card"
    await _write(conn, _held("z", 200))
    assert await _sums_are_right(conn)


async def test_shares_never_exceed_the_cards_memory(conn: asyncpg.Connection) -> None:
    """One MiB more than the card has is refused."""
    await _write(conn, _held("x", 10, 600))
    assert await _refused(conn, _held("y", 10, 401)) == "gpu_load_no_more_memory_than_the_card"
    await _write(conn, _held("y", 10, 400))
    assert await _sums_are_right(conn)


async def test_what_is_freed_in_a_unit_can_be_held_in_the_same(conn: asyncpg.Connection) -> None:
    """Freed slices leave the sums before new ones enter them."""
    old = _held("x", 1000)
    await _write(conn, old)
    await _write(conn, _held("y", 600), _held("z", 400), drop=(old,))
    assert await _sums_are_right(conn)
    assert await conn.fetchval("select holders from gpu_load where gpu_uuid = 'GPU-1'") == 2


async def test_a_card_passes_from_one_job_to_the_next_within_one_statement(dsn: str, conn: asyncpg.Connection) -> None:
    """The unit is tried once: parts of a statement that deletes and writes come in this order, and so do their triggers."""
    units = PostgresUnits(partial(PlacementStore, Policy()), dsn, SERVICE.schema, SERVICE.name, SystemClock(), NoRelay(), epoch=None)
    await units.open()
    old, runs = _held("x", 1000), 0

    def hold(fresh: Collection[str]) -> list[Any]:
        units.store.held.put(old)
        return []

    def pass_on(fresh: Collection[str]) -> list[Any]:
        nonlocal runs
        runs += 1
        units.store.held.put(_held("y", 1000))
        units.store.held.drop(units.store.held.key(old))
        return []

    await units.run(["first"], hold)
    await units.run(["second"], pass_on)
    await units.close()
    assert runs == 1
    assert await conn.fetchval("select string_agg(allocation_id, ',') from slices_held") == "job-y"
    assert await _sums_are_right(conn)


async def test_a_held_slice_never_changes(conn: asyncpg.Connection) -> None:
    """It is taken and given back, so the sums cannot drift; writing it again as it is does nothing."""
    await _write(conn, _held("x", 500))
    await _write(conn, _held("x", 500))
    assert await _refused(conn, _held("x", 501)) == "slices_held_stay_as_they_are"
    assert await _sums_are_right(conn)


async def test_a_unit_that_is_rolled_back_leaves_no_load(conn: asyncpg.Connection) -> None:
    """The sums belong to the transaction."""
    assert await _refused(conn, _held("x", 500), _held("y", 501)) == "gpu_load_no_more_compute_than_the_card"
    assert await conn.fetchval("select count(*) from gpu_load") == 0


def _fleet() -> Fleet:
    """A fleet with something in every table: running, stopping and released allocations, cordons, texts with every kind of character."""
    fleet = Fleet("a", "b", "c")
    fleet.beat("a", agent_id="agent-2", found=facts(*cards("a")[1:], labels={"z": "1", "a": "ü"}, display_name="a \"'\\ \u2028 \U0001f525"))
    fleet.start(gang("run", "b", "c"))
    stopping = one("stop", "GPU-a-1")
    fleet.start(stopping)
    fleet.h.feed(release(stopping, detail='it\'s \\ "over"\n'))
    done = one("done", "GPU-b-2", "b")
    fleet.start(done)
    fleet.h.feed(ended(done, at=fleet.now, code=3, detail="Traceback …"))
    fleet.h.feed(NodeCordonV1(node_id="a", holder="operator/é 'x'", reason="line\nbreak", gpu_uuid="GPU-a-2", is_drain=True))
    fleet.pass_seconds(6, "c")
    return fleet


async def test_rows_come_back_as_they_were_written(conn: asyncpg.Connection) -> None:
    """What a restarted placement reads is what the old one held, except for what is released."""
    fleet = _fleet()
    written = PlacementStore(Policy())
    for table, source in zip(written.tables, fleet.store.tables, strict=True):
        for row in fleet.h.rows(source.name):
            table.put(row)
    expected: dict[str, Any] = {table.name: {key: table[key] for key in table if table.keep(table[key])} for table in written.tables}
    await written.flush(conn)
    read = PlacementStore(Policy())
    await read.load(conn)
    assert {table.name: {key: table[key] for key in table} for table in read.tables} == expected
    assert all(expected.values()), "every table has rows in this test"
    assert await conn.fetchval("select count(*) from allocations where state = 'released'") == 1


async def _allocations(conn: asyncpg.Connection, fleet: Fleet) -> None:
    store = PlacementStore(Policy())
    for row in fleet.h.rows("allocations"):
        store.allocations.put(row)
    await store.flush(conn)


async def test_a_released_allocation_stays_released(conn: asyncpg.Connection) -> None:
    """Even when its attempt is long forgotten in memory."""
    fleet, again = Fleet("a"), Fleet("a")
    fleet.start(one("j"))
    again.start(one("j"))
    fleet.h.feed(ended(one("j"), at=fleet.now))
    await _allocations(conn, fleet)
    with pytest.raises(asyncpg.CheckViolationError) as caught:
        await _allocations(conn, again)
    assert caught.value.constraint_name == "allocations_stay_released"


async def test_one_attempt_of_a_job_lives_at_a_time(conn: asyncpg.Connection) -> None:
    """INV-6: a second live attempt is refused; in the unit in which the first is released it is not."""
    first, second = Fleet("a"), Fleet("a")
    first.start(one("j"))
    await _allocations(conn, first)
    second.start(one("j", attempt=2))
    with pytest.raises(asyncpg.UniqueViolationError) as caught:
        await _allocations(conn, second)
    assert caught.value.constraint_name == "allocations_one_live_attempt_per_job"
    first.h.feed(ended(one("j"), at=first.now), one("j", attempt=2))
    await _allocations(conn, first)
    assert await conn.fetchval("select count(*) from allocations where state <> 'released'") == 1


async def test_old_released_allocations_are_pruned(conn: asyncpg.Connection) -> None:
    """Live ones and younger ones stay."""
    fleet = Fleet("a")
    for name in ("old", "young", "live"):
        fleet.start(one(name))
        if name != "live":
            fleet.h.feed(ended(one(name), at=fleet.now))
            fleet.h.clock.advance(86_400)
    await _allocations(conn, fleet)
    store = PlacementStore(Policy())
    store.prune(AT + timedelta(hours=12))
    assert store.is_changed
    await store.flush(conn)
    store.settle()
    assert not store.is_changed
    assert [row["job_id"] for row in await conn.fetch("select job_id from allocations order by committed_at")] == [
        one("young").job_id,
        one("live").job_id,
    ]
