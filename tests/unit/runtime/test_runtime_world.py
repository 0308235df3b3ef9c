"""The simulation itself: the same seed gives the same history, and no fault loses or doubles an effect."""

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest
from gpuyard_contracts.messages.monitor import IncidentClosedV1, IncidentOpenedV1
from gpuyard_contracts.types import incident_id_of
from gpuyard_runtime.service import Tick
from gpuyard_runtime.testing import Faults, World
from gpuyard_runtime.testing.memory_bus import MemoryBus
from gpuyard_runtime.testing.world import Actor
from gpuyard_runtime.work import Delivery

from tests.support.toy_service import ToyStore, toy_durable, toy_service

AT = datetime(2030, 1, 1, tzinfo=UTC)
ALL_FAULTS = Faults(crash=0.2, again=0.2, shuffle=0.3, lose_ack=0.2)


def opened(number: int, node: str = "") -> IncidentOpenedV1:
    return IncidentOpenedV1(
        incident_id=incident_id_of("n", "x", str(number), AT),
        kind="gpu-hot",
        node_id=node or f"n{number % 3}",
        action="none",
        evidence="",
        opened_at=AT,
    )


def history(seed: int, tmp_path: Path, faults: Faults = ALL_FAULTS) -> World:
    world = World([toy_service(tmp_path)], seed=seed, faults=faults)
    for number in range(30):
        world.publish(opened(number))
        world.step()
    rest(world)
    return world


def rest(world: World) -> None:
    """Until nothing happens any more, even after all acknowledgement times."""
    while any(durable.pending() for durable in world.bus.durables.values()) or any(found.outbox for found in world.databases.values()):
        world.settle()
        world.advance(31)


@pytest.mark.parametrize("seed", range(25))
def test_every_effect_happens_once_whatever_goes_wrong(seed: int, tmp_path: Path) -> None:
    world = history(seed, tmp_path)
    database = world.databases["toy"]
    assert sum(node.incidents for node in database.tables["nodes"].values()) == 30
    assert len(database.journals["history"]) == 30
    closed = Counter(
        message.headers["ce-id"]
        for message in world.bus.streams["EVT_MONITOR"].messages.values()
        if message.headers["ce-type"] == IncidentClosedV1.TYPE
    )
    assert len(closed) == 30
    assert world.failures == []


def test_a_seed_gives_the_same_history_again(tmp_path: Path) -> None:
    first, second, other = history(7, tmp_path), history(7, tmp_path), history(8, tmp_path)
    assert first.log == second.log
    assert first.log != other.log
    assert any("dies" in line for line in first.log)


def test_poison_under_all_faults_leaves_letters_of_one_id_for_each(tmp_path: Path) -> None:
    world = World([toy_service(tmp_path)], seed=3, faults=ALL_FAULTS)
    for number in range(20):
        world.publish(opened(number, "poison" if number % 4 == 0 else ""))
    rest(world)
    letters = {message.headers["ce-id"] for message in world.bus.streams["DLQ"].messages.values()}
    assert len(letters) == 5
    assert len(world.databases["toy"].journals["history"]) == 15


def test_what_asks_for_later_is_handled_when_it_can_be_and_in_order(tmp_path: Path) -> None:
    world = World([toy_service(tmp_path)], seed=1)
    world.publish(opened(1, "later"))
    world.publish(opened(2, "n1"))
    world.settle()
    world.advance(1)
    world.settle()
    assert world.databases["toy"].journals.get("history", []) == []
    store: ToyStore = world.store("toy")
    store.is_closed = True
    world.advance(60)
    world.settle()
    assert [line.node for line in world.databases["toy"].journals["history"]] == ["later", "n1"]


def test_a_tick_is_due_by_the_clock_and_missed_beats_are_not_made_up_for(tmp_path: Path) -> None:
    beats: list[datetime] = []
    world = World([toy_service(tmp_path, ticks=(Tick("beat", 10.0, lambda tx: beats.append(tx.now)),))], seed=1)
    world.settle()
    assert beats == []
    world.advance(35)
    world.settle()
    assert len(beats) == 1


def test_a_full_stream_holds_what_was_said_until_there_is_room(tmp_path: Path) -> None:
    world = World([toy_service(tmp_path)], seed=1)
    world.publish(opened(1))
    world.bus.streams["EVT_MONITOR"].is_full = True
    for _ in range(20):
        world.step()
    assert len(world.databases["toy"].outbox) == 1
    world.bus.streams["EVT_MONITOR"].is_full = False
    rest(world)
    assert len(world.bus.streams["EVT_MONITOR"].messages) == 2


def test_an_actor_that_is_no_service_takes_part(tmp_path: Path) -> None:
    world = World([toy_service(tmp_path)], seed=1)
    got: list[Delivery] = []
    durable = toy_durable(("gpuyard.evt.monitor.incident.closed.v1.>",))
    world.add_actor(Actor("listener", type(durable)("listener", "EVT_MONITOR", "listener", durable.filters), got.append))
    world.publish(opened(1))
    rest(world)
    assert [delivery.subject.split(".")[4] for delivery in got] == ["closed"]


def test_a_work_queue_forgets_what_is_acknowledged_and_redelivers_what_is_not() -> None:
    world = World([], seed=1)
    bus: MemoryBus = world.bus
    durable = type(toy_durable())("node-agent", "CMD_NODE", "node-agent-n1", ("gpuyard.cmd.node-agent.n1.>",))
    for number in (1, 2):
        bus.publish_raw(f"gpuyard.cmd.node-agent.n1.start.v{number}", b"{}")
    first, _ = bus.pull(durable, 10)
    first.ack()
    assert bus.pull(durable, 10) == []
    world.advance(31)
    assert [delivery.sequence for delivery in bus.pull(durable, 10)] == [2]
    assert list(bus.streams["CMD_NODE"].messages) == [2]


def test_a_state_reader_sees_the_last_of_each_subject_first() -> None:
    bus = World([], seed=1).bus
    for place, value in (("a", b"1"), ("b", b"2"), ("a", b"3")):
        bus.publish_raw(f"gpuyard.state.node.v1.{place}", value)
    reader = bus.open_reader("FLEET", ["gpuyard.state.node.v1.*"], is_state=True)
    assert [(delivery.subject[-1], delivery.body) for delivery in bus.read(reader, 10)] == [("b", b"2"), ("a", b"3")]
    assert reader.is_caught_up
