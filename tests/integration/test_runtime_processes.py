"""The toy as real processes: killed, doubled, fenced, denied, drained; and how each of them ends."""

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from gpuyard_local.nats import Nats
from gpuyard_runtime import intake
from gpuyard_runtime.faults import EXIT_CONFIG, EXIT_FENCED, EXIT_FORBIDDEN, EXIT_OK
from gpuyard_runtime.running import Running
from gpuyard_runtime.settings import ServiceSettings
from pydantic import SecretStr

from tests.support.servers import OPEN_CONFIG, start_nats
from tests.support.toy_service import toy_durable, toy_service
from tests.support.toy_stack import Stack, opened, toy_stack, until


@pytest.fixture
async def stack(tmp_path: Path, own_nats: Nats, dsn: str) -> AsyncIterator[Stack]:
    """A bus of the test's own with the toy's durable, and an empty database."""
    async with toy_stack(tmp_path, own_nats.url, dsn) as made:
        yield made


async def test_kill_9_again_and_again_in_mid_batch_loses_and_doubles_nothing(stack: Stack) -> None:
    total = 2000
    process = await stack.process(GPUYARD_UNIT_SIZE="40")
    try:
        await until("the schema is there", lambda: _has_history(stack))
        publishing = asyncio.create_task(stack.publish([opened(number) for number in range(total)]))
        for part in (1, 2, 3):
            await until("some are done", lambda part=part: _has(stack, total * part // 5))
            process.kill()
            await process.communicate()
            process = await stack.process(GPUYARD_UNIT_SIZE="40")
        await publishing
        await until("everything is done", stack.is_done)
    finally:
        process.kill()
        await process.communicate()
    assert await stack.count("history") == await stack.count("inbox") == total
    assert (await stack.query("select sum(incidents) from nodes"))[0][0] == total
    ids = await stack.closed_ids()
    assert len(ids) == len(set(ids)) == total


async def _has_history(stack: Stack) -> bool:
    return (await stack.query("select to_regclass('toy.history')"))[0][0] is not None


async def _has(stack: Stack, wanted: int) -> bool:
    return await stack.count("history") >= wanted


async def test_sigterm_drains_and_exits_zero_with_nothing_in_doubt(stack: Stack) -> None:
    await stack.publish([opened(number) for number in range(200)])
    process = await stack.process()
    port_file = stack.folder / "port"
    await until("the port is told", port_file.exists)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port_file.read_text()}") as client:
        assert (await client.get("/livez")).status_code == 200
        await until("it is ready", lambda: _answers(client, "/readyz", 200))
        await until("all are handled", lambda: _has(stack, 200))
        metrics = (await client.get("/metrics")).text
        assert f'gpuyard_handled_total{{type="{opened(0).type}"}} 200.0' in metrics
        assert "gpuyard.evt.monitor.incident.opened.v1._" not in metrics
        assert (await client.get("/nothing")).status_code == 404
    process.terminate()
    _, errors = await process.communicate()
    assert process.returncode == EXIT_OK
    assert b"stopped" in errors
    assert await stack.is_done()


async def _answers(client: httpx.AsyncClient, path: str, code: int) -> bool:
    return (await client.get(path)).status_code == code


async def test_a_standby_takes_over_when_the_leader_goes(stack: Stack) -> None:
    async with stack.running() as first:
        second = Running(toy_service(stack.folder), stack.settings())
        task = asyncio.create_task(second.serve(None))
        await until("it stands by", lambda: "standby" in second.health.reasons().get("leadership", ""))
        await stack.publish([opened(1)])
        await until("the leader works", stack.is_done)
        first.stop()
        await until("the standby works", lambda: second.health.is_ready)
        await stack.publish([opened(2)])
        await until("the new leader works", lambda: _has(stack, 2))
        second.stop()
        assert await task == EXIT_OK


async def test_a_process_that_no_longer_leads_ends_before_it_writes(stack: Stack) -> None:
    made = Running(toy_service(stack.folder), stack.settings())
    task = asyncio.create_task(made.serve(None))
    await until("it works", lambda: made.health.is_ready)
    await stack.query("update runtime_leader set epoch = epoch + 1")
    await stack.publish([opened(1)])
    assert await task == EXIT_FENCED
    assert await stack.count("history") == 0


async def test_a_durable_that_is_gone_makes_it_unready_and_then_end(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "GONE_SECONDS", 1.0)
    service = toy_service(stack.folder, durables=(toy_durable(ack_wait_seconds=0.6),))
    made = Running(service, stack.settings())
    task = asyncio.create_task(made.serve(None))
    await until("it works", lambda: made.health.is_ready)
    await stack.operator.api("CONSUMER.DELETE.EVT_MONITOR.toy-evt-monitor")
    await until("it says so", lambda: "durable toy-evt-monitor" in made.health.reasons() or task.done())
    assert await task == EXIT_CONFIG


async def test_a_denied_subject_ends_the_process(tmp_path: Path, dsn: str) -> None:
    users = """
    accounts {{ APP {{ jetstream: enabled, users: [
      {{ user: "operator", password: "o" }},
      {{ user: "toy", password: "t", permissions {{ publish: {{ deny: "gpuyard.evt.>" }} }} }} ] }} }}
    """
    folder = tmp_path / "users"
    folder.mkdir()
    server = start_nats(folder, OPEN_CONFIG + users)
    try:
        async with toy_stack(tmp_path, server.url.replace("//", "//operator:o@"), dsn) as stack:
            settings = ServiceSettings(
                nats_url=server.url, nats_user="toy", nats_password=SecretStr("t"), postgres_dsn=SecretStr(dsn), drain_seconds=0.1
            )
            task = asyncio.create_task(Running(toy_service(tmp_path), settings).serve(None))
            await stack.publish([opened(1)])
            assert await task == EXIT_FORBIDDEN
            wrong = settings.model_copy(update={"nats_password": SecretStr("no")})
            assert await Running(toy_service(tmp_path), wrong).serve(None) == EXIT_FORBIDDEN
    finally:
        server.stop()


async def test_a_migration_that_was_changed_ends_the_process(stack: Stack) -> None:
    async with stack.running():
        pass
    service = toy_service(stack.folder)
    (stack.folder / "toy_migrations" / "0001_nodes.sql").write_text("create table other (id text)")
    assert await Running(service, stack.settings()).serve(None) == EXIT_CONFIG


async def test_a_wrong_setting_is_named_and_no_secret_is_shown(stack: Stack) -> None:
    process = await stack.process(GPUYARD_HTTP_PORT="eleven", GPUYARD_NATS_PASSWORD="hidden")
    _, errors = await process.communicate()
    assert process.returncode == EXIT_CONFIG
    assert b"GPUYARD_HTTP_PORT" in errors
    assert b"hidden" not in errors


async def test_sigterm_while_nothing_can_be_reached_ends_it_too(stack: Stack) -> None:
    process = await stack.process(GPUYARD_POSTGRES_DSN="postgresql://x:y@127.0.0.1:1/none", GPUYARD_NATS_URL="nats://127.0.0.1:1")
    port_file = stack.folder / "port"
    await until("the port is told", port_file.exists)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port_file.read_text()}") as client:
        await until("it says what is away", lambda: _says(client, "database"))
    process.send_signal(signal.SIGTERM)
    await process.communicate()
    assert process.returncode == EXIT_OK


async def _says(client: httpx.AsyncClient, part: str) -> bool:
    return part in (await client.get("/readyz")).json()["reasons"]
