"""What the end of an attempt means for its job: over, or again, and where not.

Three things are counted apart: `failures` are the job's own and are limited by its `retries`; `moves` happened to it (a sick card, a lost
node) and are limited by the policy only; `start_failures` are starts that a node could not make, for which another node is tried.
"""

from dataclasses import dataclass
from typing import Literal

from gpuyard_scheduler.domain.model import Ends, Job, Requeues
from gpuyard_scheduler.domain.policy import Policy

Released = Literal[
    "exited", "stopped", "start-failed", "start-refused", "start-timeout", "gpu-fault", "node-lost", "node-drained", "node-restarted",
    "process-vanished",
]  # fmt: skip

MOVES: dict[Released, Requeues] = {
    "gpu-fault": "gpu-fault",
    "node-lost": "node-lost",
    "node-drained": "node-drained",
    "node-restarted": "node-restarted",
    "process-vanished": "node-lost",
    "stopped": "node-drained",
}
"""Releases that are no fault of the job. `stopped` without an intent of ours: somebody else made it yield."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """How an attempt ended, as placement tells it."""

    reason: Released
    detail: str = ""
    exit_code: int | None = None
    signal: int | None = None
    is_permanent: bool = False
    avoid_gpus: frozenset[str] = frozenset()
    avoid_nodes: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Ending:
    """The job is over."""

    cause: Literal["succeed", "fail", "cancel", "expire"]
    reason: Ends
    detail: str = ""
    exit_code: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Requeue:
    """The job waits again. `counts`: which of its counters grows."""

    reason: Requeues
    detail: str
    pause_ms: int
    counts: Literal["failures", "moves", "start_failures", "evictions"]
    avoid_gpus: frozenset[str] = frozenset()
    avoid_nodes: frozenset[str] = frozenset()


def after(job: Job, release: Release, policy: Policy) -> Ending | Requeue:
    """What follows for the job."""
    if job.intent == "preempted" and release.reason != "exited":
        return yielded(job)
    if job.intent not in (None, "preempted"):
        return withdrawn(job, release)
    if release.reason in MOVES:
        return _moved(job, release, policy)
    if release.reason in ("start-failed", "start-refused"):
        return _not_started(job, release, policy)
    if release.reason == "exited" and release.exit_code == 0 and release.signal is None:
        return Ending("succeed", "completed", release.detail, 0)
    return _failed(job, release, policy)


def yielded(job: Job) -> Requeue:
    """It made room for another and waits again, with its age."""
    return Requeue(reason="preempted", detail=job.intent_detail, pause_ms=0, counts="evictions")


def withdrawn(job: Job, release: Release | None = None) -> Ending:
    """It ends as it was told to, however it ended."""
    reason = "cancelled-by-tenant" if job.intent in (None, "preempted") else job.intent
    exit_code = None if release is None else release.exit_code
    return Ending("expire" if reason == "time-limit" else "cancel", reason, job.intent_detail, exit_code)


def _moved(job: Job, release: Release, policy: Policy) -> Ending | Requeue:
    detail = release.detail or _MOVED[release.reason]
    most = policy.most_moves
    if release.reason == "process-vanished":
        most = min(most, policy.most_moves_of_vanishing)
    if job.moves >= most:
        return Ending("fail", "lost", f"moved {job.moves} times already; the last time: {detail}")
    return Requeue(
        reason=MOVES[release.reason],
        detail=detail,
        pause_ms=policy.move_pause_ms(job.moves + 1),
        counts="moves",
        avoid_gpus=release.avoid_gpus,
        avoid_nodes=release.avoid_nodes,
    )


def _not_started(job: Job, release: Release, policy: Policy) -> Ending | Requeue:
    if release.is_permanent:
        return Ending("fail", "start-failed", release.detail or "it can never be started as it is", release.exit_code)
    if job.start_failures >= policy.most_start_failures:
        detail = f"could not be started {job.start_failures + 1} times; the last time: {release.detail or release.reason}"
        return Ending("fail", "start-failed", detail, release.exit_code)
    nodes = release.avoid_nodes or frozenset(plan.node_id for plan in job.ranks)
    return Requeue(
        reason="start-failed",
        detail=release.detail or "a node could not start it",
        pause_ms=policy.retry_pause_ms(job.start_failures + 1),
        counts="start_failures",
        avoid_gpus=release.avoid_gpus,
        avoid_nodes=nodes,
    )


def _failed(job: Job, release: Release, policy: Policy) -> Ending | Requeue:
    reason, told = _why(release)
    detail = f"{told}: {release.detail}" if release.detail else told
    if job.failures < job.spec.retries:
        pause_ms = policy.retry_pause_ms(job.failures + 1)
        told_again = f"{told}; try {job.failures + 1} of {job.spec.retries} after {pause_ms // 1000} s"
        return Requeue(reason="retry", detail=told_again, pause_ms=pause_ms, counts="failures")
    if job.spec.retries:
        return Ending("fail", "retries-exhausted", f"{detail} (after {job.spec.retries} retries)", release.exit_code)
    return Ending("fail", reason, detail, release.exit_code)


def _why(release: Release) -> tuple[Ends, str]:
    if release.reason == "start-timeout":
        return "start-timeout", "did not start in time"
    if release.signal is not None:
        return "killed-by-signal", f"killed by signal {release.signal}"
    return "exit-code", f"exit code {release.exit_code if release.exit_code is not None else 'unknown'}"


_MOVED: dict[str, str] = {
    "gpu-fault": "a GPU it ran on is sick",
    "node-lost": "its node was lost",
    "node-drained": "its node is being drained",
    "node-restarted": "its node restarted",
    "process-vanished": "its process vanished from its node",
    "stopped": "it was made to yield",
}
