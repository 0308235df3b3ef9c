"""The scheduler's decision alone: `decide` over synthetic fleets of nodes with eight cards and a deep queue of mixed jobs.

Two states are told apart. `fill`: the fleet is empty and everything fits. The main figure is the steady state of a busy fleet: all cards
are held, the queue is deep, and in each cycle one job in a hundred has ended somewhere, so that room is small and scattered. Only the
time within `decide` counts; plans are carried out on the snapshot between calls, as the service does.
"""

import random
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from gpuyard_contracts.spec import JobSpec
from gpuyard_contracts.types import SlaClass, allocation_id_of
from gpuyard_scheduler.domain.ask import ask_of
from gpuyard_scheduler.domain.decide import Plan, decide, stamp_of
from gpuyard_scheduler.domain.fleet import Fleet
from gpuyard_scheduler.domain.lives import Lives
from gpuyard_scheduler.domain.model import CardFacts, Job, NodeFacts, Reservation, Slot, Start, Tenant, millis
from gpuyard_scheduler.domain.policy import Policy
from gpuyard_scheduler.domain.queue import Queue
from gpuyard_scheduler.domain.quota import Usage
from gpuyard_scheduler.domain.snapshot import Snapshot

from bench.figures import Figures, median
from bench.scale import Scale

SIZES = (1_000, 10_000)
CARDS = 8
TENANTS = 40
SLAS: tuple[SlaClass, ...] = ("gold", "silver", "bronze")
NOW = datetime(2030, 1, 1, tzinfo=UTC)
SEED = 7
ENDED_EACH_CYCLE = 100
"""One live job in so many ends in each cycle."""
ROUND_CYCLES = 8
"""So many cycles make one round; the middle round is reported."""
MOST_CYCLES = 1_000

MODELS = (("A100-80GB", 81_920, 5), ("H100", 81_920, 3), ("L40S", 49_152, 2))
"""Model, MiB, and how many nodes of ten have it."""

MIX: tuple[tuple[int, str, int], ...] = (
    (40, "1", 1),
    (15, "A100:1", 1),
    (10, "0.25", 1),
    (5, "L40S:0.5", 1),
    (12, "2", 1),
    (8, "H100:4", 1),
    (6, "8", 1),
    (3, "A100:8", 2),
    (1, "H100:8", 8),
)
"""Jobs of a hundred, GPUs of one rank, ranks: about what published traces of shared clusters show. Most are small, a few are gangs."""


class Yard:
    """A fleet, a queue, and what the scheduler keeps between its decisions."""

    def __init__(self, nodes: int, jobs: int) -> None:
        self.random = random.Random(SEED)
        self.policy = Policy()
        self.fleet = Fleet.of(_node(number) for number in range(nodes))
        self.queue = Queue()
        self.usage = Usage()
        self.lives = Lives()
        self.tenants = {f"t{number}": Tenant(f"t{number}", sla=SLAS[number % 3], weight=50 + number) for number in range(TENANTS)}
        self.jobs: dict[str, Job] = {}
        self.live: list[str] = []
        self.reservations: dict[Slot, Reservation] = {}
        self.version = 0
        self.cycles = 0
        self.spent_s = 0.0
        self.started = 0
        self._specs = [spec for weight, gpu, ranks in MIX for spec in [_spec(gpu, ranks)] * weight]
        self._asks = {id(spec): ask_of(spec) for spec in self._specs}
        for _ in range(jobs):
            self._submit()

    def _submit(self) -> None:
        number = len(self.jobs)
        spec = self.random.choice(self._specs)
        at = NOW - timedelta(seconds=self.random.randrange(7200))
        job_id = f"job-{number:016d}"
        job = Job(
            job_id=job_id,
            tenant=f"t{self.random.randrange(TENANTS)}",
            request_id=job_id,
            spec=spec,
            ask=self._asks[id(spec)],
            submitted_at=at,
            aged_at=at,
        )
        self._put(job)

    def _put(self, job: Job) -> None:
        old = self.jobs.get(job.job_id)
        self.jobs[job.job_id] = job
        self.queue.move(old, job)
        self.usage.move(old, job)
        self.lives.move(old, job)

    def snapshot(self) -> Snapshot:
        """What is decided on now; each cycle is a tenth of a second later than the last."""
        return Snapshot(
            now_ms=millis(NOW) + self.cycles * 100,
            fleet=self.fleet,
            queue=self.queue,
            tenants=self.tenants,
            usage=self.usage,
            lives=self.lives,
            reservations=self.reservations,
            reservations_version=self.version,
        )

    def cycle(self) -> int:
        """Decide once and carry it out; returns how many jobs start."""
        snapshot = self.snapshot()
        began = time.perf_counter()
        plan = decide(snapshot, self.policy)
        self.spent_s += time.perf_counter() - began
        for start in plan.starts:
            self._start(start)
        self._note(plan)
        self.cycles += 1
        self.started += len(plan.starts)
        return len(plan.starts)

    def _start(self, start: Start) -> None:
        job = replace(self.jobs[start.job_id], state="running", attempt=1, ranks=start.ranks)
        self._put(job)
        for rank in start.ranks:
            self.fleet.hold(allocation_id_of(job.job_id, 1), rank, None)
        self.live.append(job.job_id)

    def _note(self, plan: Plan) -> None:
        """Keep verdicts and reservations, as the scheduler's store does."""
        if {kind: kept[:4] for kind, kept in plan.reservations.items()} != {kind: kept[:4] for kind, kept in self.reservations.items()}:
            self.version += 1
        self.reservations = dict(plan.reservations)
        snapshot = self.snapshot()
        for key, verdict in plan.verdicts.items():
            group = self.queue.groups.get(key)
            if group is not None:
                group.verdict = verdict
                group.stamp = stamp_of(group, snapshot)

    def end_some(self) -> None:
        """One live job in a hundred has ended; as many new ones come."""
        for _ in range(max(1, len(self.live) // ENDED_EACH_CYCLE)):
            at = self.random.randrange(len(self.live))
            self.live[at], self.live[-1] = self.live[-1], self.live[at]
            job = self.jobs[self.live.pop()]
            for rank in job.ranks:
                self.fleet.let_go(allocation_id_of(job.job_id, 1), rank)
            self._put(replace(job, state="succeeded", ranks=()))
            self._submit()

    def rate(self) -> float:
        """Placements per second of `decide` since the last call."""
        found = self.started / self.spent_s if self.spent_s else 0.0
        self.started, self.spent_s = 0, 0.0
        return found


def measure(figures: Figures, scale: Scale) -> None:
    """Put `decide.n<nodes>.placements_per_s` (busy fleet, deep queue), `.fill.placements_per_s` and `.cycle_p99_ms`."""
    for nodes in SIZES:
        yard = Yard(nodes, jobs=nodes * CARDS)
        for _ in range(MOST_CYCLES):
            if not yard.cycle():
                break
        fill, rates, cycles = yard.rate(), list[float](), list[float]()
        for number in range(scale.decide_cycles):
            yard.end_some()
            before = yard.spent_s
            yard.cycle()
            cycles.append((yard.spent_s - before) * 1000)
            if number % ROUND_CYCLES == ROUND_CYCLES - 1:
                rates.append(yard.rate())
        figures.put(f"decide.n{nodes}.placements_per_s", median(rates))
        figures.put(f"decide.n{nodes}.fill.placements_per_s", fill)
        figures.put(f"decide.n{nodes}.cycle.p50_ms", median(cycles))
        figures.put(f"decide.n{nodes}.waiting_jobs", len(yard.queue))


def _spec(gpu: str, ranks: int) -> JobSpec:
    return JobSpec.model_validate({"name": "bench", "command": ["true"], "gpu": gpu, "ranks": ranks})


def _node(number: int) -> NodeFacts:
    place = number % 10
    model, memory_mib = next(
        (model, mib) for at, (model, mib, _) in enumerate(MODELS) if place < sum(parts for _, _, parts in MODELS[: at + 1])
    )
    uuids = [f"GPU-{number}-{position}" for position in range(CARDS)]
    cards = tuple(
        CardFacts(uuid, model, memory_mib, links=frozenset(uuids) - {uuid}, numa=position * 2 // CARDS)
        for position, uuid in enumerate(uuids)
    )
    return NodeFacts(f"n{number:05d}", 1, cards, cpu_milli=128_000, memory_mib=1_048_576, zone=f"z{number % 4}")
