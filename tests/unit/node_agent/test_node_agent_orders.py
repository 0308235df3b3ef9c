"""What orders do: start once, refuse with the right reason, stop, supersede."""

from datetime import timedelta

import pytest
from gpuyard_contracts.messages.node import WorkloadEndedV1, WorkloadRefusedV1, WorkloadStartedV1
from gpuyard_node_agent import handlers
from gpuyard_node_agent.domain.admission import Refused
from gpuyard_node_agent.domain.faults import Observed
from gpuyard_node_agent.domain.lease import Lease
from gpuyard_node_agent.domain.model import Machine

from tests.unit.node_agent.agent_world import CARDS, JOB, OTHER, World


def refusal(world: World) -> tuple[str, bool]:
    """The only refusal so far: its reason and whether it is permanent."""
    (found,) = world.said(WorkloadRefusedV1)
    return found.reason, found.is_permanent


def test_an_order_becomes_one_process_and_says_so(world: World) -> None:
    """Started with pid and instant; the trace and the cause are the order's."""
    key = world.run()
    (started,) = world.said(WorkloadStartedV1)
    assert (started.allocation_id, started.pid, started.started_at) == (f"{JOB}-1", 101, world.clock.now())
    assert world.way.put_events[0].causation_id == f"order-{JOB}-1"
    assert world.way.put_events[0].correlation_id == JOB
    assert world.keeper.launches == {key: 1}


def test_a_repeated_order_starts_nothing_again_while_it_runs_and_after_its_end(world: World) -> None:
    """Delivered again before, during and after."""
    order = world.order()
    world.ask_start(order)
    world.ask_start(order)
    world.deliver()
    world.ask_start(order)
    world.end(f"{JOB}-1.0", code=0)
    world.ask_start(order)
    world.deliver()
    assert world.keeper.launches == {f"{JOB}-1.0": 1}
    assert len(world.said(WorkloadStartedV1)) == 1
    assert len(world.said(WorkloadEndedV1)) == 1


def test_an_attempt_below_one_that_is_known_is_refused_though_nothing_runs(world: World) -> None:
    """Late orders of a world that is gone."""
    world.end(world.run(attempt=3), code=1)
    world.run(attempt=2)
    assert refusal(world) == ("lower-attempt", False)
    assert world.keeper.launches == {f"{JOB}-3.0": 1}


def test_a_newer_attempt_waits_until_the_older_one_is_gone(world: World) -> None:
    """Two attempts of one job never run together (B49)."""
    old = world.run(attempt=1)
    new = world.run(attempt=2)
    assert world.keeper.launches == {old: 1}
    assert world.keeper.held[old].stop_ms == 0
    world.end(old, number=9)
    world.deliver()
    assert world.keeper.launches == {old: 1, new: 1}
    assert [found.cause for found in world.said(WorkloadEndedV1)] == ["stopped"]


def test_a_card_that_is_not_there_is_waited_for_and_then_refused(world: World) -> None:
    """A GPU job never starts with fewer cards than it was given (B32)."""
    world.run(gpus=(0, 7))
    assert world.said(WorkloadRefusedV1) == []
    world.clock.at_ms += 4_999
    handlers.retry_waiting(world.agent)
    assert world.said(WorkloadRefusedV1) == []
    world.clock.at_ms += 1
    handlers.retry_waiting(world.agent)
    assert refusal(world) == ("gpu-missing", False)
    assert "GPU-7" in world.said(WorkloadRefusedV1)[0].detail
    assert world.keeper.launches == {}


def test_after_a_restart_the_start_waits_until_the_cards_have_been_found(world: World) -> None:
    """The agent knows nothing of its cards yet (B32)."""
    world.kill()
    world.start(finds_cards=False)
    key = world.run()
    assert world.keeper.launches == {}
    world.agent.machine = Machine(CARDS, 16_000, 64_000)
    handlers.retry_waiting(world.agent)
    assert world.keeper.launches == {key: 1}


def test_a_lost_card_counts_as_missing(world: World) -> None:
    """It is known, and not there."""
    world.agent.store.see(Observed("boot-1", lost=frozenset({"GPU-0"})))
    world.run()
    world.clock.at_ms += 5_000
    handlers.retry_waiting(world.agent)
    assert refusal(world) == ("gpu-missing", False)


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        ({"gpus": (0,)}, {"gpus": (0,), "milli": 1}, "gpu-busy"),
        ({"gpus": (0,), "milli": 600}, {"gpus": (0,), "milli": 500}, "gpu-busy"),
        ({"gpus": (0,), "milli": 100, "share_mib": 10_000}, {"gpus": (0,), "milli": 100, "share_mib": 6_001}, "no-room"),
        ({"cpu_milli": 10_000}, {"gpus": (1,), "cpu_milli": 6_001}, "no-room"),
        ({"memory_mib": 40_000, "gpus": (0,)}, {"gpus": (1,), "memory_mib": 24_001}, "no-room"),
    ],
)
def test_what_another_allocation_holds_is_not_given_twice(world: World, first: dict[str, int], second: dict[str, int], reason: str) -> None:
    """Cards by thousandths and MiB, the machine by CPU and memory."""
    world.run(**first)
    world.run(OTHER, **second)
    world.clock.at_ms += 5_000
    handlers.retry_waiting(world.agent)
    assert refusal(world) == (reason, False)


def test_two_shares_that_fit_run_beside_each_other(world: World) -> None:
    """Up to the last thousandth and MiB."""
    world.run(milli=400, share_mib=8_000)
    world.run(OTHER, milli=600, share_mib=8_000)
    assert len(world.said(WorkloadStartedV1)) == 2


def test_a_command_that_cannot_be_is_refused_for_good_and_nothing_runs(world: World) -> None:
    """Before any process."""
    world.disk.refusals["/no/such"] = Refused("bad-command", "there is no program", is_permanent=True)
    world.run(command=("/no/such",))
    assert refusal(world) == ("bad-command", True)
    assert world.keeper.launches == {}
    world.run(OTHER)
    assert len(world.said(WorkloadStartedV1)) == 1


@pytest.mark.parametrize(("number", "expected"), [(2, ("bad-command", True)), (8, ("bad-command", True)), (11, ("no-room", False))])
def test_what_the_system_refuses_to_start_is_permanent_only_where_the_command_is_to_blame(
    world: World, number: int, expected: tuple[str, bool]
) -> None:
    """ENOENT of an interpreter and ENOEXEC, against EAGAIN."""
    world.keeper.failing["/bin/true"] = number
    world.run()
    assert refusal(world) == expected
    assert world.agent.store.workloads == {}


def test_without_a_lease_nothing_is_started(world: World) -> None:
    """The lease has run out."""
    world.clock.at_ms += 60_000
    world.run()
    assert refusal(world) == ("lease-over", False)


def test_orders_from_before_the_lease_are_too_old(world: World) -> None:
    """Issued up to placement's first answer after the lease was lost."""
    world.agent.store.lease_is(Lease(world.clock.ms() + 9_000, world.clock.now()))
    world.run(issued_at=world.clock.now())
    assert refusal(world) == ("order-too-old", False)
    world.run(OTHER, issued_at=world.clock.now() + timedelta(microseconds=1))
    assert len(world.said(WorkloadStartedV1)) == 1


def test_a_stop_ends_the_process_and_the_shorter_grace_counts(world: World) -> None:
    """Told twice with different graces."""
    key = world.run()
    world.ask_stop(grace_ms=5_000)
    world.ask_stop(grace_ms=100)
    world.ask_stop(grace_ms=9_000)
    assert world.keeper.held[key].stop_ms == 100
    world.end(key, number=15)
    (ended,) = world.said(WorkloadEndedV1)
    assert (ended.cause, ended.signal, ended.exit_code) == ("stopped", 15, None)


def test_who_ends_by_itself_before_the_stop_arrives_has_exited(world: World) -> None:
    """The keeper knows which came first."""
    key = world.run()
    world.keeper.end(key, code=0)
    world.ask_stop()
    world.deliver()
    assert [found.cause for found in world.said(WorkloadEndedV1)] == ["exited"]


def test_a_stop_of_what_never_ran_is_answered_and_bars_its_start(world: World) -> None:
    """The stop overtook the start."""
    world.ask_stop()
    assert [found.cause for found in world.said(WorkloadEndedV1)] == ["not-running"]
    world.run()
    assert refusal(world) == ("order-too-old", False)
    world.restart()
    world.lease(60_000)
    world.run()
    assert world.keeper.launches == {}


def test_a_stop_of_what_still_waits_ends_it_unstarted(world: World) -> None:
    """It waits for a card, and is told to stop."""
    world.run(gpus=(9,))
    world.ask_stop()
    assert [found.cause for found in world.said(WorkloadEndedV1)] == ["not-running"]
    world.clock.at_ms += 10_000
    handlers.retry_waiting(world.agent)
    assert world.said(WorkloadRefusedV1) == []
    assert world.agent.store.workloads == {}


def test_a_failure_tells_its_last_words_and_a_success_does_not(world: World) -> None:
    """The end of stderr is the detail (B51)."""
    world.end(world.run(), code=1)
    world.end(world.run(OTHER), code=0)
    failed, done = world.said(WorkloadEndedV1)
    assert (failed.cause, failed.exit_code, failed.detail) == ("exited", 1, "it broke")
    assert (done.cause, done.exit_code, done.detail) == ("exited", 0, "")


def test_what_is_held_is_measured_by_the_boot_clock_whatever_the_wall_clock_does(world: World) -> None:
    """An hour is 3600 s exactly (B53); the end is the start plus what was measured."""
    key = world.run()
    world.clock.at_ms += 3_600_000
    world.end(key, code=0)
    (ended,) = world.said(WorkloadEndedV1)
    assert ended.held_ms == 3_600_000
    assert ended.started_at is not None
    assert ended.ended_at - ended.started_at == timedelta(hours=1)


def test_what_is_fenced_says_so(world: World) -> None:
    """The keeper killed it at the end of the lease."""
    world.run()
    world.clock.at_ms += 70_000
    world.keeper.fence()
    world.deliver()
    (ended,) = world.said(WorkloadEndedV1)
    assert (ended.cause, ended.held_ms) == ("fenced", 60_000)


def test_a_card_is_free_for_the_next_order_as_soon_as_the_end_is_known(world: World) -> None:
    """It waits for the one before it."""
    key = world.run()
    other = world.run(OTHER)
    assert other not in world.keeper.launches
    world.end(key, code=0)
    world.deliver()
    assert world.keeper.launches[other] == 1
