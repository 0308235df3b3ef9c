"""A public trace of a GPU cluster, put through the product's own `decide`: the openb trace (Alibaba cluster-trace-gpu-v2023).

The trace is not part of the repository; where it is not found, its measurements are skipped and say so. A :class:`Cluster` is the trace's
fleet with nothing on it; tasks come one by one, as jobs of one tenant, and each is decided on alone: one that finds no room is dropped.
The trace tells nothing of GPU memory or links, so all cards have the same and all of a node are linked.
"""

import csv
import os
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from gpuyard_contracts.spec import JobSpec
from gpuyard_contracts.types import allocation_id_of
from gpuyard_scheduler.domain.decide import decide
from gpuyard_scheduler.domain.fleet import Fleet
from gpuyard_scheduler.domain.mix import Mix
from gpuyard_scheduler.domain.model import Ask, CardFacts, Job, NodeFacts, Tenant, millis
from gpuyard_scheduler.domain.policy import Policy
from gpuyard_scheduler.domain.queue import Queue
from gpuyard_scheduler.domain.quota import Usage
from gpuyard_scheduler.domain.scoring import Scoring, Weights
from gpuyard_scheduler.domain.snapshot import Snapshot

VARIANTS = ("default", "multigpu20", "gpushare40", "gpuspec10")
CARD_MIB = 16_384
NOW = datetime(2030, 1, 1, tzinfo=UTC)
TENANT = "openb"
_SPEC = JobSpec.model_validate({"name": "task", "command": ["true"]})


def folder() -> Path:
    """Where the trace is looked for: `GPUYARD_OPENB`, else beside the checkout."""
    return Path(os.environ.get("GPUYARD_OPENB", Path(__file__).parents[2] / "shared" / "data" / "openb"))


def why_absent() -> str | None:
    """What is missing; None: the trace is there."""
    nodes = folder() / "openb_node_list_gpu_node.csv"
    return None if nodes.is_file() else f"skipped: no trace at {nodes} (set GPUYARD_OPENB to its folder)"


@dataclass(frozen=True, slots=True)
class Task:
    """One task of the trace, and what it takes of all GPUs in milli."""

    ask: Ask
    milli: int

    @property
    def size(self) -> str:
        """Whether it is a share, one whole card, or several."""
        return "share" if self.ask.is_share else "one" if self.ask.cards == 1 else "several"


def tasks(variant: str) -> list[Task]:
    """The tasks of one variant, in the trace's order."""
    with (folder() / f"openb_pod_list_{variant}.csv").open(encoding="utf-8") as file:
        return [_task(row) for row in csv.DictReader(file)]


def _task(row: dict[str, str]) -> Task:
    cards = int(row["num_gpu"])
    milli = int(row["gpu_milli"]) if cards == 1 else 1000
    models = tuple(sorted(model.lower() for model in (row.get("gpu_spec") or "").split("|") if model))
    ask = Ask(cards=cards, milli=milli, models=models, cpu_milli=int(row["cpu_milli"]), memory_mib=max(1, int(row["memory_mib"])))
    return Task(ask, cards * milli)


def nodes() -> Iterator[NodeFacts]:
    """The trace's machines."""
    with (folder() / "openb_node_list_gpu_node.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            uuids = [f"{row['sn']}-{position}" for position in range(int(row["gpu"]))]
            cards = tuple(CardFacts(uuid, row["model"], CARD_MIB, links=frozenset(uuids) - {uuid}) for uuid in uuids)
            yield NodeFacts(row["sn"], 1, cards, int(row["cpu_milli"]), int(row["memory_mib"]))


class Cluster:
    """The trace's fleet under one policy, which learns from the tasks as they come and knows nothing before."""

    def __init__(self, weights: Weights) -> None:
        self.fleet = Fleet.of(nodes())
        self.total_milli = self.fleet.total_milli
        self.held_milli = 0
        self.decided = 0
        self.spent_s = 0.0
        self._policy = Policy()
        self._weights = weights
        self._scoring = Scoring(weights)
        self._mix = Mix()
        self._tenants = {TENANT: Tenant(TENANT)}

    def come(self, task: Task) -> Job | None:
        """A task comes: the running job, or None where it is dropped."""
        self.decided += 1
        job_id = f"job-{self.decided:016d}"
        job = Job(job_id=job_id, tenant=TENANT, request_id=job_id, spec=_SPEC, ask=task.ask, submitted_at=NOW, aged_at=NOW)
        self._mix.move(None, job)
        outlook = self._mix.outlook()
        if outlook is not self._scoring.outlook:
            self._scoring = Scoring(self._weights, outlook)
        snapshot = Snapshot(
            now_ms=millis(NOW), fleet=self.fleet, queue=Queue.of([job]), tenants=self._tenants, usage=Usage(), scoring=self._scoring
        )
        began = time.perf_counter()
        plan = decide(snapshot, self._policy)
        self.spent_s += time.perf_counter() - began
        if not plan.starts:
            return None
        running = replace(job, state="running", attempt=1, ranks=plan.starts[0].ranks)
        for rank in running.ranks:
            self.fleet.hold(allocation_id_of(job_id, 1), rank, None)
        self.held_milli += task.milli
        self._mix.move(job, running)
        return running

    def leave(self, job: Job, task: Task) -> None:
        """A running job ends."""
        for rank in job.ranks:
            self.fleet.let_go(allocation_id_of(job.job_id, 1), rank)
        self.held_milli -= task.milli
        self._mix.move(job, replace(job, state="succeeded", ranks=()))


def draw(found: list[Task], chance: random.Random) -> Task:
    """One task at random, with replacement."""
    return found[chance.randrange(len(found))]
