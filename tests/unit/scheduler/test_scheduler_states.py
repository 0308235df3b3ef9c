"""A job's life as a table, and what the end of an attempt means."""

from dataclasses import replace
from typing import Any, get_args

import pytest
from gpuyard_scheduler.domain import states
from gpuyard_scheduler.domain.ending import Ending, Release, Requeue, after
from gpuyard_scheduler.domain.model import ENDED, LIVE, Job, RankPlan, State
from gpuyard_scheduler.domain.policy import Policy
from gpuyard_scheduler.domain.states import TABLE, Cause, Ignored

from tests.unit.scheduler.scheduler_world import NOW, job, spec

POLICY = Policy()
RANKS = (RankPlan(0, "a", (), 1000, 1024),)


def _live(**other: Any) -> Job:
    return replace(job("j", spec=other.pop("spec", spec(1))), state="running", attempt=1, ranks=RANKS, started_at=NOW, **other)


def test_what_is_over_stays_over() -> None:
    """No cause leads out of an end, and every other state has a way to one."""
    assert not [state for state, _ in TABLE if state in ENDED]
    assert {state for state, _ in TABLE} == {"queued", *LIVE}
    for state in get_args(State):
        seen, edge = {state}, [state]
        while edge:
            here = edge.pop()
            reached = {following for (start, _), following in TABLE.items() if start == here} - seen
            seen |= reached
            edge += reached
        assert seen & ENDED, f"{state} never ends"


def test_a_cause_that_cannot_apply_is_ignored_with_a_reason() -> None:
    """Never raised: late news are ordinary."""
    for state in get_args(State):
        for cause in get_args(Cause):
            found = states.move(replace(job("j"), state=state), cause)
            assert found == TABLE.get((state, cause)) or (isinstance(found, Ignored) and cause in found.why)


def test_news_of_another_attempt_are_not_the_jobs() -> None:
    """The attempt is the fence."""
    live = _live()
    assert states.of_attempt(live, 1) is live
    for found in (states.of_attempt(live, 2), states.of_attempt(None, 1), states.of_attempt(replace(live, state="queued"), 1)):
        assert isinstance(found, Ignored)


def test_a_plan_is_a_new_attempt() -> None:
    """Even if the one before was never committed: two plans never share an allocation."""
    planned = states.plan(job("j"), RANKS, NOW)
    assert isinstance(planned, Job)
    refused = states.refuse(planned, NOW, POLICY)
    assert isinstance(refused, Job)
    assert (refused.attempt, refused.ranks, refused.refusals) == (1, (), 1)
    again = states.plan(refused, RANKS, NOW)
    assert isinstance(again, Job)
    assert again.attempt == 2


@pytest.mark.parametrize(
    ("release", "state_reason"),
    [
        ({"reason": "exited", "exit_code": 0}, ("succeed", "completed")),
        ({"reason": "exited", "exit_code": 3}, ("fail", "exit-code")),
        ({"reason": "exited"}, ("fail", "exit-code")),
        ({"reason": "exited", "exit_code": 0, "signal": 9}, ("fail", "killed-by-signal")),
        ({"reason": "start-timeout"}, ("fail", "start-timeout")),
        ({"reason": "start-failed", "is_permanent": True}, ("fail", "start-failed")),
        ({"reason": "start-refused", "is_permanent": True}, ("fail", "start-failed")),
    ],
)
def test_without_retries_a_failure_is_the_end(release: dict[str, Any], state_reason: tuple[str, str]) -> None:
    """B33: a start that can never succeed fails at once, and is no success."""
    ending = after(_live(), Release(**release), POLICY)
    assert isinstance(ending, Ending)
    assert (ending.cause, ending.reason) == state_reason


def test_retries_are_limited_and_pause_longer_each_time() -> None:
    """The last failure names the retries that were spent; its own start-up failures count like others (start-timeout)."""
    tried = _live(spec=spec(1, retries=3))
    pauses = []
    for failures in range(3):
        back = after(replace(tried, failures=failures), Release(reason="exited", exit_code=1), POLICY)
        assert isinstance(back, Requeue)
        assert (back.reason, back.counts) == ("retry", "failures")
        pauses.append(back.pause_ms)
    assert pauses == [1000, 2000, 4000]
    over = after(replace(tried, failures=3), Release(reason="exited", exit_code=7, detail="boom"), POLICY)
    assert over == Ending("fail", "retries-exhausted", "exit code 7: boom (after 3 retries)", 7)
    assert isinstance(after(tried, Release(reason="start-timeout"), POLICY), Requeue)
    assert POLICY.retry_pause_ms(60) == 300_000


@pytest.mark.parametrize("reason", ["gpu-fault", "node-lost", "node-drained", "node-restarted"])
def test_what_happened_to_a_job_is_not_its_failure(reason: Any) -> None:
    """It goes on elsewhere, at once the first time, and gives up only after very many moves."""
    release = Release(reason=reason, avoid_gpus=frozenset({"GPU-x"}))
    back = after(_live(), release, POLICY)
    assert isinstance(back, Requeue)
    assert (back.counts, back.pause_ms, back.avoid_gpus) == ("moves", 0, {"GPU-x"})
    assert isinstance(after(_live(moves=49), release, POLICY), Requeue)
    lost = after(_live(moves=50), release, POLICY)
    assert isinstance(lost, Ending)
    assert (lost.cause, lost.reason) == ("fail", "lost")


def test_a_job_whose_processes_vanish_again_and_again_is_given_up_soon() -> None:
    """It may be what ends them, and its neighbours' with them: it goes on elsewhere at once, but not fifty times."""
    release = Release(reason="process-vanished")
    first, last = after(_live(), release, POLICY), after(_live(moves=4), release, POLICY)
    assert isinstance(first, Requeue)
    assert isinstance(last, Requeue)
    assert (last.counts, first.pause_ms) == ("moves", 0)
    lost = after(_live(moves=5), release, POLICY)
    assert isinstance(lost, Ending)
    assert (lost.cause, lost.reason) == ("fail", "lost")


def test_a_start_that_fails_is_tried_on_another_node_three_times() -> None:
    """Then the job fails with what the last node said."""
    release = Release(reason="start-refused", detail="no room on disk")
    back = after(_live(start_failures=2), release, POLICY)
    assert isinstance(back, Requeue)
    assert (back.reason, back.avoid_nodes) == ("start-failed", {"a"})
    over = after(_live(start_failures=3), release, POLICY)
    assert isinstance(over, Ending)
    assert (over.reason, "no room on disk" in over.detail) == ("start-failed", True)


@pytest.mark.parametrize(
    ("intent", "state"), [("cancelled-by-tenant", "cancelled"), ("cancelled-by-operator", "cancelled"), ("time-limit", "expired")]
)
@pytest.mark.parametrize("release", [{"reason": "stopped"}, {"reason": "exited", "exit_code": 0}, {"reason": "node-lost"}])
def test_who_was_told_to_stop_ends_as_told(intent: Any, state: str, release: dict[str, Any]) -> None:
    """Whatever its last breath was; it is never queued again."""
    stopping = states.stop(_live(spec=spec(1, retries=5)), intent, "why", NOW)
    assert isinstance(stopping, Job)
    ending = after(stopping, Release(**release), POLICY)
    assert isinstance(ending, Ending)
    over = states.end(stopping, ending, NOW)
    assert isinstance(over, Job)
    assert (over.state, over.end_reason, over.end_detail) == (state, intent, "why")


def test_a_moved_job_keeps_its_age_and_a_failed_one_does_not() -> None:
    """Who was unlucky goes ahead; who failed waits anew. What to avoid adds up."""
    old = replace(_live(spec=spec(1, retries=1)), aged_at=NOW.replace(hour=3))
    moved = states.requeue(old, Requeue(reason="gpu-fault", detail="", pause_ms=0, counts="moves", avoid_gpus=frozenset({"x"})), NOW)
    assert isinstance(moved, Job)
    assert (moved.aged_at, moved.not_before, moved.moves, moved.ranks) == (old.aged_at, None, 1, ())
    twice = states.requeue(
        replace(moved, state="running"),
        Requeue(reason="gpu-fault", detail="", pause_ms=0, counts="moves", avoid_gpus=frozenset({"y"})),
        NOW,
    )
    assert isinstance(twice, Job)
    assert twice.ask.avoid_gpus == {"x", "y"}
    failed = states.requeue(old, Requeue(reason="retry", detail="", pause_ms=1000, counts="failures"), NOW)
    assert isinstance(failed, Job)
    assert failed.aged_at == failed.not_before == NOW.replace(second=1)
