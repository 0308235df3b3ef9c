"""What would become of a job that is only thought of: the real decision, on the present state with the job in the queue."""

from dataclasses import replace
from typing import NamedTuple

from gpuyard_scheduler.domain.decide import decide
from gpuyard_scheduler.domain.explain import Explanation, explain
from gpuyard_scheduler.domain.model import Job, Start
from gpuyard_scheduler.domain.policy import Policy
from gpuyard_scheduler.domain.receipt import Receipt, receipts
from gpuyard_scheduler.domain.snapshot import Snapshot


class Foreseen(NamedTuple):
    """Where the job would start at once, with the receipt; or why it would wait."""

    start: Start | None
    receipt: Receipt | None
    explanation: Explanation


def foresee(job: Job, snapshot: Snapshot, policy: Policy) -> Foreseen:
    """What this job would meet if it were asked for now. The snapshot is left as it was."""
    trial = replace(snapshot, queue=snapshot.queue.instead(job))
    plan = decide(trial, policy)
    for number, start in enumerate(plan.starts):
        if start.job_id == job.job_id:
            *_, receipt = receipts(plan.starts[: number + 1], trial, policy)
            return Foreseen(start, receipt, Explanation(None))
    group, _ = trial.queue.spots[job.job_id]  # a line of the trial's own
    group.verdict = plan.verdicts.get(group.key) or group.verdict
    return Foreseen(None, None, explain(job, trial, policy))
