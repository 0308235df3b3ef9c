"""A small fleet around placement on the memory harness: two nodes that speak, and the messages of one job's life."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from gpuyard_contracts.messages.node import (
    HeartbeatReplyV1,
    HeartbeatV1,
    RunningV1,
    WorkloadEndedV1,
    WorkloadRefusedV1,
    WorkloadStartedV1,
)
from gpuyard_contracts.messages.placement import GpuV1, NodeFactsV1, NodeStateV1, StartV1, StopV1
from gpuyard_contracts.messages.scheduler import PlaceV1, RankPlanV1, ReleaseV1, SliceV1
from gpuyard_contracts.spec import GpuAsk, JobSpec
from gpuyard_contracts.types import allocation_id_of, job_id_of
from gpuyard_placement.app import service
from gpuyard_placement.domain.model import Policy
from gpuyard_placement.store import PlacementStore
from gpuyard_runtime.testing import Harness

TENANT = "acme"


def gpu(uuid: str, *, memory_mib: int = 81920, model: str = "A100-80GB", sharing: Any = "shared") -> GpuV1:
    """One card."""
    return GpuV1(uuid=uuid, model=model, memory_mib=memory_mib, sharing=sharing)


def facts(*gpus: GpuV1, address: str = "10.0.0.1", **more: Any) -> NodeFactsV1:
    """A node with these cards."""
    return NodeFactsV1(**{"display_name": "näh-Rechner", "cpu_milli": 64_000, "memory_mib": 512_000} | more, address=address, gpus=gpus)


def cards(node_id: str, count: int = 4) -> tuple[GpuV1, ...]:
    """The cards that the fleet's node of this name has: ``GPU-<node>-<n>``."""
    return tuple(gpu(f"GPU-{node_id}-{number}") for number in range(count))


class Fleet:
    """Placement with nodes. Every node keeps its agent, its boot and its sequence; what runs on it is what the test says."""

    def __init__(self, *nodes: str, policy: Policy | None = None) -> None:
        self.h: Harness[PlacementStore] = Harness(service(policy))
        self.sequences: dict[str, int] = {}
        self.facts: dict[str, NodeFactsV1] = {}
        for number, node_id in enumerate(nodes, 1):
            self.facts[node_id] = facts(*cards(node_id), address=f"10.0.0.{number}")
            assert self.beat(node_id).is_accepted

    @property
    def now(self) -> datetime:
        """The present instant."""
        return self.h.clock.now()

    @property
    def store(self) -> PlacementStore:
        """Placement's rows."""
        return self.h.store

    def beat(
        self,
        node_id: str,
        *running: RunningV1,
        boot_id: str = "boot-1",
        agent_id: str = "agent-1",
        unreported: Sequence[str] = (),
        found: NodeFactsV1 | None = None,
        sequence: int | None = None,
        lost: Sequence[str] = (),
    ) -> HeartbeatReplyV1:
        """One heartbeat of the node."""
        told = found or self.facts[node_id]
        number = self.sequences.get(node_id, 0) + 1 if sequence is None else sequence
        self.sequences[node_id] = max(number, self.sequences.get(node_id, 0))
        self.facts[node_id] = told
        return self.h.ask(
            HeartbeatV1(
                node_id=node_id,
                boot_id=boot_id,
                agent_id=agent_id,
                sequence=number,
                at=self.now,
                facts=told,
                running=running,
                unreported_ends=tuple(unreported),
                lost_gpus=tuple(lost),
            )
        )

    def pass_seconds(self, seconds: int, *beating: str, running: dict[str, tuple[RunningV1, ...]] | None = None) -> None:
        """Let time pass second by second, with heartbeats of these nodes, and every tick."""
        for _ in range(seconds):
            self.h.clock.advance(1)
            for node_id in beating:
                assert self.beat(node_id, *(running or {}).get(node_id, ())).is_accepted
            self.h.tick("watch")
            self.h.tick("overdue")
            self.h.tick("drain")

    def state(self, node_id: str) -> NodeStateV1:
        """The node's state as it was last published."""
        return [found for found in self.h.said_of(NodeStateV1) if found.node_id == node_id][-1]

    def stops(self, node_id: str | None = None) -> list[StopV1]:
        """The stop orders so far."""
        return [found for found in self.h.said_of(StopV1) if node_id is None or found.node_id == node_id]

    def held(self) -> dict[str, int]:
        """Milli-GPU held by card, from the committed rows."""
        found: dict[str, int] = {}
        for row in self.h.rows("slices_held"):
            found[row.gpu_uuid] = found.get(row.gpu_uuid, 0) + row.milli
        return found

    def start(self, place: PlaceV1) -> None:
        """Commit the plan and let every rank start."""
        self.h.feed(place)
        for rank in place.ranks:
            self.h.feed(started(place, rank.rank, at=self.now))


def job(name: str, tenant: str = TENANT) -> str:
    """The job's id."""
    return job_id_of(tenant, name)


def slice_of(uuid: str, milli: int = 1000, memory_mib: int = 81920) -> SliceV1:
    """A part of a card; the whole of it by default."""
    return SliceV1(gpu_uuid=uuid, milli=milli, memory_mib=memory_mib)


def place(name: str, *ranks: tuple[str, tuple[SliceV1, ...]], attempt: int = 1, tenant: str = TENANT, **spec: Any) -> PlaceV1:
    """A plan: for each rank its node and slices."""
    asked = JobSpec(**{"name": name, "command": ("true",), "ranks": len(ranks), "gpu": GpuAsk(count=len(ranks[0][1]))} | spec)
    job_id = job(name, tenant)
    return PlaceV1(
        tenant=tenant,
        job_id=job_id,
        allocation_id=allocation_id_of(job_id, attempt),
        attempt=attempt,
        spec=asked,
        ranks=tuple(
            RankPlanV1(rank=number, node_id=node_id, slices=slices, cpu_milli=asked.cpu_milli, memory_mib=asked.memory_mib)
            for number, (node_id, slices) in enumerate(ranks)
        ),
        seen={},
    )


def one(name: str, uuid: str = "GPU-a-0", node_id: str = "a", *, milli: int = 1000, memory_mib: int = 81920, **more: Any) -> PlaceV1:
    """A plan for one rank with one slice."""
    return place(name, (node_id, (slice_of(uuid, milli, memory_mib),)), **more)


def gang(name: str, *nodes: str, **more: Any) -> PlaceV1:
    """A plan with one whole card for each rank: the n-th of its node."""
    seen: dict[str, int] = {}
    ranks: list[tuple[str, tuple[SliceV1, ...]]] = []
    for node_id in nodes:
        ranks.append((node_id, (slice_of(f"GPU-{node_id}-{seen.get(node_id, 0)}"),)))
        seen[node_id] = seen.get(node_id, 0) + 1
    return place(name, *ranks, **more)


def _workload(plan: PlaceV1, rank: int, node_id: str | None) -> dict[str, Any]:
    return {
        "node_id": node_id or plan.ranks[rank].node_id,
        "tenant": plan.tenant,
        "job_id": plan.job_id,
        "allocation_id": plan.allocation_id,
        "attempt": plan.attempt,
        "rank": rank,
    }


def started(plan: PlaceV1, rank: int = 0, *, at: datetime, node_id: str | None = None) -> WorkloadStartedV1:
    """The rank runs since `at`."""
    return WorkloadStartedV1(**_workload(plan, rank, node_id), pid=100 + rank, started_at=at)


def ended(
    plan: PlaceV1,
    rank: int = 0,
    *,
    at: datetime,
    cause: Any = "exited",
    code: int | None = None,
    since: datetime | None = None,
    **more: Any,
) -> WorkloadEndedV1:
    """The rank is gone since `at`. An exit has code 0 by default."""
    exit_code = 0 if cause == "exited" and code is None and "signal" not in more else code
    return WorkloadEndedV1(**_workload(plan, rank, None), cause=cause, exit_code=exit_code, started_at=since, ended_at=at, **more)


def refused(
    plan: PlaceV1, rank: int = 0, *, reason: Any = "no-room", detail: str = "no memory", permanent: bool = False
) -> WorkloadRefusedV1:
    """The rank will not start."""
    return WorkloadRefusedV1(**_workload(plan, rank, None), reason=reason, detail=detail, is_permanent=permanent)


def running(plan: PlaceV1, rank: int = 0, *, at: datetime, is_stopping: bool = False) -> RunningV1:
    """The rank as a heartbeat lists it."""
    return RunningV1(
        allocation_id=plan.allocation_id,
        tenant=plan.tenant,
        job_id=plan.job_id,
        attempt=plan.attempt,
        rank=rank,
        pid=100 + rank,
        started_at=at,
        is_stopping=is_stopping,
    )


def release(plan: PlaceV1, *, reason: Any = "cancelled-by-tenant", detail: str = "", attempt: int | None = None) -> ReleaseV1:
    """The scheduler gives the attempt up."""
    return ReleaseV1(tenant=plan.tenant, job_id=plan.job_id, attempt=attempt or plan.attempt, reason=reason, detail=detail)


def orders(said: Sequence[Any]) -> list[tuple[str, int]]:
    """The start orders among what was said: node and rank."""
    return [(found.node_id, found.rendezvous.rank) for found in said if isinstance(found, StartV1)]


SECOND = timedelta(seconds=1)
