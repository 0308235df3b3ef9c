"""A job's life between the scheduler and placement: answers, ends, second and late deliveries, deaths in between."""

from typing import Any

import pytest
from gpuyard_contracts.messages.placement import AllocationReleasedV1, AllocationStartedV1, FleetSightChangedV1, NodeStatusChangedV1
from gpuyard_contracts.messages.requests import JobSubmitV1
from gpuyard_contracts.messages.scheduler import (
    JobEndedV1,
    JobPlacingV1,
    JobRequeuedV1,
    JobRunningV1,
    JobStartingV1,
    JobStoppingV1,
    JobUnknownV1,
    PlaceV1,
    ReleaseV1,
)
from gpuyard_contracts.types import allocation_id_of
from gpuyard_runtime.testing import Crash

from tests.unit.scheduler.scheduler_world import Yard, spec, yard


def _names(found: Yard) -> list[str]:
    return [type(said).__name__ for said in found.h.said]


def test_the_walk_of_one_job() -> None:
    """From the request to the end, each turn said once, in order."""
    found = yard()
    job_id = found.submit("A100:2")
    found.start(job_id)
    found.release(job_id)
    walk = ["JobQueuedV1", "PlaceV1", "JobPlacingV1", "JobStartingV1", "JobRunningV1", "JobEndedV1"]
    assert _names(found) == walk
    plan = found.plan(job_id)
    assert (plan.attempt, plan.allocation_id, plan.seen) == (1, allocation_id_of(job_id, 1), {"a": 1})
    (ended,) = found.h.said_of(JobEndedV1)
    assert (ended.state, ended.reason, ended.exit_code, ended.attempt) == ("succeeded", "completed", 0, 1)
    assert job_id not in found.store.jobs, "what is over leaves the memory"
    assert len(found.store.queue) == 0


def test_answers_that_come_twice_change_nothing() -> None:
    """Under the same message id the inbox holds them off; under another the state machine does."""
    found = yard()
    job_id = found.submit()
    committed = found.committed(job_id)
    found.h.feed(committed)
    found.h.feed(committed)
    found.h.feed(found.committed(job_id))
    assert len(found.h.said_of(JobStartingV1)) == 1
    found.start(job_id)
    released = found.released(job_id)
    found.h.feed(released)
    found.h.feed(released)
    found.h.feed(found.released(job_id, "node-lost"))
    assert len(found.h.said_of(JobRunningV1)) == len(found.h.said_of(JobEndedV1)) == 1
    assert found.state(job_id) == "succeeded"


def test_answers_out_of_order_come_out_at_the_same_end() -> None:
    """Started before committed is believed; whatever follows the release is ignored, and a commit after it is told to let go."""
    found = yard()
    job_id = found.submit()
    committed, plan = found.committed(job_id), found.plan(job_id)
    started = AllocationStartedV1(tenant="acme", allocation_id=plan.allocation_id, job_id=job_id, attempt=1, started_at=found.h.clock.now())
    found.h.feed(started)
    assert found.state(job_id) == "running"
    found.h.feed(found.released(job_id))
    found.h.feed(committed, started)
    assert found.state(job_id) == "succeeded"
    (letting_go,) = found.h.said_of(ReleaseV1)
    assert (letting_go.attempt, letting_go.reason) == (1, "lost")


def test_a_refused_plan_is_tried_again_after_growing_pauses() -> None:
    """No failure of the job: it keeps its retries and its place, and every plan is an attempt of its own."""
    found = yard()
    job_id = found.submit()
    for attempt, pause in ((1, 0.2), (2, 0.4), (3, 0.8)):
        assert found.plan(job_id).attempt == attempt
        found.h.feed(found.refused(job_id))
        assert found.state(job_id) == "queued"
        found.h.clock.advance(pause - 0.05)
        found.h.tick("look")
        assert found.state(job_id) == "queued"
        found.h.clock.advance(0.05)
        found.h.tick("look")
        assert found.state(job_id) == "placing"
    assert [said.reason for said in found.h.said_of(JobRequeuedV1)] == ["plan-refused"] * 3
    assert (found.row(job_id).failures, found.row(job_id).moves) == (0, 0)
    found.commit(job_id)
    assert found.row(job_id).refusals == 0


def test_what_a_refused_plan_held_is_free_for_others() -> None:
    """The slices of a plan that was not taken go to whoever is next."""
    found = yard(cards=1)
    first = found.submit()
    second = found.submit()
    assert found.state(second) == "queued"
    found.h.feed(found.refused(first))
    assert found.state(second) == "placing"


def test_b34_one_end_starts_exactly_one() -> None:
    """Quota of two, four jobs: one is released, told twice and slowly; never three of two."""
    found = yard(quota_gpu_milli=2000)
    jobs = [found.submit() for _ in range(4)]
    for job_id in jobs[:2]:
        found.start(job_id)
    found.cancel(jobs[0])
    assert [found.state(job_id) for job_id in jobs] == ["stopping", "running", "queued", "queued"]
    released = found.released(jobs[0], "stopped")
    found.h.feed(released)
    found.h.feed(released)
    found.h.feed(found.released(jobs[0], "stopped"))
    assert [found.state(job_id) for job_id in jobs] == ["cancelled", "running", "placing", "queued"]


def test_a_failure_is_retried_as_often_as_was_asked() -> None:
    """After a pause, with a new attempt; then the job fails."""
    found = yard()
    job_id = found.submit(retries=1)
    found.start(job_id)
    found.release(job_id, exit_code=3)
    (requeued,) = found.h.said_of(JobRequeuedV1)
    assert (requeued.reason, requeued.attempt) == ("retry", 1)
    assert found.store.queue.reasons() == {"retry-pause": 1}
    found.h.clock.advance(1)
    found.h.tick("look")
    assert found.plan(job_id).attempt == 2
    found.start(job_id)
    found.release(job_id, exit_code=3)
    assert (found.state(job_id), found.row(job_id).end_reason, found.row(job_id).exit_code) == ("failed", "retries-exhausted", 3)


def test_work_on_a_sick_card_goes_on_elsewhere() -> None:
    """At once, avoiding that card even before anybody has cordoned it."""
    found = yard(cards=2)
    job_id = found.submit()
    sick = found.plan(job_id).ranks[0].slices[0].gpu_uuid
    found.start(job_id)
    found.release(job_id, "gpu-fault", avoid_gpus=[sick])
    assert found.h.said_of(JobRequeuedV1)[0].reason == "gpu-fault"
    assert found.plan(job_id).attempt == 2
    assert found.plan(job_id).ranks[0].slices[0].gpu_uuid != sick
    assert found.row(job_id).ask.avoid_gpus == {sick}


def test_b33_a_start_that_can_never_succeed_fails_the_job_at_once() -> None:
    """With the reason; what it held is free in the same step."""
    found = yard(quota_gpu_milli=8000)
    doomed = found.submit(8, retries=5)
    waiting = found.submit(8)
    found.commit(doomed)
    found.release(doomed, "start-failed", is_permanent=True, detail="no such program")
    assert (found.state(doomed), found.row(doomed).end_reason) == ("failed", "start-failed")
    assert "no such program" in found.h.said_of(JobEndedV1)[0].detail
    assert found.state(waiting) == "placing"


def test_a_run_time_limit_stops_the_job() -> None:
    """Told once, at the limit and not before; it ends as expired. A limit of a job that was over before is passed over."""
    found = yard()
    short = found.submit(max_seconds=5)
    limited = found.submit(max_seconds=60)
    for job_id in (short, limited):
        found.start(job_id)
    found.release(short)
    found.h.clock.advance(59)
    assert found.h.tick("limit") == []
    found.h.clock.advance(1)
    release, stopping = found.h.tick("limit")
    assert isinstance(release, ReleaseV1)
    assert isinstance(stopping, JobStoppingV1)
    assert (release.job_id, release.reason, stopping.reason) == (limited, "time-limit", "time-limit")
    assert found.h.tick("limit") == []
    found.release(limited, "stopped")
    assert (found.state(limited), found.row(limited).end_reason) == ("expired", "time-limit")


@pytest.mark.parametrize("point", ["before_commit", "after_commit", "after_publish", "before_ack"])
def test_b50_a_death_at_any_step_plans_once(point: str) -> None:
    """The request is delivered again after the restart: one job, one attempt, one plan under one message id."""
    found = yard()
    request = found.h.envelope(JobSubmitV1(tenant="acme", spec=spec(), request_id="r"))
    found.h.crash_at(point)
    with pytest.raises(Crash):
        found.h.feed(request)
    found.h.restart()
    found.tenant()
    found.rehear()
    found.h.feed(request)
    places = [said for said in found.h.envelopes if isinstance(said.data, PlaceV1)]
    assert len({said.id for said in places}) == 1
    assert {said.data.attempt for said in places} == {1}
    (row,) = found.h.rows("jobs")
    assert (row.state, row.attempt) == ("placing", 1)


def test_a_plan_has_one_message_id_for_ever() -> None:
    """It depends on the attempt alone: whoever decides the same attempt again says the same message."""
    ids = set()
    for other_units in range(3):
        found = yard()
        for _ in range(other_units):
            found.tenant("other")
        found.submit(request_id="r")
        ids |= {(type(said.data), said.id) for said in found.h.envelopes if isinstance(said.data, PlaceV1 | JobPlacingV1)}
    assert len(ids) == 2


def test_a_restart_loses_nothing_and_repeats_nothing() -> None:
    """States, plans in flight, pauses, limits and use are as they were; nothing is said anew."""
    found = yard(cards=4)
    running, placing = found.submit(2, max_seconds=30), found.submit(1)
    found.start(running)
    failing = found.submit(1, retries=1)
    found.start(failing)
    found.release(failing, exit_code=1)
    waiting = found.submit(2)
    said = len(found.h.said)
    found.h.restart()
    found.tenant()
    found.rehear()
    assert len(found.h.said) == said
    assert [found.state(job_id) for job_id in (running, placing, failing, waiting)] == ["running", "placing", "queued", "queued"]
    assert found.store.usage.of("acme").milli == 3000
    found.commit(placing)
    assert found.state(placing) == "starting"
    found.h.clock.advance(30)
    found.h.tick("limit")
    assert found.state(running) == "stopping"
    found.h.tick("look")
    assert found.plan(failing).attempt == 2


def test_what_is_not_answered_is_told_again() -> None:
    """The same plan under the same allocation, the same release; not before its time, and not once it is answered."""
    found = yard()
    job_id = found.submit()
    first = found.plan(job_id)
    found.h.clock.advance(29)
    assert found.h.tick("resend") == []
    found.h.clock.advance(1)
    (again,) = found.h.tick("resend")
    assert again == first
    assert len({said.id for said in found.h.envelopes if isinstance(said.data, PlaceV1)}) == 2, "or the bus would drop it as a repeat"
    found.start(job_id)
    found.h.clock.advance(60)
    assert found.h.tick("resend") == []
    found.cancel(job_id)
    found.h.clock.advance(30)
    (release,) = found.h.tick("resend")
    assert isinstance(release, ReleaseV1)


def test_after_a_start_the_answer_is_waited_for_before_a_plan_is_sent_again() -> None:
    """It may lie on the bus since long, and placement may have forgotten what it answered."""
    found = yard()
    job_id = found.submit()
    first = found.plan(job_id)
    found.h.clock.advance(900)
    found.h.restart()
    assert found.h.tick("resend") == []
    found.h.clock.advance(30)
    (again,) = found.h.tick("resend")
    assert isinstance(again, PlaceV1)
    assert (again.allocation_id, again.ranks) == (first.allocation_id, first.ranks)


def test_a_silent_node_flags_its_jobs_and_nothing_more() -> None:
    """Not knowing is not failing: the flag comes and goes once each, the job runs on."""
    found = yard(nodes=2)
    job_id = found.submit(8, ranks=2)
    found.start(job_id)

    def tell(node_id: str, status: Any, was: Any) -> list[Any]:
        found.change(node_id, status=status)
        return found.h.feed(NodeStatusChangedV1(node_id=node_id, status=status, was=was, at=found.h.clock.now()))

    (flagged,) = tell("a", "unknown", "ready")
    assert (flagged.job_id, flagged.is_unknown) == (job_id, True)
    assert tell("b", "unknown", "ready") == []
    assert tell("a", "ready", "unknown") == [], "its other node is still silent"
    (cleared,) = tell("b", "ready", "unknown")
    assert isinstance(cleared, JobUnknownV1)
    assert not cleared.is_unknown
    assert tell("b", "lost", "unknown") == []
    assert found.state(job_id) == "running"


def test_a_lost_node_moves_its_job_when_placement_releases_it() -> None:
    """To another node, with its place in the queue."""
    found = yard(nodes=2)
    job_id = found.submit(8)
    lost = found.plan(job_id).ranks[0].node_id
    found.start(job_id)
    found.change(lost, status="lost")
    found.release(job_id, "node-lost", avoid_nodes=[lost])
    assert found.h.said_of(JobRequeuedV1)[0].reason == "node-lost"
    assert found.plan(job_id).ranks[0].node_id != lost


def test_nothing_is_planned_while_placement_is_blind() -> None:
    """Sight is kept over a restart; late news of it are ignored."""
    found = yard()
    earlier = found.h.clock.now()
    found.h.clock.advance(1)

    def tell(is_blind: bool, at: Any) -> None:
        found.h.feed(FleetSightChangedV1(is_blind=is_blind, silent_nodes=2, nodes=3, at=at))

    tell(True, found.h.clock.now())
    tell(False, earlier)
    job_id = found.submit()
    assert found.state(job_id) == "queued"
    found.h.restart()
    found.tenant()
    found.rehear()
    found.h.tick("look")
    assert found.store.queue.reasons() == {"fleet-blind": 1}
    tell(False, found.h.clock.now())
    assert found.state(job_id) == "placing"


def test_b48_a_cordon_between_refusal_and_retry_sends_the_job_elsewhere() -> None:
    """A stale decision does not come back: the next plan is made on the state as it is then."""
    found = yard(nodes=2, cards=2)
    job_id = found.submit(2)
    first = found.plan(job_id).ranks[0].node_id
    found.cordon(first)
    found.h.feed(found.refused(job_id, "node-cordoned"))
    found.h.clock.advance(1)
    found.h.tick("look")
    assert found.plan(job_id).ranks[0].node_id != first
    blocked = found.submit(2)
    assert found.state(blocked) == "queued"


def test_a_release_of_an_attempt_that_is_over_does_not_touch_the_next() -> None:
    """The attempt is the fence, also when the events come very late."""
    found = yard()
    job_id = found.submit()
    found.start(job_id)
    late = found.released(job_id, "node-lost")
    found.release(job_id, "node-restarted")
    assert found.plan(job_id).attempt == 2
    found.start(job_id)
    found.h.feed(late)
    assert found.state(job_id) == "running"
    assert isinstance(late.data, AllocationReleasedV1)
    assert len(found.h.said_of(JobPlacingV1)) == 2
