"""The read models on PostgreSQL and in memory: the same answers from both; and what only the database keeps."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from typing import Any

import asyncpg
import pytest
from gpuyard_api.domain.model import AuditRow, Event, Incident, Job, JobAsk, JobState, Tenant, Token
from gpuyard_api.memory_reads import MemoryReads
from gpuyard_api.ports import JobFilter, Reads
from gpuyard_api.reads import SqlReads
from gpuyard_api.store import ApiStore
from gpuyard_runtime.faults import Unavailable
from gpuyard_runtime.migrate import migrate

AT = datetime(2030, 1, 1, tzinfo=UTC)


def _job(name: str, tenant: str = "acme", minutes: int = 0, state: JobState = "queued", **changes: Any) -> Job:
    at = AT + timedelta(minutes=minutes)
    return replace(Job(f"job-{name}", tenant, name, state, at, at, version=1), **changes)


JOBS = [
    _job("a"),
    _job("b", state="running", started_at=AT, placement='[{"rank":0}]', attempt=2),
    _job("c", minutes=1, state="failed", ended_at=AT, exit_code=-9, detail="größer\n"),
    _job("d", "beta", minutes=2),
]
ASKS = [
    JobAsk("job-a", "acme", '{"name": "a"}', '{"team":"vision","run":"7"}', "digest-a", AT),
    JobAsk("job-d", "beta", '{"name":"d"}', "{}", "digest-d", AT),
]
EVENTS = [
    Event(1, "e1", "gpuyard.evt.scheduler.job.queued.v1", "scheduler", AT, '{"x":"ü"}', "job-a", "acme", "cause", None),
    Event(2, "e2", "gpuyard.evt.placement.node.enrolled.v1", "placement", AT, "{}"),
    Event(5, "e3", "gpuyard.evt.scheduler.job.ended.v1", "scheduler", AT, "{}", "job-a", "acme"),
    Event(7, "e4", "gpuyard.evt.scheduler.job.ended.v1", "scheduler", AT, "{}", "job-d", "beta"),
]
AUDIT = [AuditRow(number, AT, "operator/x", None, "node.cordon", "n1", "done", "") for number in (1, 2, 9)]


async def _jobs(reads: Reads) -> None:
    async def names(limit: int = 10, **wanted: Any) -> list[str]:
        return [job.name for job in await reads.jobs(JobFilter(**wanted), limit)]

    assert await names() == ["d", "c", "b", "a"]
    assert await names(2) == ["d", "c"]
    assert await names(before=(AT, "job-b")) == ["a"]
    assert await names(before=(AT + timedelta(minutes=1), "job-c"), tenant="acme") == ["b", "a"]
    assert await names(tenant="acme", states=("running", "failed")) == ["c", "b"]
    assert await names(name="a") == ["a"]
    assert await names(labels='{"team":"vision"}') == ["a"]
    assert await names(labels='{"team":"vision","run":"8"}') == []
    assert await names(labels='{"team":"vision"}', tenant="beta") == []
    assert await reads.jobs(JobFilter(name="c"), 1) == [JOBS[2]]


async def _one(reads: Reads) -> None:
    assert await reads.job("job-a", "acme") == (JOBS[0], '{"name": "a"}')
    assert await reads.job("job-b", None) == (JOBS[1], "{}")
    assert await reads.job("job-a", "beta") is None
    assert await reads.job("job-z", None) is None
    assert (await reads.digest("job-d"), await reads.digest("job-b")) == ("digest-d", None)


async def _events(reads: Reads) -> None:
    assert await reads.job_events("job-a", 0, 10) == [EVENTS[0], EVENTS[2]]
    assert await reads.job_events("job-a", 1, 10) == [EVENTS[2]]
    assert await reads.events(None, 0, 3) == EVENTS[:3]
    assert await reads.events("acme", 1, 10) == [EVENTS[2]]
    assert await reads.events("nobody", 0, 10) == []


async def _audit(reads: Reads) -> None:
    assert [row.seq for row in await reads.audit(None, 2)] == [9, 2]
    assert await reads.audit(2, 10) == [AUDIT[0]]


CHECKS = (_jobs, _one, _events, _audit)


@pytest.fixture
def on_database(dsn: str) -> Iterator[Callable[[Callable[[asyncpg.Pool], Awaitable[None]]], None]]:
    """Runs a story on a pool over api's empty schema."""

    def run(story: Callable[[asyncpg.Pool], Awaitable[None]]) -> None:
        async def told() -> None:
            await migrate(dsn, "api", "api", files("gpuyard_api") / "migrations")
            async with asyncpg.create_pool(dsn, min_size=0, max_size=2, server_settings={"search_path": "api"}) as pool:
                await story(pool)

        asyncio.run(told())

    yield run


async def _write(pool: asyncpg.Pool, *jobs: Job, change: Callable[[ApiStore], None] = lambda store: None) -> ApiStore:
    """Write rows as a unit of work does."""
    store = ApiStore()
    for job in jobs:
        store.jobs.put(job)
    change(store)
    async with pool.acquire() as conn, conn.transaction():
        await store.flush(conn)
    store.settle()
    return store


def _all(store: ApiStore) -> None:
    store.asks.add(*ASKS)
    store.events.add(*EVENTS)
    store.audit.add(*AUDIT)


@pytest.mark.parametrize("check", CHECKS)
def test_the_database_answers_as_agreed(on_database: Any, check: Callable[[Reads], Awaitable[None]]) -> None:
    """Paging, filters, walls between tenants."""

    async def story(pool: asyncpg.Pool) -> None:
        await _write(pool, *JOBS, change=_all)
        await check(SqlReads(pool))

    on_database(story)


@pytest.mark.parametrize("check", CHECKS)
async def test_the_memory_answers_as_agreed(check: Callable[[Reads], Awaitable[None]]) -> None:
    """The same questions, the same answers."""
    rows: dict[str, list[Any]] = {"jobs": JOBS, "job_asks": ASKS, "job_events": EVENTS, "audit": AUDIT}
    await check(MemoryReads(lambda name: rows[name]))


def test_what_was_written_is_loaded(on_database: Any) -> None:
    """Every table comes back as it was; of jobs the live ones and those that have just ended."""
    tenant = Tenant("acme", 3, "Ä", "gold", 7, None, 0, 4000, 5, 6, True, AT, AT)
    token = Token("d", "tok-1", "tenant", "acme", "ci", "gpy_abcd", AT, "operator/x", AT)
    incident = Incident("inc-1", "gpu-hot", "n1", None, "evict", "91 °C", AT)

    def change(store: ApiStore) -> None:
        store.tenants.put(tenant)
        store.tokens.put(token)
        store.incidents.put(incident)
        store.next_number("job_events")

    async def story(pool: asyncpg.Pool) -> None:
        just = _job("just", state="failed", ended_at=datetime.now(UTC))
        await _write(
            pool,
            just,
            *(job for job in JOBS if job.state != "failed"),
            _job("old", state="failed", ended_at=datetime(2020, 1, 1, tzinfo=UTC)),
            change=change,
        )
        store = ApiStore()
        async with pool.acquire() as conn:
            await store.load(conn)
        store.loaded()
        assert {job.name for job in store.jobs.values()} == {"a", "b", "d", "just"}
        assert store.jobs["job-b"] == JOBS[1]
        assert (store.tenants.values(), store.tokens.values(), store.incidents.values()) == ([tenant], [token], [incident])
        assert store.next_number("job_events") > 1

    on_database(story)


@pytest.mark.parametrize(
    ("late", "state"),
    [
        (_job("x", state="running", version=7), "failed"),
        (_job("x", state="running", version=11), "failed"),
        (_job("x", state="queued", version=7), "failed"),
    ],
)
def test_the_database_does_not_let_an_ended_job_go_back(on_database: Any, late: Job, state: str) -> None:
    """B60: not even a start that comes when the job has left the memory, be it older or younger."""

    async def story(pool: asyncpg.Pool) -> None:
        await _write(pool, _job("x", state="failed", version=9, ended_at=AT))
        await _write(pool, late)
        assert [job.state for job in await SqlReads(pool).jobs(JobFilter(), 10)] == [state]

    on_database(story)


def test_the_database_lets_a_rejected_request_be_taken(on_database: Any) -> None:
    """The one way out of an end; and a name that is learnt late is written without changing the rest."""

    async def story(pool: asyncpg.Pool) -> None:
        await _write(pool, _job("x", state="rejected", version=3, ended_at=AT), _job("y", state="failed", version=9, ended_at=AT))
        await _write(pool, _job("x", version=5), replace(_job("y", state="failed", version=9, ended_at=AT), name="learnt"))
        assert {(job.name, job.state) for job in await SqlReads(pool).jobs(JobFilter(), 10)} == {("x", "queued"), ("learnt", "failed")}

    on_database(story)


def test_old_events_are_pruned_and_young_ones_stay(on_database: Any) -> None:
    """Only what came before everything young: cursors never lose their order."""

    async def story(pool: asyncpg.Pool) -> None:
        old = [replace(EVENTS[0], seq=number, at=AT - timedelta(days=40)) for number in range(1, 12)]
        await _write(pool, change=lambda store: store.events.add(*old, replace(EVENTS[0], seq=20)))
        reads = SqlReads(pool)
        await reads.prune(AT - timedelta(days=30))
        assert [event.seq for event in await reads.events(None, 0, 100)] == [20]
        await reads.prune(AT - timedelta(days=30))
        assert len(await reads.events(None, 0, 100)) == 1

    on_database(story)


def test_a_pool_that_has_no_server_is_unavailable() -> None:
    """And not an error of ours."""

    async def story() -> None:
        async with asyncpg.create_pool("postgresql://x@127.0.0.1:1/x", min_size=0) as pool:
            with pytest.raises(Unavailable, match="database"):
                await SqlReads(pool).job("job-a", None)

    asyncio.run(story())
