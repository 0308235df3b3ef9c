"""What the scheduler's tests are made of: nodes, asks, jobs, and the scheduler alone with the test in the role of placement."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from gpuyard_contracts.envelope import Envelope, Payload
from gpuyard_contracts.messages.api import TenantStateV1
from gpuyard_contracts.messages.placement import (
    AllocationCommittedV1,
    AllocationRefusedV1,
    AllocationReleasedV1,
    AllocationStartedV1,
    CordonV1,
    GpuV1,
    HoldV1,
    NodeFactsV1,
    NodeStateV1,
)
from gpuyard_contracts.messages.requests import JobCancelV1, JobSubmitV1
from gpuyard_contracts.messages.scheduler import PlaceV1
from gpuyard_contracts.spec import JobSpec
from gpuyard_contracts.types import allocation_id_of, job_id_of
from gpuyard_runtime.testing import Harness
from gpuyard_scheduler.app import service
from gpuyard_scheduler.domain.ask import ask_of
from gpuyard_scheduler.domain.fleet import Fleet
from gpuyard_scheduler.domain.lives import Lives
from gpuyard_scheduler.domain.model import CardFacts, Job, NodeFacts, Tenant, millis
from gpuyard_scheduler.domain.policy import Policy
from gpuyard_scheduler.domain.queue import Queue
from gpuyard_scheduler.domain.quota import Usage
from gpuyard_scheduler.domain.snapshot import Snapshot
from gpuyard_scheduler.store import SchedulerStore

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def cards(
    node: str, number: int, model: str = "A100-80GB", memory_mib: int = 81_920, *, linked: bool = True, numa: Iterable[int] = ()
) -> tuple[CardFacts, ...]:
    """Cards of one node, each linked to all others unless told otherwise."""
    uuids = [f"GPU-{node}-{position}" for position in range(number)]
    sockets = dict(enumerate(numa))
    return tuple(
        CardFacts(uuid, model, memory_mib, links=frozenset(uuids) - {uuid} if linked else frozenset(), numa=sockets.get(position))
        for position, uuid in enumerate(uuids)
    )


def node(name: str, number: int = 8, model: str = "A100-80GB", memory_mib: int = 81_920, **other: Any) -> NodeFacts:
    """A node with plenty of CPU and memory."""
    facts = {"cards": cards(name, number, model, memory_mib), "cpu_milli": 128_000, "memory_mib": 1_000_000, "version": 1, **other}
    return NodeFacts(node_id=name, **facts)


def spec(gpu: Any = 1, **other: Any) -> JobSpec:
    """A job's spec; `gpu` as in a job file."""
    return JobSpec.model_validate({"name": "test", "command": ["true"], "gpu": gpu, **other})


def job(name: str, gpu: Any = 1, tenant: str = "acme", waited: float = 0, **other: Any) -> Job:
    """A waiting job. `waited` in seconds."""
    made = other.pop("spec", None) or spec(gpu, **other)
    since = NOW - timedelta(seconds=waited)
    return Job(job_id=name, tenant=tenant, request_id=name, spec=made, ask=ask_of(made), submitted_at=since, aged_at=since)


def snapshot(nodes: Iterable[NodeFacts], jobs: Iterable[Job], *tenants: Tenant, now: datetime = NOW, **other: Any) -> Snapshot:
    """What a decision is made on; tenants that are not given have no limits."""
    jobs = list(jobs)
    usage, lives = Usage(), Lives()
    fleet = Fleet.of(nodes)
    for found in jobs:
        usage.move(None, found)
        lives.move(None, found)
        if found.is_live:
            for plan in found.ranks:
                fleet.hold(allocation_id_of(found.job_id, found.attempt), plan, None)
    known = {found.tenant: Tenant(found.tenant) for found in jobs} | {tenant.tenant: tenant for tenant in tenants}
    return Snapshot(now_ms=millis(now), fleet=fleet, queue=Queue.of(jobs), tenants=known, usage=usage, lives=lives, **other)


def started(found: Job, ranks: Any) -> Job:
    """The job as it is once it runs on these ranks."""
    return replace(found, state="running", attempt=found.attempt + 1, ranks=ranks, started_at=NOW)


class Yard:
    """The scheduler alone; the test plays placement, truthfully unless told otherwise."""

    def __init__(self, policy: Policy | None = None) -> None:
        self.h: Harness[SchedulerStore] = Harness(service(policy))
        self._versions = count(1)
        self._requests = count(1)
        self.states: dict[str, NodeStateV1] = {}

    @property
    def store(self) -> SchedulerStore:
        """The scheduler's rows."""
        return self.h.store

    def tenant(self, name: str = "acme", **other: Any) -> None:
        """Make a tenant known."""
        self.h.feed(TenantStateV1.model_validate({"tenant": name, "version": next(self._versions), "name": name, **other}))

    def node(self, name: str = "a", number: int = 8, model: str = "A100-80GB", memory_mib: int = 81_920, **other: Any) -> None:
        """Tell of a node (again): the next version of its state."""
        uuids = [f"GPU-{name}-{position}" for position in range(number)]
        gpus = tuple(
            GpuV1(uuid=uuid, model=model, memory_mib=memory_mib, links=tuple(peer for peer in uuids if peer != uuid)) for uuid in uuids
        )
        facts = NodeFactsV1(display_name=name, address="127.0.0.1", gpus=gpus, cpu_milli=128_000, memory_mib=1_000_000)
        self._tell(
            NodeStateV1.model_validate(
                {"node_id": name, "version": 1, "status": "ready", "facts": facts, "last_heard_at": self.h.clock.now(), **other}
            )
        )

    def change(self, name: str, **other: Any) -> None:
        """Tell of a known node with something changed."""
        self._tell(self.states[name].model_copy(update=other))

    def cordon(self, name: str, gpu_uuid: str | None = None) -> None:
        """An operator takes the node or one card out of service."""
        cordon = CordonV1(holder="operator/olga", reason="", gpu_uuid=gpu_uuid, at=self.h.clock.now())
        self.change(name, cordons=(*self.states[name].cordons, cordon))

    def submit(self, gpu: Any = 1, tenant: str = "acme", request_id: str | None = None, **other: Any) -> str:
        """Submit a job; returns its id."""
        request_id = request_id or f"r{next(self._requests)}"
        self.h.feed(JobSubmitV1(tenant=tenant, spec=spec(gpu, **other), request_id=request_id))
        return job_id_of(tenant, request_id)

    def cancel(self, job_id: str, tenant: str = "acme", **other: Any) -> list[Payload]:
        """Ask for its end."""
        return self.h.feed(JobCancelV1(tenant=tenant, job_id=job_id, **other))

    def state(self, job_id: str) -> str:
        """The job's state, as the database has it."""
        return self.row(job_id).state

    def row(self, job_id: str) -> Job:
        """The job's row in the database."""
        return next(row for row in self.h.rows("jobs") if row.job_id == job_id)

    def plan(self, job_id: str) -> PlaceV1:
        """The last plan for the job."""
        return [said for said in self.h.said_of(PlaceV1) if said.job_id == job_id][-1]

    def commit(self, job_id: str) -> None:
        """Placement commits the job's last plan, and shows it in the nodes' states."""
        plan = self.plan(job_id)
        for rank in plan.ranks:
            hold = HoldV1(
                allocation_id=plan.allocation_id,
                tenant=plan.tenant,
                job_id=job_id,
                rank=rank.rank,
                slices=rank.slices,
                cpu_milli=rank.cpu_milli,
                memory_mib=rank.memory_mib,
            )
            self.change(rank.node_id, holds=(*self.states[rank.node_id].holds, hold))
        self.h.feed(self.committed(job_id))

    def committed(self, job_id: str) -> Envelope[Any]:
        """Placement's yes to the last plan."""
        plan = self.plan(job_id)
        return self.h.envelope(
            AllocationCommittedV1(
                tenant=plan.tenant,
                allocation_id=plan.allocation_id,
                job_id=job_id,
                attempt=plan.attempt,
                ranks=plan.ranks,
                models={},
                at=self.h.clock.now(),
            )
        )

    def refused(self, job_id: str, reason: Any = "slice-taken") -> Envelope[Any]:
        """Placement's no to the last plan."""
        plan = self.plan(job_id)
        return self.h.envelope(
            AllocationRefusedV1(
                tenant=plan.tenant, allocation_id=plan.allocation_id, job_id=job_id, attempt=plan.attempt, reason=reason, detail="taken"
            )
        )

    def start(self, job_id: str) -> None:
        """Commit and start the last plan."""
        plan = self.plan(job_id)
        self.commit(job_id)
        self.h.feed(
            AllocationStartedV1(
                tenant=plan.tenant,
                allocation_id=plan.allocation_id,
                job_id=job_id,
                attempt=plan.attempt,
                started_at=self.h.clock.now(),
            )
        )

    def released(self, job_id: str, reason: Any = "exited", **other: Any) -> Envelope[Any]:
        """The end of the last plan's attempt."""
        plan = self.plan(job_id)
        how = {"exit_code": 0} if reason == "exited" and "signal" not in other else {}
        return self.h.envelope(
            AllocationReleasedV1.model_validate(
                {
                    "tenant": plan.tenant,
                    "allocation_id": plan.allocation_id,
                    "job_id": job_id,
                    "attempt": plan.attempt,
                    "started_at": self.h.clock.now(),
                    "ended_at": self.h.clock.now(),
                    "reason": reason,
                    **how,
                    **other,
                }
            )
        )

    def release(self, job_id: str, reason: Any = "exited", **other: Any) -> list[Payload]:
        """Placement releases what the job holds: the event, and the nodes' states without it."""
        plan = self.plan(job_id)
        said = self.h.feed(self.released(job_id, reason, **other))
        for node_id in sorted({rank.node_id for rank in plan.ranks}):
            holds = tuple(hold for hold in self.states[node_id].holds if hold.allocation_id != plan.allocation_id)
            said += self.change_and_hear(node_id, holds=holds)
        return said

    def change_and_hear(self, name: str, **other: Any) -> list[Payload]:
        """Change a node and return what the scheduler then says."""
        before = len(self.h.said)
        self.change(name, **other)
        return self.h.said[before:]

    def rehear(self) -> None:
        """After a restart the state streams are read anew."""
        self.h.feed(*self.states.values())

    def _tell(self, state: NodeStateV1) -> None:
        known = self.states.get(state.node_id)
        state = state.model_copy(update={"version": 1 if known is None else known.version + 1})
        self.states[state.node_id] = state
        self.h.feed(state)


def yard(nodes: int = 1, cards: int = 8, policy: Policy | None = None, **tenant: Any) -> Yard:
    """A scheduler with tenant ``acme`` and nodes ``a``, ``b``, …, whose fleet has settled."""
    made = Yard(policy)
    made.tenant(**tenant)
    for number in range(nodes):
        made.node("abcdefgh"[number], cards)
    made.h.clock.advance(10)
    return made
