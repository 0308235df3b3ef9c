"""Messages and the domain's nouns: what was told, and how it is told on. Nothing is decided here."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import lru_cache

from gpuyard_contracts.messages.node import HeartbeatV1, RunningV1, WorkloadEndedV1, WorkloadRefusedV1, WorkloadStartedV1
from gpuyard_contracts.messages.placement import (
    AllocationCommittedV1,
    AllocationRefusedV1,
    AllocationReleasedV1,
    AllocationStartedV1,
    CordonV1,
    HoldV1,
    NodeFactsV1,
    NodeStateV1,
    RendezvousV1,
    StartV1,
    StopV1,
)
from gpuyard_contracts.messages.scheduler import PlaceV1, RankPlanV1, SliceV1

from gpuyard_placement.domain.commit import Committed, Refused
from gpuyard_placement.domain.enrol import Presence
from gpuyard_placement.domain.model import Allocation, Cordon, Facts, Gpu, Mark, Node, Plan, RankPlan, RankState, Slice, Terms
from gpuyard_placement.domain.reconcile import Running
from gpuyard_placement.domain.rendezvous import places
from gpuyard_placement.domain.states import RankEnded, RankRefused, RankStarted

# messages → domain


def facts_of(found: NodeFactsV1) -> Facts:
    """What a node says of itself."""
    return Facts(
        text=found.model_dump_json(),
        address=found.address,
        cpu_milli=found.cpu_milli,
        memory_mib=found.memory_mib,
        gpus=tuple(Gpu(gpu.uuid, gpu.model, gpu.memory_mib, gpu.sharing != "exclusive") for gpu in found.gpus),
    )


@lru_cache(maxsize=16_384)
def told_facts(text: str) -> NodeFactsV1:
    """The node's description as it is published again."""
    return NodeFactsV1.model_validate_json(text)


def presence_of(ask: HeartbeatV1, known: Node | None) -> Presence:
    """Who speaks. A description that was seen before is not read anew."""
    facts = ask.facts
    same = known is not None and told_facts(known.facts.text) == facts
    return Presence(ask.node_id, ask.boot_id, known.facts if known is not None and same else facts_of(facts), ask.lost_gpus)


def running_of(found: RunningV1) -> Running:
    """One workload of a heartbeat."""
    return Running(found.allocation_id, found.attempt, found.rank, found.tenant, found.job_id, found.is_stopping)


def plan_of(place: PlaceV1) -> Plan:
    """The plan, its ranks in order."""
    ranks = sorted(place.ranks, key=lambda found: found.rank)
    return Plan(
        tenant=place.tenant,
        job_id=place.job_id,
        allocation_id=place.allocation_id,
        attempt=place.attempt,
        ranks=tuple(
            RankPlan(
                found.rank,
                found.node_id,
                tuple(Slice(part.gpu_uuid, part.milli, part.memory_mib) for part in found.slices),
                found.cpu_milli,
                found.memory_mib,
            )
            for found in ranks
        ),
        world_size=place.spec.ranks,
        gpus_per_rank=place.spec.gpu.count,
    )


def allocation_of(place: PlaceV1, plan: Plan, yes: Committed, at: datetime, traceparent: str | None) -> Allocation:
    """A new allocation, its ranks ordered to start."""
    terms = Terms(
        plan=plan.ranks,
        cards=yes.cards,
        port=yes.port,
        grace_ms=place.spec.grace_seconds * 1000,
        start_by=at + timedelta(seconds=place.spec.start_timeout_seconds),
        traceparent=traceparent,
    )
    ranks = (RankState(),) * len(plan.ranks)
    return Allocation(plan.allocation_id, plan.tenant, plan.job_id, plan.attempt, "committed", terms, ranks, at)


def started_cause(found: WorkloadStartedV1) -> RankStarted:
    """A rank runs."""
    return RankStarted(found.rank, found.node_id, found.started_at)


def ended_cause(found: WorkloadEndedV1, proof_at: datetime) -> RankEnded:
    """A rank is gone; `proof_at` is when placement last knew it alive."""
    return RankEnded(
        found.rank,
        found.node_id,
        found.cause,
        found.ended_at,
        proof_at,
        started_at=found.started_at,
        exit_code=found.exit_code,
        signal=found.signal,
        detail=found.detail,
    )


def refused_cause(found: WorkloadRefusedV1) -> RankRefused:
    """A rank was not started."""
    return RankRefused(found.rank, found.node_id, f"{found.reason}: {found.detail}", found.is_permanent)


# domain → messages


def committed_event(found: Allocation) -> AllocationCommittedV1:
    """The plan holds."""
    return AllocationCommittedV1(
        tenant=found.tenant,
        allocation_id=found.allocation_id,
        job_id=found.job_id,
        attempt=found.attempt,
        ranks=tuple(
            RankPlanV1(rank=plan.rank, node_id=plan.node_id, slices=_slices(plan), cpu_milli=plan.cpu_milli, memory_mib=plan.memory_mib)
            for plan in found.terms.plan
        ),
        models={card.uuid: card.model for card in found.terms.cards},
        gpu_memory_mib={card.uuid: card.memory_mib for card in found.terms.cards},
        at=found.committed_at,
    )


def refused_event(plan: Plan, no: Refused) -> AllocationRefusedV1:
    """The plan does not hold."""
    return AllocationRefusedV1(
        tenant=plan.tenant,
        allocation_id=plan.allocation_id,
        job_id=plan.job_id,
        attempt=plan.attempt,
        reason=no.reason,
        detail=no.detail,
    )


def started_event(found: Allocation) -> AllocationStartedV1:
    """Every rank runs. The allocation must have started."""
    assert found.started_at is not None
    return AllocationStartedV1(
        tenant=found.tenant,
        allocation_id=found.allocation_id,
        job_id=found.job_id,
        attempt=found.attempt,
        started_at=found.started_at,
    )


def released_event(found: Allocation) -> AllocationReleasedV1:
    """The slices are free. The allocation must be released."""
    stop = found.stop
    assert stop is not None
    assert found.ended_at is not None
    return AllocationReleasedV1(
        tenant=found.tenant,
        allocation_id=found.allocation_id,
        job_id=found.job_id,
        attempt=found.attempt,
        started_at=found.started_at,
        ended_at=found.ended_at,
        reason=stop.reason,
        detail=stop.detail,
        exit_code=stop.exit_code,
        signal=stop.signal,
        is_permanent=stop.is_permanent,
        avoid_gpus=stop.avoid_gpus,
        avoid_nodes=stop.avoid_nodes,
    )


def start_orders(place: PlaceV1, found: Allocation, address: str) -> list[StartV1]:
    """One order for each rank; `address` is that of rank 0's node."""
    return [
        StartV1(
            node_id=plan.node_id,
            tenant=found.tenant,
            job_id=found.job_id,
            allocation_id=found.allocation_id,
            attempt=found.attempt,
            spec=place.spec,
            slices=_slices(plan),
            rendezvous=RendezvousV1(
                rank=where.rank,
                world_size=where.world_size,
                local_rank=where.local_rank,
                local_world_size=where.local_world_size,
                master_addr=address,
                master_port=found.terms.port,
            ),
            issued_at=found.committed_at,
        )
        for plan, where in zip(found.terms.plan, places(found.terms.plan), strict=True)
    ]


def stop_order(found: Allocation, rank: int, at: datetime) -> StopV1:
    """The order to stop one rank. The allocation must have a reason to go."""
    assert found.stop is not None
    return StopV1(
        node_id=found.terms.plan[rank].node_id,
        tenant=found.tenant,
        job_id=found.job_id,
        allocation_id=found.allocation_id,
        attempt=found.attempt,
        rank=rank,
        grace_ms=found.terms.grace_ms,
        reason=f"{found.stop.reason}: {found.stop.detail}" if found.stop.detail else found.stop.reason,
        issued_at=at,
    )


def stray_order(node_id: str, found: Running | WorkloadStartedV1, at: datetime) -> StopV1:
    """The order to stop at once what has no live allocation."""
    return StopV1(
        node_id=node_id,
        tenant=found.tenant,
        job_id=found.job_id,
        allocation_id=found.allocation_id,
        attempt=found.attempt,
        rank=found.rank,
        grace_ms=0,
        reason="no live allocation",
        issued_at=at,
    )


def question(found: Allocation, rank: int, at: datetime) -> StopV1:
    """A stop order as a question: what became of a rank that its node does not list? What does not run is answered as ended."""
    return StopV1(
        node_id=found.terms.plan[rank].node_id,
        tenant=found.tenant,
        job_id=found.job_id,
        allocation_id=found.allocation_id,
        attempt=found.attempt,
        rank=rank,
        grace_ms=found.terms.grace_ms,
        reason="the node does not list it among what runs",
        issued_at=at,
    )


def cordon_told(found: Cordon) -> CordonV1:
    """One holder."""
    return CordonV1(holder=found.holder, reason=found.reason, gpu_uuid=found.gpu_uuid or None, is_drain=found.is_drain, at=found.at)


def node_state(node: Node, mark: Mark, heard_at: datetime, holds: Iterable[HoldV1], cordons: Iterable[Cordon]) -> NodeStateV1:
    """The full state of one node."""
    return NodeStateV1(
        node_id=node.node_id,
        version=mark.version,
        status=node.status,
        facts=told_facts(node.facts.text),
        holds=tuple(holds),
        cordons=tuple(cordon_told(found) for found in cordons),
        lost_gpus=node.lost_gpus,
        last_heard_at=heard_at,
        boot_id=node.boot_id,
    )


def holds_of(found: Allocation) -> tuple[HoldV1, ...]:
    """What each rank holds."""
    return tuple(
        HoldV1(
            allocation_id=found.allocation_id,
            tenant=found.tenant,
            job_id=found.job_id,
            rank=plan.rank,
            slices=_slices(plan),
            cpu_milli=plan.cpu_milli,
            memory_mib=plan.memory_mib,
        )
        for plan in found.terms.plan
    )


def _slices(plan: RankPlan) -> tuple[SliceV1, ...]:
    return tuple(SliceV1(gpu_uuid=part.gpu_uuid, milli=part.milli, memory_mib=part.memory_mib) for part in plan.slices)
