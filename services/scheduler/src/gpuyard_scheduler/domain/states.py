"""The life of a job as a table: state and cause give the next state. A cause that cannot apply is ignored with a reason, never raised.

The functions below are the only ones that change a job's state; each returns the job as it is then, or :class:`Ignored`.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal

from gpuyard_scheduler.domain.ask import ask_of
from gpuyard_scheduler.domain.ending import Ending, Requeue
from gpuyard_scheduler.domain.model import ENDED, Intent, Job, RankPlan, State, Waits
from gpuyard_scheduler.domain.policy import Policy

Cause = Literal["plan", "commit", "refuse", "start", "stop", "requeue", "succeed", "fail", "cancel", "expire"]

TABLE: dict[tuple[State, Cause], State] = {
    ("queued", "plan"): "placing",
    ("queued", "cancel"): "cancelled",
    ("placing", "commit"): "starting",
    ("placing", "refuse"): "queued",
    ("placing", "start"): "running",
    ("placing", "stop"): "stopping",
    ("placing", "requeue"): "queued",
    ("placing", "succeed"): "succeeded",
    ("placing", "fail"): "failed",
    ("starting", "start"): "running",
    ("starting", "stop"): "stopping",
    ("starting", "requeue"): "queued",
    ("starting", "succeed"): "succeeded",
    ("starting", "fail"): "failed",
    ("running", "stop"): "stopping",
    ("running", "requeue"): "queued",
    ("running", "succeed"): "succeeded",
    ("running", "fail"): "failed",
    # Who was told to stop ends as it was told, whatever its last breath was.
    ("stopping", "cancel"): "cancelled",
    ("stopping", "expire"): "expired",
    ("stopping", "fail"): "failed",
    # Who was told to yield waits again, unless it ended by itself before.
    ("stopping", "requeue"): "queued",
    ("stopping", "succeed"): "succeeded",
}


@dataclass(frozen=True, slots=True)
class Ignored:
    """The cause cannot apply; nothing changes."""

    why: str


def move(job: Job, cause: Cause) -> State | Ignored:
    """The next state."""
    following = TABLE.get((job.state, cause))
    if following is not None:
        return following
    return Ignored(f"{'it is over' if job.state in ENDED else f'it is {job.state}'}: {cause} cannot apply")


def of_attempt(job: Job | None, attempt: int) -> Job | Ignored:
    """The job, if news of this attempt still concern it."""
    if job is None:
        return Ignored("no such live job")
    if attempt != job.attempt or not job.is_live:
        return Ignored(f"news of attempt {attempt}, it is {job.state} at attempt {job.attempt}")
    return job


def plan(job: Job, ranks: tuple[RankPlan, ...], at: datetime) -> Job | Ignored:
    """A plan was made: a new attempt begins."""
    following = move(job, "plan")
    if isinstance(following, Ignored):
        return following
    return replace(job, state=following, attempt=job.attempt + 1, ranks=ranks, ordered_at=at, not_before=None, told=None)


def commit(job: Job) -> Job | Ignored:
    """Placement holds what was planned. While it is stopping nothing changes: it was told to let go already."""
    following = move(job, "commit")
    return following if isinstance(following, Ignored) else replace(job, state=following, ordered_at=None, refusals=0)


def refuse(job: Job, at: datetime, policy: Policy) -> Job | Ignored:
    """Placement did not take the plan: the job waits again after a short pause; that is no failure of its own."""
    following = move(job, "refuse")
    if isinstance(following, Ignored):
        return following
    refusals = job.refusals + 1
    pause = timedelta(milliseconds=policy.refused_pause_ms(refusals))
    return replace(_waiting(job), state=following, refusals=refusals, not_before=at + pause)


def start(job: Job, at: datetime) -> Job | Ignored:
    """Every rank runs since `at`."""
    following = move(job, "start")
    return following if isinstance(following, Ignored) else replace(job, state=following, ordered_at=None, started_at=at, refusals=0)


def stop(job: Job, intent: Intent, detail: str, at: datetime) -> Job | Ignored:
    """It is told to stop, and will end for this reason. One that only yields may still be told to end."""
    if job.state == "stopping" and job.intent == "preempted" and intent != "preempted":
        return replace(job, intent=intent, intent_detail=detail)
    following = move(job, "stop")
    if isinstance(following, Ignored):
        return following
    return replace(job, state=following, intent=intent, intent_detail=detail, ordered_at=at)


def end(job: Job, ending: Ending, at: datetime) -> Job | Ignored:
    """It is over for good."""
    following = move(job, ending.cause)
    if isinstance(following, Ignored):
        return following
    return replace(
        job,
        state=following,
        ranks=(),
        ordered_at=None,
        not_before=None,
        is_unknown=False,
        ended_at=at,
        end_reason=ending.reason,
        end_detail=ending.detail,
        exit_code=ending.exit_code,
    )


def requeue(job: Job, back: Requeue, at: datetime) -> Job | Ignored:
    """The attempt is over, the job is not. Its waiting counts from the beginning, unless it failed by itself."""
    following = move(job, "requeue")
    if isinstance(following, Ignored):
        return following
    again = at + timedelta(milliseconds=back.pause_ms)
    avoid_nodes = job.ask.avoid_nodes | back.avoid_nodes
    avoid_gpus = job.ask.avoid_gpus | back.avoid_gpus
    return replace(
        _waiting(job),
        state=following,
        ask=ask_of(job.spec, avoid_nodes, avoid_gpus),
        aged_at=again if back.counts == "failures" else job.aged_at,
        not_before=again if back.pause_ms else None,
        failures=job.failures + (back.counts == "failures"),
        moves=job.moves + (back.counts == "moves"),
        evictions=job.evictions + (back.counts == "evictions"),
        start_failures=job.start_failures + (back.counts == "start_failures"),
    )


def _waiting(job: Job) -> Job:
    return replace(job, ranks=(), ordered_at=None, started_at=None, is_unknown=False, told=None, intent=None, intent_detail="")


def tell(job: Job, reason: Waits) -> Job:
    """Its waiting reason was said."""
    return replace(job, told=reason)


def order_again(job: Job, at: datetime) -> Job:
    """Placement was told again what it had not answered."""
    return replace(job, ordered_at=at)
