"""Rows of the database and what they stand for.

A job lies in two tables: ``requests`` (what was asked: large, written once) and ``jobs`` (how far it is: small, written at each turn).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gpuyard_contracts.spec import JobSpec

from gpuyard_scheduler.domain.ask import ask_of
from gpuyard_scheduler.domain.model import Ask, Job, RankPlan, Slice


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked, by whom and when."""

    job_id: str
    tenant: str
    request_id: str
    spec: JobSpec | None
    submitted_at: datetime
    traceparent: str | None


@dataclass(frozen=True, slots=True)
class Sight:
    """Whether placement sees the fleet. One row."""

    is_blind: bool
    at: datetime


def spec_text(row: Request) -> str | None:
    """The spec as JSON text."""
    return None if row.spec is None else row.spec.model_dump_json(exclude_defaults=True)


def request_of(record: Mapping[str, Any]) -> Request:
    """A request from its row."""
    return Request(
        job_id=record["job_id"],
        tenant=record["tenant"],
        request_id=record["request_id"],
        spec=JobSpec.model_validate_json(record["spec"]),
        submitted_at=record["submitted_at"],
        traceparent=record["traceparent"],
    )


def ask_in(spec: str) -> Ask:
    """What a stored spec asks for."""
    return ask_of(JobSpec.model_validate_json(spec))


def new_job(request: Request, spec: JobSpec) -> Job:
    """The job that a request makes."""
    return Job(
        job_id=request.job_id,
        tenant=request.tenant,
        request_id=request.request_id,
        spec=spec,
        ask=ask_of(spec),
        submitted_at=request.submitted_at,
        traceparent=request.traceparent,
        aged_at=request.submitted_at,
    )


def ranks_text(job: Job) -> str:
    """The plan as JSON: one array for each rank."""
    return json.dumps(job.ranks, separators=(",", ":"))


def marks_text(job: Job) -> str:
    """What is rarely there, as a JSON object; what is as at the beginning is left out."""
    marks: dict[str, Any] = {
        "intent": job.intent,
        "intent_detail": job.intent_detail,
        "failures": job.failures,
        "moves": job.moves,
        "evictions": job.evictions,
        "start_failures": job.start_failures,
        "refusals": job.refusals,
        "is_unknown": job.is_unknown,
        "avoid_nodes": sorted(job.ask.avoid_nodes),
        "avoid_gpus": sorted(job.ask.avoid_gpus),
    }
    kept = {name: value for name, value in marks.items() if value}
    return json.dumps(kept, separators=(",", ":")) if kept else "{}"


def job_of(record: Mapping[str, Any]) -> Job:
    """A job from its row, joined with its request's."""
    marks: dict[str, Any] = json.loads(record["marks"])
    spec = JobSpec.model_validate_json(record["spec"])
    return Job(
        job_id=record["job_id"],
        tenant=record["tenant"],
        request_id=record["request_id"],
        spec=spec,
        ask=ask_of(spec, frozenset(marks.pop("avoid_nodes", ())), frozenset(marks.pop("avoid_gpus", ()))),
        submitted_at=record["submitted_at"],
        traceparent=record["traceparent"],
        state=record["state"],
        attempt=record["attempt"],
        aged_at=record["aged_at"],
        not_before=record["not_before"],
        ranks=tuple(_rank_of(rank) for rank in json.loads(record["ranks"])),
        ordered_at=record["ordered_at"],
        started_at=record["started_at"],
        told=record["told"],
        ended_at=record["ended_at"],
        end_reason=record["end_reason"],
        end_detail=record["end_detail"],
        exit_code=record["exit_code"],
        **marks,
    )


def _rank_of(found: list[Any]) -> RankPlan:
    rank, node_id, slices, cpu_milli, memory_mib = found
    return RankPlan(rank, node_id, tuple(Slice(*part) for part in slices), cpu_milli, memory_mib)
