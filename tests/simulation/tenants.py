"""What tenants (and strangers) do in the simulation: good requests, malformed ones, repeats, cancels, asks that can never be served;
through the api and straight on the bus. And one who is no tenant: a second proposer that sends plans of its own to placement, as a
scheduler that is wrong or doubled would.

Everything that was sent is remembered, for the checkers to hold the outcome against.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from random import Random
from typing import Any

from gpuyard_api import acts
from gpuyard_api.domain.access import Principal
from gpuyard_api.domain.model import Token
from gpuyard_api.mapping import ask_of
from gpuyard_contracts.messages.requests import JobCancelV1, JobSubmitV1
from gpuyard_contracts.messages.scheduler import PlaceV1, RankPlanV1, SliceV1
from gpuyard_contracts.spec import JobSpec
from gpuyard_contracts.types import allocation_id_of, job_id_of
from gpuyard_runtime.faults import Unavailable
from gpuyard_runtime.saying import enveloped
from gpuyard_runtime.testing import Crash, World

from tests.simulation.machine import NO_SUCH_PROGRAM, Machine, Program

QUOTAS: dict[str, tuple[int | None, int | None]] = {"acme": (5000, None), "beta": (None, 120_000), "free": (None, None)}
"""Tenant → what it may use at once: (milli-GPU, MiB of GPU memory)."""
GHOST = "ghost"
"""A tenant that nobody made."""
ROGUE = "rogue"
"""In whose name the second proposer plans; it has no quota."""

GOOD = (
    "A100:1", "A100:1", "A100:2", "A100:4", "T4:1", "T4:2", "1", "2", "A100:0.5", "T4:0.25", "T4:0.5", "A100:20GB", "T4:4GB", "40GB..",
    "16GB..20GB",
)  # fmt: skip
NEVER = ("H100:1", "A100:16", "T4:64")


def could_run(spec: JobSpec, tenant: str, machines: Sequence[Machine]) -> bool:
    """Whether the whole job would find room if nothing else ran and nothing was broken, within its tenant's quota: worked out from the
    machines themselves. Each rank is on one machine, on cards of one kind, each with a card of its own."""
    gpu = spec.gpu
    milli_quota, memory_quota = QUOTAS.get(tenant, (None, None))
    kinds = {(card.model, card.memory_mib, card.is_shared) for machine in machines for card in machine.cards}
    for model, memory, is_shared in kinds:
        is_meant = not gpu.models or any(
            model.lower() == name.lower() or model.lower().startswith(f"{name.lower()}-") for name in gpu.models
        )
        is_large_enough = max(gpu.memory_mib or 0, gpu.share_memory_mib or 0) <= memory <= (gpu.memory_max_mib or memory)
        if not is_meant or not is_large_enough or (gpu.is_share and not is_shared):
            continue
        share = gpu.milli if gpu.share_memory_mib is None else max(1, gpu.share_memory_mib * 1000 // memory)
        part = gpu.share_memory_mib or (memory if gpu.milli == 1000 else max(1, memory * gpu.milli // 1000))
        cards = gpu.count * spec.ranks
        if (milli_quota is not None and share * cards > milli_quota) or (memory_quota is not None and part * cards > memory_quota):
            continue
        ranks = sum(
            min(sum(card.model == model for card in machine.cards) // gpu.count, machine.cpu_milli // spec.cpu_milli)
            for machine in machines
        )
        if ranks >= spec.ranks:
            return True
    return False


@dataclass
class Asked:
    """One job that was asked for. `kind` is how the request was meant; `cancelled`: its own tenant asked for its end."""

    job_id: str
    tenant: str
    request_id: str
    kind: str
    spec: JobSpec | None
    program: Program | None = None
    is_cancelled: bool = False


@dataclass
class Tenants:
    """The outside. `acts` are what it could do; each is one step."""

    world: World
    machines: list[Machine]
    random: Random
    asked: dict[str, Asked] = field(default_factory=dict[str, Asked])
    sent: list[Any] = field(default_factory=list[Any])
    """Envelopes that were published, to be published again."""
    unreadable: int = 0
    """How many messages nobody can read were put on REQUESTS."""
    rogue_jobs: set[str] = field(default_factory=set[str])
    posts: list[Asked] = field(default_factory=list[Asked])
    """What clients of the api were not answered; they ask again."""
    _names: int = 0

    def act(self) -> str:
        """Do one thing; returns what."""
        deeds: list[tuple[float, Callable[[], None]]] = [
            (10.0, self.submit),
            (1.0, self.submit_what_never_fits),
            (1.0, self.submit_malformed),
            (1.0, self.submit_again),
            (2.5, self.cancel),
            (0.4, self.cancel_anothers),
            (0.4, self.operator_cancels),
            (0.4, self.submit_as_ghost),
            (1.0, self.propose),
            (4.0 * len(self.posts), self.post),
        ]
        chosen = self.random.choices([deed for _, deed in deeds], [weight for weight, _ in deeds])[0]
        try:
            chosen()
        except Unavailable:
            return f"{chosen.__name__}, but the bus or the api is away"
        return chosen.__name__

    # Jobs.

    def submit(self) -> None:
        """A job that can be run."""
        draw = self.random
        seconds: float | None = draw.choice([0.5, 1, 2, 4, 8, 13, 20, 27])
        ranks = draw.choice([1, 1, 1, 1, 2, 2, 3])
        limit: int | None = draw.choice([None, None, None, 4, 15])
        if draw.random() < (0.5 if limit is not None else 0.04):
            seconds = None
        kind = draw.choice(["good", "good", "good", "good", "fails", "one-fails", "flaky", "permanent"])
        program = Program(
            seconds,
            code=3 if kind == "fails" else 0,
            fails=ranks - 1 if kind == "one-fails" else None,
            fails_first=kind == "flaky",
            is_stubborn=draw.random() < 0.2,
        )
        self._submit(draw.choice(list(QUOTAS)), draw.choice(GOOD), kind, program, ranks=ranks, max_seconds=limit)

    def submit_what_never_fits(self) -> None:
        """A job that no node could ever run, or that is above its tenant's whole quota."""
        if self.random.random() < 0.5:
            self._submit("free", self.random.choice(NEVER), "never", Program(1.0))
        else:
            self._submit("acme", "A100:3", "over-quota", Program(1.0), ranks=2)

    def submit_as_ghost(self) -> None:
        """A job of a tenant that nobody knows."""
        self._submit(GHOST, "A100:1", "ghost", Program(1.0), is_by_bus=True)

    def _spec(self, gpu: str, program: Program, **other: Any) -> JobSpec:
        draw = self.random
        is_lost = other.pop("is_lost", False)
        return JobSpec.model_validate(
            {
                "name": f"job-{self._names}",
                "command": [NO_SUCH_PROGRAM] if is_lost else program.command(),
                "gpu": gpu,
                "cpu_milli": draw.choice([100, 1000, 4000]),
                "memory_mib": draw.choice([64, 1024]),
                "priority": draw.choice(["low", "normal", "normal", "high"]),
                "spot": draw.random() < 0.2,
                "retries": draw.choice([0, 0, 0, 1, 2]),
                "grace_seconds": draw.choice([0, 1, 3]),
                "start_timeout_seconds": draw.choice([5, 15, 60]),
                **{name: value for name, value in other.items() if value is not None},
            }
        )

    def _submit(self, tenant: str, gpu: str, kind: str, program: Program, *, is_by_bus: bool = False, **other: Any) -> None:
        self._names += 1
        request_id = f"r{self._names}"
        spec = self._spec(gpu, program, is_lost=kind == "permanent", **other)
        job_id = job_id_of(tenant, request_id)
        job = Asked(job_id, tenant, request_id, kind, spec, program)
        if is_by_bus or self.random.random() < 0.6:
            self._publish(JobSubmitV1(tenant=tenant, spec=spec, request_id=request_id), request_id)
        else:
            self.posts.append(job)
            self.asked[job_id] = job
            self.post()
        self.asked[job_id] = job

    def _publish(self, payload: JobSubmitV1 | JobCancelV1, event_id: str) -> None:
        """As a tenant's own program does: an id of its own choice, which other tenants may choose too."""
        made = enveloped(payload, source="tenant", at=self._now, event_id=event_id)
        self.world.bus.publish(made)
        self.sent.append(made)

    def post(self) -> None:
        """As a client of the api does, again and again until it is answered; the api may die over it."""
        member = self.world.members["api"]
        if not self.posts or not member.is_up or self.world.databases["api"].is_away:
            return
        job = self.posts[0]
        assert job.spec is not None
        ask = ask_of(job.job_id, job.tenant, job.spec, self._now)
        if self.random.random() < self.world.faults.crash:
            member.arm(self.world.random)
        try:
            answer = self.world.act("api", acts.submit(principal(job.tenant, self._now), ask, job.spec, job.request_id))
        except Crash:
            member.die()
            return
        finally:
            member.disarm()
        if isinstance(answer, acts.Submitted):
            self.posts.pop(0)

    @property
    def _now(self) -> datetime:
        return self.world.clock.now()

    def submit_malformed(self) -> None:
        """Something on REQUESTS that is no request."""
        self._names += 1
        tenant, name = self.random.choice(list(QUOTAS)), f"m{self._names}"
        spec = {"name": name, "command": ["x"], "gpu": "A100:1"}
        bodies: list[tuple[str, Any]] = [
            ("submit", {"request_id": name, "spec": spec | {"gpus": 1}}),
            ("submit", {"request_id": name, "spec": spec | {"gpu": "A100:-1"}}),
            ("submit", {"request_id": name, "spec": spec, "tenant": "free" if tenant != "free" else "beta"}),
            ("submit", "not json"),
            ("cancel", {"job_id": "what"}),
            ("suspend", {"job_id": "what"}),
        ]
        verb, body = self.random.choice(bodies)
        raw = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.world.bus.publish_raw(f"gpuyard.req.{tenant}.job.{verb}.v1", raw, {"ce-id": name})
        self.unreadable += 1
        if verb == "submit":
            job_id = job_id_of(tenant, name)
            self.asked[job_id] = Asked(job_id, tenant, name, "malformed", None)

    def submit_again(self) -> None:
        """A request once more: the same message, or the same request under another message id."""
        if not self.sent:
            return
        event = self.random.choice(self.sent)
        if self.random.random() < 0.5:
            self._names += 1
            event = enveloped(event.data, source="tenant", at=self._now, event_id=f"again-{self._names}")
        self.world.bus.publish(event)

    def cancel(self) -> None:
        """A tenant wants no more of its job."""
        mine = [found for found in self.asked.values() if found.tenant != GHOST and found.spec is not None]
        if not mine:
            return
        job = self.random.choice(mine[-8:])
        self._cancel(job, job.tenant)

    def operator_cancels(self) -> None:
        """An operator ends somebody's job by the api."""
        member = self.world.members["api"]
        if not member.is_up or self.world.databases["api"].is_away:
            return
        rows = [row for row in member.store.jobs.values() if row.ended_at is None and row.job_id in self.asked]
        if rows:
            row = self.random.choice(sorted(rows, key=lambda found: found.job_id))
            self.world.act("api", acts.cancel(principal(None, self._now), row, "operator's wish"))
            self.asked[row.job_id].is_cancelled = True

    def cancel_anothers(self) -> None:
        """Somebody wants no more of somebody else's job."""
        others = [found for found in self.asked.values() if found.tenant != "free"]
        if others:
            self._cancel(self.random.choice(others), "free")

    def _cancel(self, job: Asked, tenant: str) -> None:
        self._names += 1
        self._publish(JobCancelV1(tenant=tenant, job_id=job.job_id, reason="no more"), f"c{self._names}")
        if tenant == job.tenant:
            job.is_cancelled = True

    def cancel_the_endless(self) -> None:
        """At the end: what would run for ever, or wait for ever (it came while no node was known), is cancelled, until it has ended."""
        shown = self.world.databases["api"].tables.get("jobs", {})
        for job in self.asked.values():
            row = shown.get(job.job_id)
            if job.spec is None or job.program is None or row is None or row.ended_at is not None:
                continue
            is_endless = job.program.seconds is None and job.spec.max_seconds is None
            if is_endless or not could_run(job.spec, job.tenant, self.machines):
                self._cancel(job, job.tenant)

    # The second proposer.

    def propose(self) -> None:
        """A plan of somebody who does not know what is held."""
        draw = self.random
        self._names += 1
        ranks, count = draw.choice([1, 1, 2]), draw.choice([1, 2])
        job_id = job_id_of(ROGUE, f"p{self._names}")
        spec = self._spec(f"A100:{count}", Program(draw.choice([1.0, 30.0])), ranks=ranks, cpu_milli=100)
        plans: list[RankPlanV1] = []
        for rank in range(ranks):
            machine = draw.choice(self.machines)
            cards = draw.sample(machine.cards, min(count, len(machine.cards)))
            slices = tuple(SliceV1(gpu_uuid=card.uuid, milli=1000, memory_mib=card.memory_mib) for card in cards)
            plans.append(RankPlanV1(rank=rank, node_id=machine.node_id, slices=slices, cpu_milli=100, memory_mib=64))
        made = PlaceV1(
            tenant=ROGUE, job_id=job_id, allocation_id=allocation_id_of(job_id, 1), attempt=1, spec=spec, ranks=tuple(plans), seen={}
        )
        self.world.publish(made, source="rogue", key=job_id)
        self.rogue_jobs.add(job_id)


def principal(tenant: str | None, at: datetime) -> Principal:
    """Somebody with a token: of a tenant, or an operator (None)."""
    return Principal(Token("", "", "admin" if tenant is None else "tenant", tenant, "sim", "", at, "sim"))
