"""The delivery policy on a real bus and a real database: each effect once, the culprit alone, nothing lost when things are away."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from gpuyard_contracts.envelope import Ask, Shape
from gpuyard_contracts.messages.api import TenantStateV1
from gpuyard_contracts.messages.asks import ProblemV1
from gpuyard_local.nats import Nats
from gpuyard_local.postgres import Postgres
from gpuyard_runtime.faults import Refused
from gpuyard_runtime.frames import outgoing, pack
from gpuyard_runtime.saying import enveloped
from gpuyard_runtime.service import Tx

from tests.support.toy_service import Node, ToyStore, closed, toy_service
from tests.support.toy_stack import AT, Stack, opened, toy_stack, until


@pytest.fixture
async def stack(tmp_path: Path, own_nats: Nats, dsn: str) -> AsyncIterator[Stack]:
    """A bus of the test's own with the toy's durable, and an empty database."""
    async with toy_stack(tmp_path, own_nats.url, dsn) as made:
        yield made


async def test_what_waits_is_handled_once_published_and_acknowledged(stack: Stack) -> None:
    await stack.publish([opened(number) for number in range(500)])
    async with stack.running() as toy:
        await until("everything is done", stack.is_done)
        assert sum(node.incidents for node in toy.store.nodes.values()) == 500
    assert await stack.count("history") == await stack.count("inbox") == 500
    ids = await stack.closed_ids()
    assert len(ids) == len(set(ids)) == 500


async def test_culprits_are_dead_lettered_alone_and_once(stack: Stack) -> None:
    culprits = [opened(100, "poison"), opened(101, "bug"), opened(102, "refused-by-database")]
    await stack.publish([opened(1), *culprits, opened(2)])
    await stack.operator.send("gpuyard.evt.monitor.incident.opened.v1._.inc-x", b"{not json", {"ce-id": "stranger"})
    async with stack.running():
        await until("everything is done", stack.is_done)
    letters = await stack.letters()
    assert sorted(text.split('"reason":"')[1].split('"')[0] for text in letters) == [
        "bad-json",
        "cursed",
        "handler-failed",
        "handler-failed",
    ]
    assert await stack.count("history") == 2
    assert await stack.count("inbox") == 6
    assert "nodes_incidents_check" in "".join(letters)


async def test_what_must_wait_holds_its_lane_and_says_so(stack: Stack) -> None:
    await stack.publish([opened(1, "later")])
    await stack.publish([opened(2)])
    async with stack.running() as toy:
        await until("it says that it waits", lambda: "toy-evt-monitor" in toy.health.reasons())
        assert await toy.act(lambda tx: 7) == 7
        assert await stack.count("history") == 0
        toy.store.is_closed = True
        await until("everything is done", stack.is_done)
        await until("it is ready again", lambda: toy.health.is_ready)
    rows = await stack.query("select node from history")
    assert [row["node"] for row in rows] == ["later", "n2"]


class AskNodes(Ask):
    """How many nodes are known?"""

    SUBJECT: ClassVar[str] = "gpuyard.ask.toy.nodes.{name}"
    REPLY: ClassVar[type[Shape]] = ProblemV1

    name: str


class AskAgain(AskNodes):
    """The same, without a unit."""

    SUBJECT: ClassVar[str] = "gpuyard.ask.toy.again.{name}"


def add_node(ask: AskNodes, tx: Tx[ToyStore]) -> ProblemV1:
    """Add a node, unless it has a bad name."""
    tx.store.nodes.put(Node(ask.name, 1))
    if ask.name == "bad":
        tx.reject("bad-name", "try another")
    return ProblemV1(problem=str(len(tx.store.nodes)))


async def count_nodes(ask: AskAgain, reading: Any) -> ProblemV1:
    """From the database, not from memory."""
    return ProblemV1(problem=str(await reading.db.fetchval("select count(*) from nodes")))


async def test_asks_are_answered_after_the_commit_and_a_bad_one_disturbs_nobody(stack: Stack) -> None:
    service = toy_service(stack.folder, asks={AskNodes: add_node}, inquiries={AskAgain: count_nodes})
    async with stack.running(service):
        names = [f"n{number}" for number in range(50)]
        answers = await asyncio.gather(*(stack.operator.ask(AskNodes(name=name), seconds=20) for name in names))
        with pytest.raises(Refused, match="bad-name"):
            await stack.operator.ask(AskNodes(name="bad"), seconds=20)
        assert sorted(int(answer.problem) for answer in answers) == list(range(1, 51))
        assert (await stack.operator.ask(AskAgain(name="x"), seconds=20)).problem == "50"
        got = await stack.operator.client.request("gpuyard.ask.toy.nodes.x", b"[]", timeout=20)
        assert got.headers == {"problem": "bad-json"}


async def test_acts_share_units_and_each_gets_its_own_error(stack: Stack) -> None:
    async with stack.running() as toy:

        def add(number: int, tx: Tx[ToyStore]) -> int:
            tx.store.nodes.put(Node(f"n{number}", 1))
            if number % 10 == 0:
                raise LookupError(number)
            return number

        results = await asyncio.gather(
            *(toy.act(lambda tx, number=number: add(number, tx)) for number in range(100)), return_exceptions=True
        )
        assert [str(found) for found in results if isinstance(found, LookupError)] == [str(number) for number in range(0, 100, 10)]
    assert await stack.count("nodes") == 90


async def test_state_is_read_to_its_end_before_anything_is_handled(stack: Stack) -> None:
    states = [TenantStateV1(tenant=f"t{number}", version=1, name="t") for number in range(300)]
    await stack.publish([enveloped(state, source="test", at=AT, event_id=opened(0).id) for state in states])
    await stack.publish([opened(1)])
    heard: list[str] = []
    at_first: list[int] = []
    service = toy_service(
        stack.folder,
        hears={TenantStateV1: lambda event, tx: heard.append(event.data.tenant)},
        after_unit=lambda tx: at_first.append(len(heard)) if len(tx.store.nodes) and not at_first else None,
    )
    async with stack.running(service):
        await until("everything is done", stack.is_done)
        assert at_first == [300]
        await stack.publish([enveloped(states[0].model_copy(update={"version": 2}), source="test", at=AT, event_id=opened(0).id)])
        await until("a change is heard", lambda: len(heard) == 301)


async def test_what_an_earlier_life_left_in_the_outbox_is_published_first(stack: Stack) -> None:
    async with stack.running():
        pass
    left = enveloped(closed(opened(1).data), source="toy", at=AT, event_id=opened(1).id)
    await stack.query("insert into outbox (content) values ($1)", pack([outgoing(left)]))
    async with stack.running():
        await until("everything is done", stack.is_done)
    assert await stack.closed_ids() == [left.id]


async def test_a_full_stream_is_waited_for_and_loses_nothing(stack: Stack) -> None:
    await stack.publish([opened(number) for number in range(20)])
    info = await stack.operator.api("STREAM.INFO.EVT_MONITOR")
    full = info["config"] | {"max_bytes": info["state"]["bytes"]}
    await stack.operator.api("STREAM.UPDATE.EVT_MONITOR", full)
    async with stack.running() as toy:
        await until("it says that the stream is full", lambda: "maximum bytes" in toy.health.reasons().get("outbox", ""))
        assert await stack.count("history") == 20
        await stack.operator.api("STREAM.UPDATE.EVT_MONITOR", info["config"])
        await until("everything is done", stack.is_done)
        await until("it is ready again", lambda: toy.health.is_ready)
    assert len(set(await stack.closed_ids())) == 20


async def test_a_bus_that_is_away_is_waited_for_and_loses_nothing(stack: Stack, own_nats: Nats) -> None:
    async with stack.running() as toy:
        await stack.publish([opened(number) for number in range(50)])
        await until("everything is done", stack.is_done)
        own_nats.kill()
        await until("it says that the bus is away", lambda: "bus" in toy.health.reasons())
        await toy.act(lambda tx: tx.say(closed(opened(1000).data), once="said while the bus was away") and None)
        own_nats.start()
        await until("it is ready again", lambda: toy.health.is_ready)
        await until("the operator is back", lambda: stack.operator.is_connected)
        await stack.publish([opened(number) for number in range(50, 100)])
        await until("everything is done", stack.is_done)
    ids = await stack.closed_ids()
    assert len(ids) == len(set(ids)) == 101


async def test_a_database_that_is_away_is_waited_for_and_loses_nothing(stack: Stack, shared_postgres: Postgres) -> None:
    async with stack.running() as toy:
        await stack.publish([opened(number) for number in range(50)])
        await until("everything is done", stack.is_done)
        shared_postgres.kill()
        try:
            await stack.publish([opened(number) for number in range(50, 100)])
            await until("it says that the database is away", lambda: "database" in toy.health.reasons())
        finally:
            shared_postgres.start()
        await until("everything is done", stack.is_done)
        await until("it is ready again", lambda: toy.health.is_ready)
    assert await stack.count("history") == 100
    assert len(set(await stack.closed_ids())) == 100
