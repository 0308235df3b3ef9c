"""Watching cards: simulated machines, faults, hangs; heartbeats and usage go on meanwhile."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gpuyard_contracts.envelope import Ask, Envelope
from gpuyard_contracts.messages.asks import InjectFaultAskV1
from gpuyard_contracts.messages.node import HealthEventV1, HeartbeatReplyV1, HeartbeatV1, TelemetryV1, UsageTickV1, WorkloadEndedV1
from gpuyard_node_agent import mapping, ticks
from gpuyard_node_agent.backends.profiles import PROFILES, uuid_of
from gpuyard_node_agent.backends.simulated import SimulatedBackend
from gpuyard_node_agent.domain.kernel_log import XidLine
from gpuyard_node_agent.domain.model import Card, Machine, Slice, State, Workload
from gpuyard_node_agent.observer import Observer, merge
from gpuyard_runtime.faults import Unavailable

from tests.unit.node_agent.agent_world import CARDS, JOB, NODE, OTHER, START, World


class Watch:
    """A node with a simulated machine under observation."""

    def __init__(self, folder: Path, profile: str = "4xT4") -> None:
        self.world = World(folder)
        self.node = self.world.agent
        self.node.machine = None
        self.backend = SimulatedBackend(PROFILES[profile], NODE, self.world.clock)
        self.published: list[TelemetryV1] = []
        self.folder = folder
        self.observer = self.make()

    def make(self) -> Observer:
        """An observer of this node."""
        return Observer(
            self.node, self.backend, self._publish, inventory=self.folder / "inventory.json", deadline_seconds=0.05, room=(48_000, 196_608)
        )

    async def _publish(self, event: Envelope[Any]) -> None:
        self.published.append(event.data)

    def inject(self, fault: Any, gpu: str | None = None, value: int | None = None) -> str:
        """Make something misbehave."""
        reply = self.backend.inject(InjectFaultAskV1(node_id=NODE, fault=fault, gpu=gpu, value=value))
        assert reply.is_done, reply.detail
        return reply.detail

    async def look(self, times: int = 1) -> TelemetryV1:
        """Sample; the last telemetry."""
        for _ in range(times):
            self.world.clock.at_ms += 2_000
            assert await self.observer.look()
        return self.published[-1]

    def told(self) -> list[tuple[str, str | None, int | None, int]]:
        """Health events so far."""
        return [(event.kind, event.gpu_uuid, event.xid, event.count) for event in self.world.said(HealthEventV1)]


@pytest.fixture
async def watch(tmp_path: Path) -> Watch:
    """Four T4 that have been found."""
    found = Watch(tmp_path)
    assert await found.observer.discover()
    return found


async def test_a_profile_is_found_as_a_machine(watch: Watch, tmp_path: Path) -> None:
    """Cards with stable UUIDs; NVLink where the profile has it."""
    assert watch.node.machine is not None
    assert [(card.uuid, card.model, card.memory_mib, card.links) for card in watch.node.machine.cards] == [
        (f"GPU-sim-n1-{index}", "T4", 15_360, ()) for index in range(4)
    ]
    (tmp_path / "a").mkdir()
    other = Watch(tmp_path / "a", "8xA100-80GB")
    await other.observer.discover()
    assert other.node.machine is not None
    first = other.node.machine.cards[0]
    assert (first.model, first.memory_mib, len(first.links), len(other.node.machine.cards)) == ("A100-80GB", 81_920, 7, 8)


async def test_cards_warm_up_under_load_and_cool_down_after_it(watch: Watch) -> None:
    """Load, power and utilisation follow who holds the card."""
    watch.node.store.put(_held(watch, uuid_of(NODE, 1)))
    busy = {sample.gpu_uuid: sample for sample in (await watch.look(40)).gpus}
    assert busy[uuid_of(NODE, 1)].temperature_c == 72
    assert busy[uuid_of(NODE, 0)].temperature_c == 36
    assert (busy[uuid_of(NODE, 1)].utilization_percent, busy[uuid_of(NODE, 0)].utilization_percent) == (94, 0)
    assert busy[uuid_of(NODE, 0)].memory_temperature_c is None
    watch.node.store.end(f"{JOB}-1.0", JOB, 1, "ended")
    assert (await watch.look(40)).gpus[1].temperature_c == 36


def _held(watch: Watch, uuid: str) -> Workload:
    order = mapping.order_of(watch.world.order().data, watch.world.order())
    return Workload(order=replace(order, slices=(Slice(uuid, 1000, 15_360),)), state=State.RUNNING, taken_ms=0)


async def test_heat_stays_until_it_recovers(watch: Watch) -> None:
    """Only on the card that was named, by index or UUID."""
    watch.inject("temperature", "2", 93)
    assert [sample.temperature_c for sample in (await watch.look(3)).gpus] == [36, 36, 93, 36]
    watch.inject("recover", uuid_of(NODE, 2))
    assert (await watch.look(60)).gpus[2].temperature_c == 36
    reply = watch.backend.inject(InjectFaultAskV1(node_id=NODE, fault="temperature", gpu="9"))
    assert not reply.is_done


async def test_errors_xids_and_losses_become_health_events_once(watch: Watch) -> None:
    """Each with its card; counts are differences."""
    await watch.look()
    watch.inject("ecc", "0", 3)
    watch.inject("xid", "1", 48)
    watch.inject("lost", "3")
    telemetry = await watch.look(3)
    assert watch.told() == [
        ("ecc-uncorrectable", uuid_of(NODE, 0), None, 3),
        ("gpu-lost", uuid_of(NODE, 3), None, 1),
        ("xid", uuid_of(NODE, 1), 48, 1),
    ]
    assert [sample.is_lost for sample in telemetry.gpus] == [False, False, False, True]
    assert telemetry.gpus[3].temperature_c is None
    watch.inject("recover")
    await watch.look(2)
    assert watch.told()[3:] == [("gpu-back", uuid_of(NODE, 3), None, 1)]


async def test_an_agent_that_restarts_tells_nothing_again_and_misses_nothing(watch: Watch) -> None:
    """What was seen is in the journal, by boot."""
    watch.inject("ecc", "0", 3)
    watch.inject("lost", "3")
    await watch.look()
    watch.inject("ecc", "0", 2)
    watch.world.restart()
    watch.node = watch.world.agent
    watch.node.machine = None
    watch.observer = watch.make()
    await watch.observer.discover()
    await watch.look()
    assert watch.told() == [("ecc-uncorrectable", uuid_of(NODE, 0), None, 2)]
    assert watch.node.lost == {uuid_of(NODE, 3)}


async def test_a_hung_observer_is_a_fault_of_its_own_and_old_values_are_not_repeated(watch: Watch) -> None:
    """The cards' inventory stays; nothing is published meanwhile (B45)."""
    await watch.look()
    watch.inject("hang")
    assert not await watch.observer.look()
    assert not await watch.observer.look()
    assert not await watch.observer.discover()
    assert len(watch.published) == 1
    assert watch.observer.last is None
    assert watch.observer.problem is not None
    assert watch.node.machine is not None
    assert len(watch.node.machine.cards) == 4
    watch.inject("recover")
    await watch.look()
    assert [kind for kind, *_ in watch.told()] == ["observer-hung", "observer-back"]


async def test_until_the_cards_have_been_looked_for_they_are_what_they_were_in_this_boot(watch: Watch) -> None:
    """A restart does not make cards vanish from the heartbeat; another boot may have other cards."""
    watch.node.machine = None
    watch.make().recall()
    assert watch.node.machine is not None
    watch.node.machine, watch.node.boot_id = None, "boot-2"
    watch.make().recall()
    assert watch.node.machine is None


def test_a_card_that_is_not_found_any_more_is_kept_as_known() -> None:
    """It is lost, not gone."""
    assert merge(CARDS, CARDS[:2]) == CARDS
    changed = Card(uuid="GPU-1", model="T4", memory_mib=15_000, index=1)
    assert merge(CARDS, (changed,))[1] == changed


async def test_xids_of_the_kernels_log_belong_to_the_card_at_that_address(watch: Watch) -> None:
    """Those of other devices are passed over; a line is not told again after a restart."""
    watch.observer.on_kernel_line(XidLine("0000:0f:00", 79, "fallen"), 41)
    watch.observer.on_kernel_line(XidLine("0000:ff:00", 79, "not ours"), 42)
    assert watch.told() == [("xid", uuid_of(NODE, 1), 79, 1)]
    assert watch.node.store.observed.log_sequence == 42


async def test_silence_and_hang_may_end_by_themselves(watch: Watch) -> None:
    """After as many seconds as were asked for."""
    watch.inject("silence", value=10)
    assert watch.backend.is_silent
    watch.world.clock.at_ms += 10_000
    assert not watch.backend.is_silent
    watch.inject("silence")
    watch.world.clock.at_ms += 10**9
    assert watch.backend.is_silent
    watch.inject("recover")
    assert not watch.backend.is_silent


# -- heartbeats


class Placement:
    """Answers heartbeats as a test wants."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.heard: list[HeartbeatV1] = []
        self.answer: HeartbeatReplyV1 | Exception = HeartbeatReplyV1(is_accepted=True, lease_ms=15_000, at=world.clock.now())
        self.delay_ms = 0

    async def ask(self, ask: Ask, *, seconds: float = 2.0) -> Any:
        """The answer."""
        assert isinstance(ask, HeartbeatV1)
        self.heard.append(ask)
        self.world.clock.at_ms += self.delay_ms
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def publish(self, envelope: Envelope[Any]) -> int:
        """Not used."""
        return 0

    def pull(self, durable: Any, *, batch: int = 50) -> Any:
        """Not used."""
        raise NotImplementedError


@pytest.fixture
def placement(tmp_path: Path) -> Placement:
    """A node without a lease, and who answers it."""
    return Placement(World(tmp_path, lease_ms=None))


def heart_of(placement: Placement) -> ticks.Heart:
    """The node's heart."""
    said: dict[str, object] = {"display_name": "größe", "address": "127.0.0.1", "zone": "z", "labels": {"a": "b"}, "backend": "simulated"}
    return ticks.Heart(placement.world.agent, placement, "agent-1", said, 1.0)


async def test_an_answer_renews_the_lease_from_the_sending_and_tells_the_keeper(placement: Placement) -> None:
    """The keeper is who fences."""
    sent = placement.world.clock.ms()
    placement.delay_ms = 400
    heart = heart_of(placement)
    assert not heart.was_answered.is_set()
    assert await heart.every_heartbeat()
    assert placement.world.keeper.lease_ms == sent + 15_000
    assert placement.world.agent.store.lease.horizon == START
    assert heart.was_answered.is_set()
    assert heart.problem is None


@pytest.mark.parametrize("answer", [Unavailable("nobody"), HeartbeatReplyV1(is_accepted=False, lease_ms=15_000, at=START)])
async def test_no_answer_and_a_refusal_renew_nothing(placement: Placement, answer: Any) -> None:
    """The reason is told."""
    placement.answer = answer
    heart = heart_of(placement)
    assert not await heart.every_heartbeat()
    assert placement.world.keeper.lease_ms is None
    assert heart.problem is not None


async def test_a_heartbeat_tells_everything_that_runs_and_ends_that_are_on_their_way(placement: Placement) -> None:
    """What has ended is named until placement has surely read it."""
    world = placement.world
    world.lease(60_000)
    key = world.run()
    done = world.run(OTHER, gpus=(1,))
    world.clock.at_ms += 500
    world.end(done, code=0)
    heart = heart_of(placement)
    told = heart.heartbeat()
    assert [(found.allocation_id, found.held_ms, found.is_stopping) for found in told.running] == [(f"{JOB}-1", 500, False)]
    assert told.unreported_ends == (f"{OTHER}-1",)
    assert told.facts.display_name == "größe"
    for _, event in list(world.agent.store.unsaid.values()):
        world.agent.on_said(event)
    assert heart.heartbeat().unreported_ends == (f"{OTHER}-1",)
    world.clock.at_ms += 4_000
    assert heart.heartbeat().unreported_ends == ()
    world.ask_stop()
    assert heart.heartbeat().running[0].is_stopping
    assert key in world.agent.store.workloads


def test_a_lost_card_is_named_as_lost_and_not_among_the_cards(placement: Placement) -> None:
    """Nor among the links of the others."""
    linked = tuple(Card(f"GPU-{index}", "T4", 1, index, links=(f"GPU-{1 - index}",)) for index in range(2))
    placement.world.agent.machine = Machine(linked, 1000, 1000)
    store = placement.world.agent.store
    store.see(type(store.observed)("boot-1", lost=frozenset({"GPU-1"})))
    told = heart_of(placement).heartbeat()
    assert told.lost_gpus == ("GPU-1",)
    assert [(gpu.uuid, gpu.links) for gpu in told.facts.gpus] == [("GPU-0", ())]


# -- usage


def test_statements_of_use_only_grow_and_have_a_last_one(tmp_path: Path) -> None:
    """Whole cards, shares, and what has ended since; nothing held says nothing."""
    world = World(tmp_path)
    ticks.every_usage(world.agent)
    assert world.said(UsageTickV1) == []
    world.run(gpus=(0, 1))
    share = world.run(OTHER, gpus=(2,), milli=250, share_mib=8_000)
    world.clock.at_ms += 1_001
    ticks.every_usage(world.agent)
    world.clock.at_ms += 999
    world.end(share, code=0)
    world.clock.at_ms += 1_000
    ticks.every_usage(world.agent)
    ticks.every_usage(world.agent)
    stated = [{held.allocation_id: (held.held_ms, held.gpu_ms) for held in tick.held} for tick in world.said(UsageTickV1)]
    assert stated == [
        {f"{JOB}-1": (1_001, 2_002), f"{OTHER}-1": (1_001, 500)},
        {f"{JOB}-1": (3_000, 6_000), f"{OTHER}-1": (2_000, 1_000)},
        {f"{JOB}-1": (3_000, 6_000)},
    ]
    assert world.said(WorkloadEndedV1)[0].held_ms == 2_000


def test_statements_go_on_from_the_same_base_after_a_restart(tmp_path: Path) -> None:
    """The boot clock is the same for the next agent; numbers go on rising."""
    world = World(tmp_path)
    world.run()
    world.clock.at_ms += 5_000
    ticks.every_usage(world.agent)
    (first,) = world.said(UsageTickV1)
    world.clock.at_ms += 5_000
    world.restart()
    ticks.every_usage(world.agent)
    (second,) = world.said(UsageTickV1)
    assert [tick.held[0].held_ms for tick in (first, second)] == [5_000, 10_000]
    assert second.sequence > first.sequence
