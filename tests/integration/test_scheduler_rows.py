"""The scheduler's rows on the real database: what is read back is what was written, and what is over stays over."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import asyncpg
import pytest
from gpuyard_runtime.migrate import migrate
from gpuyard_scheduler.app import SERVICE
from gpuyard_scheduler.domain.model import Job, RankPlan, Slice
from gpuyard_scheduler.domain.policy import Policy
from gpuyard_scheduler.mapping.rows import Request, Sight
from gpuyard_scheduler.store import FORGETS, SchedulerStore

from tests.unit.scheduler.scheduler_world import NOW, job, node

RANKS = (RankPlan(0, "a", (Slice("GPU-a-0", 250, 20_480), Slice("GPU-a-1", 250, 20_480)), 1000, 1024),)


@pytest.fixture
async def conn(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection to the scheduler's schema, freshly migrated."""
    await migrate(dsn, SERVICE.schema, SERVICE.name, SERVICE.migrations)
    made = await asyncpg.connect(dsn, server_settings={"search_path": SERVICE.schema})
    yield made
    await made.close()


def _request(of: Job) -> Request:
    return Request(of.job_id, of.tenant, of.request_id, of.spec, of.submitted_at, of.traceparent)


async def _write(conn: asyncpg.Connection, *jobs: Job, store: SchedulerStore | None = None) -> SchedulerStore:
    """Write jobs with their requests as the service does, in one transaction."""
    store = store or SchedulerStore(Policy())
    for made in jobs:
        store.requests.put(_request(made))
        store.jobs.put(made)
    async with conn.transaction():
        await store.flush(conn)
    store.settle()
    return store


async def _read(conn: asyncpg.Connection) -> SchedulerStore:
    store = SchedulerStore(Policy())
    await store.load(conn)
    store.loaded()
    return store


def _every_field() -> Job:
    full: dict[str, Any] = {"ranks": 1, "labels": {"team": "ü"}, "env": {"A": "b\n\\"}, "max_seconds": 60, "retries": 3}
    made = job("job-full", {"milli": 250, "count": 2, "models": ["A100"]}, **full)
    return replace(
        made,
        ask=made.ask._replace(avoid_nodes=frozenset({"n1"}), avoid_gpus=frozenset({"GPU-x", "GPU-y"})),
        traceparent="00-" + "a" * 32 + "-" + "b" * 16 + "-01",
        state="stopping",
        attempt=7,
        not_before=NOW + timedelta(seconds=1),
        ranks=RANKS,
        ordered_at=NOW,
        started_at=NOW,
        intent="time-limit",
        intent_detail="ran for its limit of 60 s",
        failures=1,
        moves=2,
        evictions=5,
        start_failures=3,
        refusals=4,
        is_unknown=True,
        told="no-free-gpus",
    )


async def test_a_job_is_read_back_as_it_was_written(conn: asyncpg.Connection) -> None:
    """Every field of a busy life, and of a fresh one; derived values are there too."""
    full, fresh = _every_field(), job("job-fresh", "24GB..:2")
    store = await _write(conn, full, fresh)
    read = await _read(conn)
    assert read.jobs["job-full"] == full
    assert read.jobs["job-fresh"] == fresh
    assert len(read.queue) == 1
    assert read.usage.of("acme") == store.usage.of("acme")
    read.fleet.put(node("a", 2))
    assert [card.free_milli for card in read.fleet.nodes["a"].cards.values()] == [750, 750]


async def test_what_is_over_is_not_read_but_its_id_is_known(conn: asyncpg.Connection) -> None:
    """So the same request again is still the same request."""
    over = replace(job("job-over"), state="succeeded", ended_at=NOW, end_reason="completed", exit_code=0)
    await _write(conn, over, job("job-live"))
    read = await _read(conn)
    assert list(read.jobs) == ["job-live"]
    assert "job-over" in read.requests
    assert await conn.fetchval("select end_reason from jobs where job_id = 'job-over'") == "completed"


async def test_a_job_that_is_over_cannot_be_written_again(conn: asyncpg.Connection) -> None:
    """The database's own guard, for ids that memory has forgotten: the whole unit is refused, the request too."""
    over = replace(job("job-over"), state="failed", ended_at=NOW, end_reason="lost")
    await _write(conn, over)
    with pytest.raises(asyncpg.CheckViolationError) as caught:
        await _write(conn, replace(job("job-over"), tenant="thief"))
    assert caught.value.constraint_name == "jobs_stay_ended"
    assert await conn.fetchval("select tenant from requests") == "acme"


async def test_parked_requests_and_sight_outlive_a_restart(conn: asyncpg.Connection) -> None:
    """What waits for its tenant waits on; blindness is remembered."""
    store = SchedulerStore(Policy())
    parked = _request(job("job-parked", 2, "new"))
    store.parked.put(parked)
    store.sight.put(Sight(True, NOW))
    await _write(conn, store=store)
    read = await _read(conn)
    assert read.parked["job-parked"] == parked
    assert read.snapshot(NOW).is_blind
    read.parked.drop("job-parked")
    await _write(conn, store=read)
    assert len((await _read(conn)).parked) == 0


async def test_a_store_that_is_read_anew_keeps_what_was_heard(conn: asyncpg.Connection) -> None:
    """After a commit that broke off the rows are read again, but no node and no tenant tells itself again."""
    before = await _write(conn, _every_field())
    before.fleet.put(node("a", 2))
    before.count_request("acme", NOW)
    read = SchedulerStore(Policy())
    await read.load(conn)
    read.inherit(before)
    read.loaded()
    assert [card.free_milli for card in read.fleet.nodes["a"].cards.values()] == [750, 750]
    assert read.tenants is before.tenants
    assert read.count_request("acme", NOW).number == 2


async def test_what_is_long_over_is_forgotten(conn: asyncpg.Connection) -> None:
    """Jobs that ended before the instant go with their requests; what lives, however old, and what ended since stays."""
    long_ago = NOW - timedelta(days=40)
    old = {"submitted_at": long_ago, "aged_at": long_ago}
    over = [replace(job(f"job-old{number}"), **old, state="failed", ended_at=long_ago, end_reason="lost") for number in range(3)]
    late = replace(job("job-late"), **old, state="succeeded", ended_at=NOW, end_reason="completed", exit_code=0)
    await _write(conn, *over, late, replace(job("job-live"), **old))
    before = NOW - timedelta(days=36)
    assert [await conn.execute(statement, before, 2) for statement in FORGETS] == ["DELETE 2", "DELETE 2"]
    assert [await conn.execute(statement, before, 2) for statement in FORGETS] == ["DELETE 1", "DELETE 1"]
    for table in ("jobs", "requests"):
        assert {row["job_id"] for row in await conn.fetch(f"select job_id from {table}")} == {"job-late", "job-live"}
