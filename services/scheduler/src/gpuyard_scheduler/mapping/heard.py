"""What others say, as the domain's own values."""

from gpuyard_contracts.messages.api import TenantStateV1
from gpuyard_contracts.messages.placement import AllocationReleasedV1, NodeStateV1
from gpuyard_contracts.messages.scheduler import SliceV1

from gpuyard_scheduler.domain.ending import Release
from gpuyard_scheduler.domain.model import CardFacts, HoldFacts, NodeFacts, Slice, Tenant


def node_facts(state: NodeStateV1) -> NodeFacts:
    """One node's state."""
    facts = state.facts
    return NodeFacts(
        node_id=state.node_id,
        version=state.version,
        cards=tuple(
            CardFacts(card.uuid, card.model, card.memory_mib, card.sharing, frozenset(card.links), card.numa) for card in facts.gpus
        ),
        cpu_milli=facts.cpu_milli,
        memory_mib=facts.memory_mib,
        zone=facts.zone,
        labels=tuple(sorted(facts.labels.items())),
        status=state.status,
        cordons=tuple((cordon.holder, cordon.gpu_uuid) for cordon in state.cordons),
        lost_gpus=frozenset(state.lost_gpus),
        is_removed=state.is_removed,
        holds=tuple(
            HoldFacts(hold.allocation_id, hold.rank, slices_of(hold.slices), hold.cpu_milli, hold.memory_mib) for hold in state.holds
        ),
    )


def slices_of(slices: tuple[SliceV1, ...]) -> tuple[Slice, ...]:
    """Parts of cards."""
    return tuple(Slice(part.gpu_uuid, part.milli, part.memory_mib) for part in slices)


def tenant_of(state: TenantStateV1) -> Tenant:
    """One tenant's state."""
    return Tenant(
        tenant=state.tenant,
        version=state.version,
        sla=state.sla,
        weight=state.weight,
        quota_milli=state.quota_gpu_milli,
        quota_mib=state.quota_gpu_memory_mib,
        guarantee_milli=state.guarantee_gpu_milli,
        max_waiting=state.max_waiting,
        max_requests_per_minute=state.max_requests_per_minute,
        is_suspended=state.is_suspended,
    )


def release_of(data: AllocationReleasedV1) -> Release:
    """How an attempt ended."""
    return Release(
        reason=data.reason,
        detail=data.detail,
        exit_code=data.exit_code,
        signal=data.signal,
        is_permanent=data.is_permanent,
        avoid_gpus=frozenset(data.avoid_gpus),
        avoid_nodes=frozenset(data.avoid_nodes),
    )
