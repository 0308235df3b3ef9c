"""The api over real HTTP, a real bus and a real database: what the memory harness cannot show."""

import asyncio
import contextlib
import signal
import stat
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest
from gpuyard_contracts.messages.node import LogLinesV1
from gpuyard_local.nats import Nats

from tests.support.api_stack import ApiStack, api_stack, events_of
from tests.support.api_yard import SPEC, ended, node_state, placing
from tests.support.toy_stack import ROOT, Stack, until

SSE = {"accept": "text/event-stream"}


@pytest.fixture
async def stack(tmp_path: Path, own_nats: Nats, dsn: str) -> AsyncIterator[ApiStack]:
    async with api_stack(tmp_path, own_nats.url, dsn) as made:
        yield made


@contextlib.asynccontextmanager
async def scheduling(stack: ApiStack) -> AsyncIterator[None]:
    """A scheduler that takes every request."""
    task = asyncio.create_task(stack.accept_all())
    yield
    task.cancel()
    await asyncio.wait([task])


async def test_a_job_from_request_to_end(stack: ApiStack) -> None:
    """Asked for with `wait`, taken, followed live, ended, listed; and all of it still there after a restart."""
    async with stack.running():
        await stack.tenant()
        async with scheduling(stack), stack.client("acme") as client:
            made = await client.post("/v1/jobs?wait=60", json=SPEC | {"gpu": "A100:0.5", "labels": {"team": "größer"}})
            assert (made.status_code, made.json()["state"]) == (201, "queued"), made.text
            job_id = made.json()["job_id"]
            async with client.stream("GET", f"/v1/jobs/{job_id}/events?until_end=true", headers=SSE) as live:
                names: list[str] = []
                async for event in events_of(live):
                    names.append(event["name"])
                    if event["name"] == "job.queued":
                        now = datetime.now(UTC)
                        await stack.tell(placing(job_id, "acme", now), ended(job_id, "acme", now))
            assert names == ["job.submit", "job.queued", "job.placing", "job.ended"]
        before = await _story(stack, job_id)
    async with stack.running():
        assert await _story(stack, job_id) == before
    assert before[0]["spec"]["gpu"]["milli"] == 500


async def _story(stack: ApiStack, job_id: str) -> list[Any]:
    async with stack.client("acme") as client:
        paths = (
            f"/v1/jobs/{job_id}",
            f"/v1/jobs/{job_id}/events",
            f"/v1/jobs/{job_id}/trace",
            "/v1/jobs?state=succeeded&label=team=größer",
        )
        answers = [await client.get(path) for path in paths]
    assert [answer.status_code for answer in answers] == [200] * len(paths)
    assert [row["job_id"] for row in answers[-1].json()["jobs"]] == [job_id]
    return [answer.json() for answer in answers]


async def test_twenty_at_once_make_one_job(stack: ApiStack) -> None:
    """Over as many connections; one request lies on the bus."""
    async with stack.running():
        await stack.tenant()
        async with stack.client("acme") as client:
            answers = await asyncio.gather(*(client.post("/v1/jobs", json=SPEC, headers={"idempotency-key": "k"}) for _ in range(20)))
            assert {answer.status_code for answer in answers} == {202}
            assert len({answer.json()["job_id"] for answer in answers}) == 1
            other = await client.post("/v1/jobs", json=SPEC | {"name": "other"}, headers={"idempotency-key": "k"})
            assert other.status_code == 409
        await until("the request is on the bus", lambda: _count(stack, 1))
    async with stack.running(), stack.client("acme") as client:
        again = await client.post("/v1/jobs", json=SPEC, headers={"idempotency-key": "k"})
        assert again.json()["job_id"] == answers[0].json()["job_id"]
        await until("still one", lambda: _count(stack, 1))


async def _count(stack: ApiStack, wanted: int) -> bool:
    return len(await stack.requests()) == wanted


async def test_the_first_token_is_its_owners_and_stays(stack: ApiStack) -> None:
    """Made once, readable by nobody else, kept in the database as a digest only."""
    path = stack.folder / "admin.token"
    async with stack.running():
        token = path.read_text().strip()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.unlink()
    async with contextlib.AsyncExitStack() as closing:
        path.write_text(token)  # for the client of the test; the api needs it no more
        await closing.enter_async_context(stack.running())
        async with stack.client() as client:
            assert (await client.get("/v1/me")).json()["role"] == "admin"
    assert len(await stack.query("select 1 from tokens")) == 1
    assert token not in str(await stack.query("select * from tokens")) + str(await stack.query("select * from audit"))


async def test_a_revoked_tokens_live_stream_ends(stack: ApiStack) -> None:
    """While it waits for the next event."""
    async with stack.running():
        await stack.tenant()
        async with stack.client("acme") as client, stack.client() as admin:
            job_id = (await client.post("/v1/jobs", json=SPEC)).json()["job_id"]
            token_id = (await client.get("/v1/me")).json()["token_id"]
            async with client.stream("GET", f"/v1/jobs/{job_id}/events", headers=SSE) as live:
                events = events_of(live)
                assert (await anext(events))["name"] == "job.submit"
                await admin.delete(f"/v1/tenants/acme/tokens/{token_id}")
                assert [event async for event in events] == []


async def test_a_tenants_stream_resumes_over_a_restart(stack: ApiStack) -> None:
    """The cursor means the same afterwards: nothing twice, nothing missing."""
    async with stack.running():
        await stack.tenant()
        async with stack.client("acme") as client:
            first = (await client.post("/v1/jobs", json=SPEC)).json()["job_id"]
            async with client.stream("GET", "/v1/events?after=0", headers=SSE) as live:
                seen = await anext(events_of(live))
            assert seen["job_id"] == first
    async with stack.running(), stack.client("acme") as client:
        second = (await client.post("/v1/jobs", json=SPEC)).json()["job_id"]
        async with client.stream("GET", "/v1/events", headers=SSE | {"last-event-id": str(seen["seq"])}) as live:
            assert (await anext(events_of(live)))["job_id"] == second


async def test_output_is_read_and_followed(stack: ApiStack) -> None:
    """From the stream of logs, of one job, in order; a follower ends after the job."""
    async with stack.running():
        await stack.tenant()
        async with scheduling(stack), stack.client("acme") as client:
            job_id = (await client.post("/v1/jobs?wait=60", json=SPEC)).json()["job_id"]
            other = (await client.post("/v1/jobs?wait=60", json=SPEC)).json()["job_id"]
            assert (await client.get(f"/v1/jobs/{job_id}/logs")).text == ""
            await stack.tell(_log(job_id, 0, "a", "b"), _log(other, 0, "not mine"), _log(job_id, 0, "a", "b"))
            assert (await client.get(f"/v1/jobs/{job_id}/logs?tail=1")).text == "b\n"
            async with client.stream("GET", f"/v1/jobs/{job_id}/logs?follow=true") as live:
                lines = live.aiter_lines()
                assert [await anext(lines) for _ in range(2)] == ["a", "b"]
                await stack.tell(_log(job_id, 2, "größer"))
                assert await anext(lines) == "größer"
                await stack.tell(ended(job_id, "acme", datetime.now(UTC)))
                assert [line async for line in lines] == []


def _log(job_id: str, first: int, *lines: str) -> LogLinesV1:
    return LogLinesV1(
        node_id="n1", tenant="acme", job_id=job_id, attempt=1, rank=0, stream="stdout", first_line=first, lines=lines, at=datetime.now(UTC)
    )


async def test_a_database_that_hangs_is_a_503_and_not_a_hang(stack: ApiStack) -> None:
    """A table that is locked away stands for any database that does not answer; what is in memory is still answered."""
    async with stack.running() as running:
        await stack.tenant()
        async with stack.client("acme") as client:
            job_id = (await client.post("/v1/jobs", json=SPEC)).json()["job_id"]
            conn = await asyncpg.connect(stack.dsn, server_settings={"search_path": "api"})
            try:
                async with conn.transaction():
                    await conn.execute("lock table jobs in access exclusive mode")
                    reading, writing, memory = await asyncio.gather(
                        client.get(f"/v1/jobs/{job_id}"), client.post("/v1/jobs", json=SPEC), client.get("/v1/me")
                    )
            finally:
                await conn.close()
            assert (reading.status_code, reading.json()["code"]) == (503, "database-unavailable")
            assert (writing.status_code, writing.json()["code"]) == (503, "database-unavailable")
            assert memory.status_code == 200
            await until("it is well again", lambda: _is_ok(client, f"/v1/jobs/{job_id}"))
        assert running.health.is_ready


async def _is_ok(client: httpx.AsyncClient, path: str) -> bool:
    return (await client.get(path)).status_code == 200


async def test_without_the_bus_requests_are_kept(stack: ApiStack, own_nats: Nats) -> None:
    """202, since it is committed; questions to others are a 503; when the bus is back the request is on it, once."""
    async with stack.running() as running:
        await stack.tenant()
        async with stack.client("acme") as client:
            own_nats.kill()
            await until("the bus is missed", lambda: not running.health.is_ready)
            made = await client.post("/v1/jobs", json=SPEC)
            assert made.status_code == 202, made.text
            assert (await client.get("/v1/queue")).json()["code"] == "scheduler-unavailable"
            assert (await client.get(f"/v1/jobs/{made.json()['job_id']}/logs")).status_code == 503
            assert (await client.get("/v1/health")).status_code == 503
            own_nats.start()
            await until("it is well again", lambda: running.health.is_ready)
            await until("the request is on the bus", lambda: _count(stack, 1))


async def test_nodes_are_known_after_every_start(stack: ApiStack) -> None:
    """From the last state of each on the bus."""
    now = datetime.now(UTC)
    await stack.tell(node_state(version=1, at=now), node_state(version=2, at=now, status="unknown"), node_state("t4-01", at=now))
    for _ in range(2):
        async with stack.running(), stack.client() as client:
            nodes = (await client.get("/v1/nodes")).json()["nodes"]
            assert [(node["node_id"], node["status"]) for node in nodes] == [("a100-01", "unknown"), ("t4-01", "ready")]


async def test_the_past_is_not_loaded(stack: ApiStack) -> None:
    """A hundred thousand ended jobs lie in the database, none of them in memory; they are listed all the same."""
    async with stack.running():
        await stack.tenant()
    await stack.query(
        """insert into jobs select 'job-' || translate(lpad(n::text, 16, '0'), '0189', 'abcd'), 'acme', 'old', 'succeeded',
           now() - n * interval '1 minute' - interval '1 hour', now(), n, '', '', 1, 1, 'normal', '{}', '[]', false, null,
           now() - interval '1 hour', 0 from generate_series(1, 100000) n"""
    )
    async with stack.running() as running, stack.client("acme") as client:
        assert len(running.store.jobs) == 0
        assert len((await client.get("/v1/jobs?limit=500")).json()["jobs"]) == 500


async def test_the_process_stops_in_order_with_a_stream_open(stack: ApiStack) -> None:
    """SIGTERM: the stream ends, the exit is clean, and the log has no token in it."""
    port_file = stack.folder / "api.port"
    settings = {
        "GPUYARD_API_PORT": "0", "GPUYARD_API_PORT_FILE": str(port_file), "GPUYARD_ADMIN_TOKEN_FILE": str(stack.folder / "admin.token"),
    }  # fmt: skip
    environment = Stack(stack.folder, stack.settings.nats_url, stack.dsn, stack.operator).environment(**settings)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gpuyard_api", env=environment, cwd=ROOT, stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    try:
        await until("it serves", port_file.exists)
        stack.tokens["admin"] = (stack.folder / "admin.token").read_text().strip()
        async with stack.client() as client:
            await until("it is ready", lambda: _is_ok(client, "/v1/health"))
            async with client.stream("GET", "/v1/events", headers=SSE) as live:
                process.send_signal(signal.SIGTERM)
                assert [event async for event in events_of(live)] == []
        _, errors = await process.communicate()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    assert process.returncode == 0, errors.decode()
    assert stack.tokens["admin"] not in errors.decode()
