"""kill -9 of the agent, and of the keeper, at every step: never two processes for one attempt, never a lost end."""

from collections.abc import Callable

import pytest
from gpuyard_contracts.messages.node import WorkloadEndedV1, WorkloadRefusedV1, WorkloadStartedV1

from tests.unit.node_agent.agent_world import BOOT, JOB, OTHER, World

KEY = f"{JOB}-1.0"


def nothing(world: World) -> None:
    """Killed before anything."""


def order_lost_on_its_way_to_the_keeper(world: World) -> None:
    """Killed between the journal's record and the deed; the order was not acknowledged or was, that is the same."""
    world.keeper.is_deaf = True
    world.ask_start(world.order())
    world.keeper.is_deaf = False


def started_and_not_heard(world: World) -> None:
    """The process runs, the agent dies before it learns of it."""
    world.ask_start(world.order())


def started(world: World) -> None:
    """The start was heard and written."""
    world.run()


def told_to_stop(world: World) -> None:
    """The stop was written, the keeper was not told."""
    world.run()
    world.keeper.is_deaf = True
    world.ask_stop()
    world.keeper.is_deaf = False


def ended_and_not_heard(world: World) -> None:
    """The process has ended, the agent dies before it learns of it."""
    world.run()
    world.keeper.end(KEY, code=0)


def ended(world: World) -> None:
    """The end was heard and written, not published."""
    world.run()
    world.end(KEY, code=0)


STEPS = (nothing, order_lost_on_its_way_to_the_keeper, started_and_not_heard, started, told_to_stop, ended_and_not_heard, ended)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("kills", [1, 2])
def test_a_kill_at_any_step_starts_one_process_and_tells_one_end(world: World, step: Callable[[World], None], kills: int) -> None:
    """The order is delivered again, as JetStream does, and the process ends in time (B50)."""
    order = world.order()
    step(world)
    for _ in range(kills):
        world.restart()
    world.ask_start(order)
    world.deliver()
    kept = world.keeper.held.get(KEY)
    if kept is not None and kept.gone is None:
        world.end(KEY, code=0)
    assert world.keeper.launches == {KEY: 1}
    assert [found.attempt for found in world.unsaid(WorkloadStartedV1)] == [1]
    assert len(world.unsaid(WorkloadEndedV1)) == 1
    assert world.agent.store.workloads == {}
    assert world.keeper.held == {}


def test_a_stop_that_was_written_is_carried_out_by_the_next_agent(world: World) -> None:
    """Though the keeper never heard of it."""
    told_to_stop(world)
    world.restart()
    assert world.keeper.held[KEY].stop_ms == 0


def test_what_waits_to_be_said_is_said_by_the_next_agent_under_the_same_ids(world: World) -> None:
    """The streams and inboxes behind take it once."""
    ended(world)
    before = list(world.agent.store.unsaid)
    world.restart()
    assert list(world.agent.store.unsaid) == before
    world.agent.store.said(before[0])
    world.agent.store.flush()
    world.restart()
    assert list(world.agent.store.unsaid) == before[1:]


def test_when_the_keeper_dies_too_a_running_workload_is_adopted(world: World) -> None:
    """Found by its pid and start time."""
    started(world)
    world.clock.at_ms += 10_000
    world.kill()
    world.keeper.replace_keeper("keeper-2")
    world.start()
    assert world.keeper.held[KEY].born.pid == world.agent.store.workloads[KEY].pid
    world.end(KEY)
    (found,) = world.unsaid(WorkloadEndedV1)
    assert (found.cause, found.exit_code, found.held_ms) == ("vanished", None, 10_000)
    assert world.keeper.launches == {KEY: 1}


def test_what_was_launched_under_a_keeper_that_died_is_looked_for_and_never_launched_again(world: World) -> None:
    """It may have run: not found means ended (B50)."""
    order_lost_on_its_way_to_the_keeper(world)
    world.kill()
    world.keeper.replace_keeper("keeper-2")
    world.start()
    world.ask_start(world.order())
    world.deliver()
    assert world.keeper.launches == {}
    assert [found.cause for found in world.unsaid(WorkloadEndedV1)] == ["vanished"]


def test_who_was_told_to_stop_and_is_found_gone_has_vanished(world: World) -> None:
    """Nobody saw when it ended, so nobody says so: placement bills until the last sign of life, not until the agent looked."""
    told_to_stop(world)
    world.kill()
    world.boot = "boot-2"
    world.keeper.held.clear()
    world.keeper.instance = "keeper-2"
    world.clock.at_ms += 3_600_000
    world.start()
    assert [found.cause for found in world.unsaid(WorkloadEndedV1)] == ["vanished"]


def test_what_was_launched_under_a_keeper_that_died_and_runs_is_adopted_as_started(world: World) -> None:
    """Found by the mark in its environment."""
    started_and_not_heard(world)
    world.kill()
    world.keeper.replace_keeper("keeper-2")
    world.start()
    assert [found.pid for found in world.unsaid(WorkloadStartedV1)] == [101]
    assert world.keeper.launches == {KEY: 1}


def test_a_keeper_that_dies_under_a_living_agent_is_surveyed_and_given_the_lease(world: World) -> None:
    """The agent goes on with the next keeper."""
    started(world)
    world.keeper.lease_ms = None
    world.keeper.replace_keeper("keeper-2")
    world.deliver()
    assert world.agent.keeper == "keeper-2"
    assert world.keeper.lease_ms == world.clock.ms() + 60_000
    assert KEY in world.keeper.held
    world.run(OTHER, gpus=(1,))
    assert world.keeper.launches[f"{OTHER}-1.0"] == 1


def test_after_a_reboot_everything_has_vanished_and_nothing_is_started(world: World) -> None:
    """Another boot: no process is left, no lease either."""
    started(world)
    order = world.order(OTHER, gpus=(1,))
    world.kill()
    world.boot = "boot-2"
    world.keeper.held.clear()
    world.keeper.instance = "keeper-2"
    world.keeper.lease_ms = None
    world.start()
    assert [found.cause for found in world.unsaid(WorkloadEndedV1)] == ["vanished"]
    world.ask_start(order)
    assert [found.reason for found in world.said(WorkloadRefusedV1)] == ["lease-over"]


def test_a_process_that_the_journal_does_not_know_is_stopped(world: World) -> None:
    """A lost journal does not leave work behind that nobody answers for."""
    started(world)
    world.kill()
    (world.folder / "journal").unlink()
    world.start()
    assert world.keeper.held[KEY].stop_ms == 0
    world.end(KEY, number=9)
    assert world.keeper.held == {}


def test_a_lease_that_ran_out_while_no_agent_was_there_is_lost(world: World) -> None:
    """The keeper fenced; the next agent tells so, and starts nothing before placement answers."""
    started(world)
    world.kill()
    world.clock.at_ms += 60_000
    world.keeper.fence()
    world.start()
    assert [found.cause for found in world.unsaid(WorkloadEndedV1)] == ["fenced"]
    assert not world.agent.store.lease.is_held(world.clock.ms())


def test_a_lease_that_holds_outlives_a_restart_with_its_horizon(world: World) -> None:
    """Orders from before it stay refused."""
    world.agent.store.lease_is(type(world.agent.store.lease)(world.clock.ms() + 60_000, world.clock.now()))
    world.restart()
    assert world.agent.store.lease.is_held(world.clock.ms())
    assert world.agent.store.lease.is_too_old(world.clock.now())


def test_the_same_boot_is_known_again_and_another_one_is_not(world: World) -> None:
    """What the `booted` event is said by."""
    world.restart()
    assert world.agent.store.known_boot == BOOT
    world.kill()
    world.boot = "boot-2"
    world.start()
    assert world.agent.store.known_boot == BOOT != world.agent.boot_id
