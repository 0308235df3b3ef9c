"""Answers to questions about one job, made from the domain's values."""

from datetime import datetime, timedelta
from typing import Any

from gpuyard_contracts.messages.explaining import (
    AccuracyV1,
    BindingV1,
    EstimateV1,
    ExplainReplyV1,
    PlanReplyV1,
    SuggestionV1,
    VerdictGroupV1,
    VerdictV1,
)

from gpuyard_scheduler.domain.admit import Rejection
from gpuyard_scheduler.domain.estimate import Estimate, Measured
from gpuyard_scheduler.domain.explain import Explanation
from gpuyard_scheduler.domain.fit import Failed
from gpuyard_scheduler.domain.foresee import Foreseen
from gpuyard_scheduler.domain.model import EPOCH, Job
from gpuyard_scheduler.domain.snapshot import Snapshot
from gpuyard_scheduler.mapping import told


def explanation(job: Job, found: Explanation, snapshot: Snapshot, measured: Measured) -> ExplainReplyV1:
    """Why one job waits."""
    if found.reason is None:
        return ExplainReplyV1(job_id=job.job_id, state=job.state, detail=job.end_detail, waiting=len(snapshot.queue))
    return ExplainReplyV1(job_id=job.job_id, state=job.state, **_waiting(found, snapshot, measured))


def rejection(found: Rejection) -> PlanReplyV1:
    """The job would not be taken."""
    return PlanReplyV1(rejected=found.reason, detail=found.detail)


def foreseen(found: Foreseen, snapshot: Snapshot, measured: Measured) -> PlanReplyV1:
    """What would become of the job."""
    if found.start is None or found.receipt is None:
        return PlanReplyV1(**_waiting(found.explanation, snapshot, measured))
    return PlanReplyV1(
        waiting=len(snapshot.queue),
        ranks=told.ranks_of(found.start.ranks),
        receipt=told.receipt_of(found.receipt),
        fleet_versions=found.start.seen,
    )


def _waiting(found: Explanation, snapshot: Snapshot, measured: Measured) -> dict[str, Any]:
    reason = found.reason
    return {
        "reason": None if reason is None else reason.reason,
        "detail": "" if reason is None else reason.detail,
        "position": found.position,
        "waiting": len(snapshot.queue),
        "ahead": found.ahead,
        "verdicts": tuple(VerdictV1(node_id=node_id, **_verdict(failed)) for node_id, failed in found.nodes),
        "groups": tuple(VerdictGroupV1(nodes=fold.number, node_ids=fold.node_ids, **_verdict(fold.failed)) for fold in found.folds),
        "binding": None if found.binding is None else BindingV1(**found.binding._asdict()),
        "suggestions": tuple(SuggestionV1(**one._asdict()) for one in found.suggestions),
        "estimate": None if found.estimate is None else _estimate(found.estimate, measured),
        "fleet_versions": {node_id: snapshot.fleet.nodes[node_id].facts.version for node_id, _ in found.nodes},
    }


def _verdict(failed: Failed | None) -> dict[str, Any]:
    if failed is None:
        return {"is_fit": True, "constraint": "", "detail": "fits now"}
    return {"is_fit": False, "constraint": failed.constraint, "detail": failed.detail}


def _estimate(found: Estimate, measured: Measured) -> EstimateV1:
    return EstimateV1(
        earliest=_instant(found.earliest_ms),
        latest=_instant(found.latest_ms),
        assumption=found.assumption,
        accuracy=AccuracyV1(**measured._asdict()),
    )


def _instant(at_ms: int | None) -> datetime | None:
    return None if at_ms is None else EPOCH + timedelta(milliseconds=at_ms)
