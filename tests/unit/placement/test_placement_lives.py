"""An allocation's life as its nodes tell it: starts, ends, failures of one rank, releases."""

from datetime import timedelta

import pytest
from gpuyard_contracts.messages.placement import AllocationReleasedV1, AllocationStartedV1, NodeStateV1, StopV1

from tests.unit.placement.fleet import SECOND, Fleet, ended, gang, one, refused, release, running, started


def _released(fleet: Fleet) -> AllocationReleasedV1:
    (found,) = fleet.h.said_of(AllocationReleasedV1)
    return found


def test_an_allocation_starts_when_its_last_rank_does() -> None:
    """The start that is billed is the latest rank's."""
    fleet = Fleet("a", "b")
    plan = gang("j", "a", "b")
    committed_at = fleet.now
    fleet.h.feed(plan)
    fleet.h.clock.advance(10)
    assert fleet.h.feed(started(plan, 1, at=committed_at + 3 * SECOND)) == []
    assert fleet.store.allocations[plan.allocation_id].state == "starting"
    (said,) = fleet.h.feed(started(plan, 0, at=committed_at + 2 * SECOND))
    assert isinstance(said, AllocationStartedV1)
    assert said.started_at == committed_at + 3 * SECOND
    assert fleet.store.allocations[plan.allocation_id].state == "running"


@pytest.mark.parametrize(("skew", "expected"), [(-3600, 0), (3600, 5)])
def test_a_nodes_clock_is_bounded_by_ours(skew: int, expected: int) -> None:
    """A start is never before the commit and never after now."""
    fleet = Fleet("a")
    plan = one("j")
    committed_at = fleet.now
    fleet.h.feed(plan)
    fleet.h.clock.advance(5)
    (said,) = fleet.h.feed(started(plan, at=committed_at + timedelta(seconds=skew)))
    assert isinstance(said, AllocationStartedV1)
    assert said.started_at == committed_at + expected * SECOND


def test_a_node_with_a_wrong_clock_keeps_the_length_that_it_tells() -> None:
    """An hour behind, it ran 60 s by its own clock: 60 s are billed."""
    fleet = Fleet("a")
    plan = one("j")
    fleet.h.feed(plan)
    theirs = fleet.now - timedelta(hours=1)
    fleet.h.feed(started(plan, at=theirs))
    fleet.h.clock.advance(100)
    fleet.h.feed(ended(plan, at=theirs + 60 * SECOND, since=theirs))
    found = _released(fleet)
    assert found.started_at is not None
    assert found.ended_at - found.started_at == 60 * SECOND


def test_a_good_end_frees_the_slices_at_once() -> None:
    """Exit 0 of the only rank: released as exited, the state published in the same unit shows the card free."""
    fleet = Fleet("a")
    plan = one("j")
    fleet.start(plan)
    at = fleet.h.clock.advance(30)
    said = fleet.h.feed(ended(plan, at=at - SECOND))
    assert [type(found) for found in said] == [AllocationReleasedV1, NodeStateV1]
    found = _released(fleet)
    assert (found.reason, found.exit_code, found.ended_at) == ("exited", 0, at - SECOND)
    assert fleet.state("a").holds == ()
    assert fleet.held() == {}
    assert plan.allocation_id not in fleet.store.allocations


def test_ranks_that_end_well_leave_the_others_alone() -> None:
    """The slices of a gang stay held until its last rank has ended; the end is the latest."""
    fleet = Fleet("a", "b")
    plan = gang("j", "a", "b")
    fleet.start(plan)
    at = fleet.h.clock.advance(10)
    assert fleet.h.feed(ended(plan, 1, at=at)) == []
    assert fleet.held() == {"GPU-a-0": 1000, "GPU-b-0": 1000}
    fleet.h.clock.advance(10)
    fleet.h.feed(ended(plan, 0, at=at - 5 * SECOND))
    assert (_released(fleet).reason, _released(fleet).ended_at) == ("exited", at)
    assert fleet.stops() == []


def test_a_failing_rank_takes_the_gang_with_it() -> None:
    """The others are told to stop with the job's grace; slices are free only when the last has ended; the first failure is what is told."""
    fleet = Fleet("a", "b")
    plan = gang("j", "a", "b", "a", grace_seconds=7)
    fleet.start(plan)
    said = fleet.h.feed(ended(plan, 1, at=fleet.now, code=3, detail="Traceback: boom"))
    assert [(type(found), found.node_id, found.rank, found.grace_ms) for found in said if isinstance(found, StopV1)] == [
        (StopV1, "a", 0, 7000),
        (StopV1, "a", 2, 7000),
    ]
    assert fleet.h.feed(ended(plan, 0, at=fleet.now, cause="stopped", signal=15)) == []
    assert len(fleet.held()) == 3
    fleet.h.feed(ended(plan, 2, at=fleet.now, code=1, detail="peer is gone"))
    found = _released(fleet)
    assert (found.reason, found.exit_code, found.detail) == ("exited", 3, "Traceback: boom")
    assert fleet.held() == {}


def test_a_signal_is_told() -> None:
    """A rank that the kernel killed is released as exited, with its signal."""
    fleet = Fleet("a")
    plan = one("j")
    fleet.start(plan)
    fleet.h.feed(ended(plan, at=fleet.now, signal=9))
    found = _released(fleet)
    assert (found.reason, found.signal, found.detail) == ("exited", 9, "rank 0 on a: killed by signal 9")


def test_a_refused_rank_takes_the_gang_with_it_and_nothing_is_billed() -> None:
    """B33: a start refused for good ends as such, with the reason, and the cards are free in the same unit as the last rank."""
    fleet = Fleet("a", "b")
    plan = gang("j", "a", "b")
    fleet.h.feed(plan, started(plan, 0, at=fleet.now))
    fleet.h.feed(refused(plan, 1, reason="bad-command", detail="no such program: trian.py", permanent=True))
    assert [stop.rank for stop in fleet.stops()] == [0]
    assert len(fleet.held()) == 2
    said = fleet.h.feed(ended(plan, 0, at=fleet.now, cause="stopped", since=fleet.now))
    found = _released(fleet)
    assert (found.reason, found.is_permanent, found.started_at) == ("start-refused", True, None)
    assert found.detail == "bad-command: no such program: trian.py"
    assert found.avoid_nodes == ("b",)
    assert NodeStateV1 in [type(other) for other in said]
    assert fleet.held() == {}


def test_a_rank_that_could_not_be_started_is_told_apart_from_one_that_failed() -> None:
    """`start-failed` keeps the next try away from the node."""
    fleet = Fleet("a")
    plan = one("j")
    fleet.h.feed(plan, ended(plan, at=fleet.now, cause="start-failed", detail="fork: out of memory"))
    found = _released(fleet)
    assert (found.reason, found.started_at, found.avoid_nodes, found.detail) == ("start-failed", None, ("a",), "fork: out of memory")


def test_an_early_death_is_a_failure_with_its_exit_code() -> None:
    """B51: it dies before its start was reported; the end carries its own start, so both are told, in order."""
    fleet = Fleet("a")
    plan = one("j")
    fleet.h.feed(plan)
    at = fleet.h.clock.advance(1)
    said = fleet.h.feed(ended(plan, at=at, code=1, since=at - SECOND, detail="ImportError"))
    assert [type(found) for found in said] == [AllocationStartedV1, AllocationReleasedV1, NodeStateV1]
    assert (_released(fleet).reason, _released(fleet).exit_code) == ("exited", 1)


def test_a_start_that_comes_after_its_end_reopens_nothing() -> None:
    """B60: the late start of a finished allocation is answered with a stop order and changes nothing."""
    fleet = Fleet("a")
    plan = one("j")
    fleet.h.feed(plan, ended(plan, at=fleet.now, since=fleet.now))
    (said,) = fleet.h.feed(started(plan, at=fleet.now))
    assert isinstance(said, StopV1)
    assert (said.allocation_id, said.grace_ms) == (plan.allocation_id, 0)
    assert len(fleet.h.said_of(AllocationReleasedV1)) == 1


def test_what_starts_without_an_allocation_is_stopped() -> None:
    """INV-5: a workload that nobody placed is stopped on the node that runs it, also where its rank was planned elsewhere."""
    fleet = Fleet("a", "b")
    (said,) = fleet.h.feed(started(one("ghost"), at=fleet.now, node_id="b"))
    assert isinstance(said, StopV1)
    plan = one("j")
    fleet.h.feed(plan)
    (said,) = fleet.h.feed(started(plan, at=fleet.now, node_id="b"))
    assert isinstance(said, StopV1)
    assert said.node_id == "b"
    assert fleet.store.allocations[plan.allocation_id].state == "committed"


def test_words_about_another_tenants_allocation_are_ignored() -> None:
    """A node that contradicts the plan moves nothing."""
    fleet = Fleet("a")
    plan = one("j")
    fleet.start(plan)
    assert fleet.h.feed(ended(plan, at=fleet.now).model_copy(update={"tenant": "beta"})) == []
    assert fleet.h.feed(ended(plan, at=fleet.now).model_copy(update={"attempt": 2})) == []
    assert fleet.h.feed(ended(plan, at=fleet.now).model_copy(update={"rank": 4000})) == []
    assert fleet.held() == {"GPU-a-0": 1000}


def test_everything_told_twice_counts_once() -> None:
    """B60: repeats in new envelopes move nothing, in any state."""
    fleet = Fleet("a", "b")
    plan = gang("j", "a", "b")
    fleet.h.feed(plan)
    for told in (started(plan, 0, at=fleet.now), started(plan, 1, at=fleet.now), ended(plan, 0, at=fleet.now), release(plan)):
        fleet.h.feed(told)
        count = len(fleet.h.said)
        assert fleet.h.feed(told) == []
        assert len(fleet.h.said) == count
    fleet.h.feed(ended(plan, 1, at=fleet.now, cause="stopped"))
    assert fleet.h.feed(ended(plan, 1, at=fleet.now, cause="stopped")) == []
    assert len(fleet.h.said_of(AllocationReleasedV1)) == 1


def test_a_release_stops_every_rank_and_frees_nothing_by_itself() -> None:
    """Slices are free when the nodes have confirmed it, not when we have asked."""
    fleet = Fleet("a", "b")
    plan = gang("j", "a", "b")
    fleet.start(plan)
    said = fleet.h.feed(release(plan, reason="time-limit", detail="ran 60 s"))
    assert [(found.node_id, found.reason) for found in said if isinstance(found, StopV1)] == [
        ("a", "stopped: ran 60 s"),
        ("b", "stopped: ran 60 s"),
    ]
    assert len(fleet.held()) == 2
    at = fleet.h.clock.advance(5)
    fleet.h.feed(ended(plan, 0, at=at, cause="stopped"), ended(plan, 1, at=at, cause="stopped", signal=15))
    found = _released(fleet)
    assert (found.reason, found.detail, found.ended_at, found.started_at) == ("stopped", "ran 60 s", at, at - 5 * SECOND)


def test_a_release_may_follow_on_the_heels_of_the_start_order() -> None:
    """The stop order stands behind the start order; `not-running` confirms that nothing will start."""
    fleet = Fleet("a")
    plan = one("j")
    said = fleet.h.feed(plan, release(plan))
    assert isinstance(next(found for found in said if isinstance(found, StopV1)), StopV1)
    fleet.h.feed(ended(plan, at=fleet.now, cause="not-running"))
    assert (_released(fleet).reason, _released(fleet).started_at) == ("stopped", None)


def test_a_start_that_crosses_a_stop_is_billed_but_not_announced() -> None:
    """It ran until it was stopped: the release carries its start; nobody is told that it runs."""
    fleet = Fleet("a")
    plan = one("j")
    fleet.h.feed(plan, release(plan))
    at = fleet.h.clock.advance(2)
    assert fleet.h.feed(started(plan, at=at - SECOND)) == []
    fleet.h.feed(ended(plan, at=at, cause="stopped", since=at - SECOND))
    assert fleet.h.said_of(AllocationStartedV1) == []
    assert _released(fleet).started_at == at - SECOND


def test_a_release_of_another_attempt_or_tenant_changes_nothing() -> None:
    """Only the attempt that is meant is stopped."""
    fleet = Fleet("a")
    plan = one("j", attempt=2)
    fleet.start(plan)
    assert fleet.h.feed(release(plan, attempt=1)) == []
    assert fleet.h.feed(release(plan).model_copy(update={"tenant": "beta"})) == []
    assert fleet.store.allocations[plan.allocation_id].state == "running"


def test_work_that_ended_well_while_it_was_evicted_has_exited() -> None:
    """Its result is there: it must not be run again."""
    fleet = Fleet("a")
    plan = one("j")
    fleet.start(plan)
    fleet.h.feed(release(plan), ended(plan, at=fleet.now))
    assert (_released(fleet).reason, _released(fleet).exit_code) == ("exited", 0)


def test_a_fenced_rank_means_that_its_node_was_out_of_reach() -> None:
    """The node stopped it itself when its lease ended: the job moves on, billed until then."""
    fleet = Fleet("a")
    plan = one("j")
    fleet.start(plan)
    at = fleet.h.clock.advance(20)
    fleet.h.feed(ended(plan, at=at - 4 * SECOND, cause="fenced"))
    assert (_released(fleet).reason, _released(fleet).ended_at) == ("node-lost", at - 4 * SECOND)


def test_a_start_that_does_not_come_times_out() -> None:
    """B51: after the job's start timeout all ranks are stopped; the detail names the ranks that did not come."""
    fleet = Fleet("a", "b")
    plan = gang("j", "a", "b", start_timeout_seconds=30)
    fleet.h.feed(plan, started(plan, 0, at=fleet.now))
    fleet.pass_seconds(29, "a", "b", running={"a": (running(plan, at=fleet.now),)})
    assert fleet.stops() == []
    fleet.pass_seconds(1, "a", "b", running={"a": (running(plan, at=fleet.now),)})
    assert [(stop.node_id, stop.rank) for stop in fleet.stops()] == [("a", 0), ("b", 1)]
    fleet.h.feed(ended(plan, 0, at=fleet.now, cause="stopped"), ended(plan, 1, at=fleet.now, cause="not-running"))
    found = _released(fleet)
    assert (found.reason, found.detail) == ("start-timeout", "not started after 30 s: rank 1 on node b")
    assert (found.started_at, found.avoid_nodes) == (None, ("b",))


def test_a_running_allocation_has_no_start_timeout() -> None:
    """B51's variant: the duty looks at the present state."""
    fleet = Fleet("a")
    plan = one("j", start_timeout_seconds=5)
    fleet.start(plan)
    fleet.pass_seconds(20, "a", running={"a": (running(plan, at=fleet.now),)})
    assert fleet.stops() == []


def test_a_stop_that_is_not_answered_is_asked_again() -> None:
    """Once per grace and 10 s, and only of ranks that are left."""
    fleet = Fleet("a", "b")
    plan = gang("j", "a", "b", grace_seconds=5)
    fleet.start(plan)
    fleet.h.feed(release(plan), ended(plan, 1, at=fleet.now, cause="stopped"))
    lists = {"a": (running(plan, at=fleet.now, is_stopping=True),)}
    fleet.pass_seconds(14, "a", "b", running=lists)
    assert len(fleet.stops()) == 2
    fleet.pass_seconds(1, "a", "b", running=lists)
    assert [(stop.node_id, stop.rank) for stop in fleet.stops()[2:]] == [("a", 0)]
    fleet.pass_seconds(14, "a", "b", running=lists)
    assert len(fleet.stops()) == 3
    assert len({found.id for found in fleet.h.envelopes if isinstance(found.data, StopV1)}) == 3


def test_a_silent_node_is_not_asked_again() -> None:
    """The first order waits for it; more of them would only wait beside it."""
    fleet = Fleet("a", "b", "c")
    plan = one("j", grace_seconds=0)
    fleet.start(plan)
    fleet.h.feed(release(plan))
    fleet.pass_seconds(15, "b", "c")
    assert len(fleet.stops()) == 1


def test_everything_goes_on_after_a_restart() -> None:
    """Rows come back as they were: states of ranks, reasons, held slices."""
    fleet = Fleet("a", "b")
    plan = gang("j", "a", "b")
    fleet.start(plan)
    fleet.h.feed(ended(plan, 1, at=fleet.now, code=9))
    fleet.h.restart()
    fleet.h.feed(ended(plan, 0, at=fleet.now, cause="stopped"))
    assert (_released(fleet).exit_code, fleet.held()) == (9, {})


def test_events_of_a_job_are_in_its_trace_whoever_causes_them() -> None:
    """A tick that times a start out speaks in the trace of the plan."""
    fleet = Fleet("a")
    plan = one("j", start_timeout_seconds=1)
    trace = "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"
    fleet.h.feed(fleet.h.envelope(plan, traceparent=trace))
    fleet.pass_seconds(2, "a")
    (stop,) = [found for found in fleet.h.envelopes if isinstance(found.data, StopV1)]
    assert stop.traceparent is not None
    assert stop.traceparent[3:35] == "ab" * 16
    assert stop.correlation_id == plan.job_id
