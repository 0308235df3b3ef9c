"""What only PostgreSQL can do to a unit: constraints that speak at the commit, connections that break in mid-commit, other leaders."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from gpuyard_runtime.clock import SystemClock
from gpuyard_runtime.faults import EXIT_CONFIG, EXIT_FENCED, Fatal, Unavailable
from gpuyard_runtime.leader import Leadership
from gpuyard_runtime.migrate import migrate
from gpuyard_runtime.outbox import Relay
from gpuyard_runtime.postgres import PostgresUnits
from gpuyard_runtime.store import Connection
from gpuyard_runtime.testing.units_conformance import MIGRATION, Note, Thing, ThingStore, silent

from tests.support.toy_stack import until

AT_COMMIT = """
create function wait_for_it() returns trigger language plpgsql as $$
begin
    if new.text = 'refused' then
        raise exception 'this note is refused' using errcode = 'check_violation';
    end if;
    if new.text = 'slow' then
        perform pg_advisory_lock(42);
    end if;
    return null;
end $$;
create constraint trigger notes_wait after insert on notes deferrable initially deferred for each row execute function wait_for_it();
"""


class Wire:
    """Takes what is posted."""

    is_connected = True

    def post(self, frames: Any) -> None:
        """Drop it."""


class OwnStore(ThingStore):
    """Writes one more thing in a way of its own, and keeps what it heard."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[str] = []

    def inherit(self, before: Any) -> None:
        self.heard = before.heard

    async def flush(self, conn: Connection) -> None:
        await super().flush(conn)
        await conn.execute("insert into notes (id, text) values ('own', 'flush') on conflict do nothing")


class Rig:
    """Units on a database with a trigger that speaks at the commit."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.lives: list[PostgresUnits[Any]] = []

    async def units(self, make: Any = ThingStore) -> PostgresUnits[Any]:
        """A life without a leader."""
        found: PostgresUnits[Any] = PostgresUnits(
            make, self.dsn, "suite", "suite", SystemClock(), Relay(Wire(), lambda reason: None), epoch=None
        )
        await found.open()
        self.lives.append(found)
        return found

    async def query(self, sql: str, *args: Any) -> list[Any]:
        """Rows of a query."""
        conn = await asyncpg.connect(self.dsn, server_settings={"search_path": "suite"})
        try:
            return await conn.fetch(sql, *args)
        finally:
            await conn.close()


@pytest.fixture
async def rig(dsn: str, tmp_path: Path) -> AsyncIterator[Rig]:
    """A rig on a new database."""
    (tmp_path / "0001_things.sql").write_text(MIGRATION + AT_COMMIT)
    await migrate(dsn, "suite", "suite", tmp_path)
    made = Rig(dsn)
    yield made
    for life in made.lives:
        await life.close()


@pytest.mark.parametrize("make", [ThingStore, OwnStore])
async def test_a_constraint_that_speaks_at_the_commit_refuses_the_unit_and_no_other(rig: Rig, make: Any) -> None:
    units = await rig.units(make)
    store = units.store
    for keys in (["k"], []):
        with pytest.raises(asyncpg.CheckViolationError):
            await units.run(keys, silent(lambda fresh: units.store.notes.add(Note("a", "refused"))))
    await units.run(["k"], silent(lambda fresh: units.store.things.put(Thing("a", 1))))
    assert units.store is store
    assert [row["id"] for row in await rig.query("select id from things")] == ["a"]


@pytest.mark.parametrize("make", [ThingStore, OwnStore])
async def test_a_commit_that_breaks_off_is_looked_up_and_what_was_heard_is_kept(rig: Rig, make: Any) -> None:
    units = await rig.units(make)
    units.store.heard = ["something"]
    blocker = await asyncpg.connect(rig.dsn)
    await blocker.execute("select pg_advisory_lock(42)")

    def work(fresh: Any) -> None:
        units.store.things.put(Thing("a", 1))
        units.store.notes.add(Note("n", "slow"))

    running = asyncio.create_task(units.run(["k"], silent(work)))
    waits = "select pid from pg_locks where locktype = 'advisory' and not granted and objid = 42"
    await until("the commit waits", lambda: _is_any(blocker, waits))
    await blocker.execute(f"select pg_terminate_backend(pid) from ({waits}) as found")
    with pytest.raises(Unavailable):
        await running
    assert len(units.store.things) == 0
    await blocker.execute("select pg_advisory_unlock(42)")
    await blocker.close()
    await units.run(["k"], silent(work))
    assert units.store.things["a"] == Thing("a", 1)
    if make is OwnStore:
        assert units.store.heard == ["something"]
    assert [row["id"] for row in await rig.query("select id from notes where text = 'slow'")] == ["n"]


async def _is_any(conn: asyncpg.Connection, sql: str) -> bool:
    return bool(await conn.fetch(sql))


async def test_a_store_with_a_way_of_its_own_is_written_its_way_in_the_same_transaction(rig: Rig) -> None:
    units = await rig.units(OwnStore)
    await units.run([], silent(lambda fresh: units.store.things.put(Thing("a", 1))))
    assert {row["id"] for row in await rig.query("select id from notes")} == {"own"}
    with pytest.raises(asyncpg.CheckViolationError):
        await units.run([], silent(lambda fresh: units.store.things.put(Thing("a", -1))))
    assert units.store.things["a"] == Thing("a", 1)


async def test_deletes_and_writes_of_one_table_are_one_statement_and_the_work_is_done_once(rig: Rig) -> None:
    units = await rig.units()
    await units.run([], silent(lambda fresh: units.store.things.put(Thing("old", 1, "x"))))
    runs: list[int] = []

    def work(fresh: Any) -> None:
        runs.append(1)
        units.store.things.put(Thing("new", 1, "x"))  # a unique index lets it in only once "old" is gone
        units.store.things.drop("old")

    await units.run(["k"], silent(work))
    assert len(runs) == 1
    assert [row["id"] for row in await rig.query("select id from things")] == ["new"]


async def test_a_statement_that_does_not_fit_the_schema_is_fatal_and_costs_no_message(rig: Rig) -> None:
    units = await rig.units()
    await rig.query("alter table things rename to others")
    with pytest.raises(Fatal) as caught:
        await units.run(["k"], silent(lambda fresh: units.store.things.put(Thing("a", 1))))
    assert caught.value.code == EXIT_CONFIG
    assert await rig.query("select key from inbox") == []


async def test_old_inbox_keys_are_forgotten_a_few_at_once_and_young_ones_kept(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuyard_runtime.postgres.PRUNED_AT_ONCE", 2)
    units = await rig.units()
    old = "insert into inbox (key, at) select 'old ' || number, now() - interval '40 days' from generate_series(1, 3) as given (number)"
    await rig.query(old)
    await rig.query("insert into inbox (key, at) values ('young', now())")
    before = (await rig.query("select now() - interval '36 days'"))[0][0]
    assert await units.prune(before)
    assert len(await rig.query("select key from inbox")) == 2
    assert not await units.prune(before)
    assert [row["key"] for row in await rig.query("select key from inbox")] == ["young"]


async def test_a_leader_that_loses_its_lock_takes_it_again_and_one_that_was_followed_ends(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuyard_runtime.leader.CHECK_SECONDS", 0.05)
    told: list[str | None] = []
    ended: list[Fatal] = []
    leader = Leadership(rig.dsn, "suite", "suite", told.append, ended.append)
    assert await leader.acquire() == 1
    kill = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'suite leader'"
    await rig.query(kill)
    await until("it lost the lock and took it again", lambda: len(told) >= 2 and told[-1] is None)
    await rig.query("update runtime_leader set epoch = 2")
    await rig.query(kill)
    await until("it ends", lambda: bool(ended))
    assert ended[0].code == EXIT_FENCED
    await leader.close()
