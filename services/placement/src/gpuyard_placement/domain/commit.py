"""Re-checking a plan against the truth: the one place where slices are given away.

Two worlds meet here. The scheduler decides over a snapshot that may be old, and may be slow or doubled; placement alone knows what is held
now. So a plan is only a proposal: every part of it is checked again, over all of its ranks together, and it is committed whole or refused
whole. A refusal is ordinary: the scheduler tries again on a fresher snapshot. The same sums stand in the database as constraints
(`gpu_load`, `slices_held_one_owner_per_whole_card`), so that even a mistake here could not give a card away twice.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, Protocol

from gpuyard_contracts.types import allocation_id_of

from gpuyard_placement.domain.model import WHOLE_MILLI, Allocation, Cordon, Gpu, Held, Node, Plan, RankPlan, Slice
from gpuyard_placement.domain.rendezvous import free_port

RefuseReason = Literal[
    "slice-taken", "node-cordoned", "node-not-ready", "node-unknown", "gpu-cordoned", "gpu-missing", "capacity", "stale-attempt",
    "malformed-plan",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Used:
    """What live allocations hold of a node's CPU and memory."""

    cpu_milli: int
    memory_mib: int


class Truth(Protocol):
    """What is held now and who may not place where."""

    def node(self, node_id: str) -> Node | None:
        """The node, if it was ever enrolled."""
        ...

    def cordons_on(self, node_id: str) -> Sequence[Cordon]:
        """Everything that keeps new work from the node or one of its cards."""
        ...

    def held_of(self, gpu_uuid: str) -> Sequence[Held]:
        """The slices of a card that are held."""
        ...

    def used_on(self, node_id: str) -> Used:
        """CPU and memory that are held."""
        ...

    def is_port_taken(self, node_id: str, port: int) -> bool:
        """Whether an allocation whose rank 0 is there has this rendezvous port."""
        ...

    def live_of(self, job_id: str) -> Allocation | None:
        """The job's allocation, if it has one that is not released."""
        ...

    def closed_up_to(self, key: str) -> int:
        """The highest attempt of the job that is over and may not come back; 0 for none."""
        ...


@dataclass(frozen=True, slots=True)
class Committed:
    """The plan holds: what to write. `held` are its slices, `cards` every card with model and memory, `port` the gang's rendezvous."""

    held: tuple[Held, ...]
    cards: tuple[Gpu, ...]
    port: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The plan does not hold, for this reason; nothing of it is kept."""

    reason: RefuseReason
    detail: str


def commit(plan: Plan, truth: Truth, ports: range) -> Committed | Refused:
    """Whether all of the plan can be held now. Looks at the whole plan before it says yes; changes nothing itself."""
    refused = _malformed(plan) or _stale(plan, truth)
    if refused is not None:
        return refused
    by_node: dict[str, list[RankPlan]] = {}
    for rank in plan.ranks:
        by_node.setdefault(rank.node_id, []).append(rank)
    held: list[Held] = []
    cards: dict[str, Gpu] = {}
    for node_id, ranks in by_node.items():
        found = _on_node(plan, node_id, ranks, truth)
        if isinstance(found, Refused):
            return found
        held.extend(found[0])
        cards.update(found[1])
    first = plan.ranks[0].node_id
    port = free_port(plan.allocation_id, partial(truth.is_port_taken, first), ports)
    if port is None:
        return Refused("capacity", f"node {first} has none of its {len(ports)} rendezvous ports free")
    return Committed(tuple(held), tuple(cards.values()), port)


def _malformed(plan: Plan) -> Refused | None:
    """What is wrong with the plan in itself. Ranks are expected sorted by number."""
    problem = None
    if plan.allocation_id != allocation_id_of(plan.job_id, plan.attempt):
        problem = f"allocation {plan.allocation_id} is not attempt {plan.attempt} of {plan.job_id}"
    elif len(plan.ranks) != plan.world_size or any(rank.rank != number for number, rank in enumerate(plan.ranks)):
        problem = f"the job has {plan.world_size} ranks, the plan {len(plan.ranks)}; each must be there once"
    else:
        problem = next((found for rank in plan.ranks if (found := _malformed_rank(rank, plan.gpus_per_rank)) is not None), None)
    return None if problem is None else Refused("malformed-plan", problem)


def _malformed_rank(rank: RankPlan, gpus: int) -> str | None:
    if len({part.gpu_uuid for part in rank.slices}) != gpus or len(rank.slices) != gpus:
        return f"rank {rank.rank} needs {gpus} different GPUs, the plan gives it {len(rank.slices)} slices"
    for part in rank.slices:
        if part.milli > WHOLE_MILLI or part.milli < 0 or part.memory_mib < 0 or part.milli + part.memory_mib == 0:
            return f"rank {rank.rank}: {part.milli} milli-GPU and {part.memory_mib} MiB are no part of a GPU"
    return None


def _stale(plan: Plan, truth: Truth) -> Refused | None:
    """At most one attempt of a job holds anything, and none comes back."""
    closed = truth.closed_up_to(plan.job_id)
    if plan.attempt <= closed:
        return Refused("stale-attempt", f"attempt {plan.attempt} is over; the next one is {closed + 1} or higher")
    live = truth.live_of(plan.job_id)
    if live is not None:
        return Refused("stale-attempt", f"attempt {live.attempt} of this job still holds its GPUs ({live.state})")
    return None


def _on_node(plan: Plan, node_id: str, ranks: Sequence[RankPlan], truth: Truth) -> tuple[list[Held], dict[str, Gpu]] | Refused:
    """One node's part of the plan."""
    node = truth.node(node_id)
    if node is None:
        return Refused("node-unknown", f"no node {node_id} was ever enrolled")
    if node.status != "ready":
        return Refused("node-not-ready", f"node {node_id} is {node.status}")
    cordons = truth.cordons_on(node_id)
    if whole := [cordon for cordon in cordons if not cordon.gpu_uuid]:
        return Refused("node-cordoned", f"node {node_id} is cordoned by {_holders(whole)}")
    cards: dict[str, Gpu] = {}
    asked: dict[str, list[Slice]] = {}
    for rank in ranks:
        for part in rank.slices:
            asked.setdefault(part.gpu_uuid, []).append(part)
    for uuid, parts in asked.items():
        found = _on_card(node, uuid, parts, cordons, truth)
        if isinstance(found, Refused):
            return found
        cards[uuid] = found
    if (refused := _room(node, ranks, truth)) is not None:
        return refused
    held = [
        Held(part.gpu_uuid, plan.allocation_id, rank.rank, node_id, part.milli, part.memory_mib, cards[part.gpu_uuid].memory_mib)
        for rank in ranks
        for part in rank.slices
    ]
    return held, cards


def _on_card(node: Node, uuid: str, parts: Sequence[Slice], cordons: Iterable[Cordon], truth: Truth) -> Gpu | Refused:
    """One card: there, not cordoned, and with room for all parts of the plan together."""
    card = node.gpu(uuid)
    if card is None:
        lost = "has lost" if uuid in node.lost_gpus else "has no"
        return Refused("gpu-missing", f"node {node.node_id} {lost} GPU {uuid}")
    if on_card := [cordon for cordon in cordons if cordon.gpu_uuid == uuid]:
        return Refused("gpu-cordoned", f"{uuid} is cordoned by {_holders(on_card)}")
    return _fit(card, parts, truth.held_of(uuid)) or card


def _fit(card: Gpu, parts: Sequence[Slice], held: Sequence[Held]) -> Refused | None:
    """Whether the parts fit beside what is held. A whole card is held alone."""
    milli, memory = sum(part.milli for part in parts), sum(part.memory_mib for part in parts)
    if any(part.memory_mib > card.memory_mib for part in parts):
        return Refused("capacity", f"{card.uuid} has {card.memory_mib} MiB, {memory} asked")
    if not card.is_shareable and any(part.milli < WHOLE_MILLI for part in parts):
        return Refused("capacity", f"{card.uuid} is not shared: it can only be held whole")
    free_milli = WHOLE_MILLI - sum(found.milli for found in held)
    if milli > free_milli:
        return Refused("slice-taken", f"{card.uuid} has {max(free_milli, 0)} of {WHOLE_MILLI} milli-GPU free, {milli} asked")
    whole = any(part.milli == WHOLE_MILLI for part in (*parts, *held))
    if whole and len(parts) + len(held) > 1:
        return Refused("slice-taken", f"{card.uuid} has {len(held)} holders; a whole card is held alone")
    free_memory = card.memory_mib - sum(found.memory_mib for found in held)
    if memory > free_memory:
        return Refused("slice-taken", f"{card.uuid} has {max(free_memory, 0)} of {card.memory_mib} MiB free, {memory} asked")
    return None


def _room(node: Node, ranks: Sequence[RankPlan], truth: Truth) -> Refused | None:
    """Whether CPU and memory of the node suffice beside what is held."""
    used = truth.used_on(node.node_id)
    wants: Mapping[str, tuple[int, int, int]] = {
        "milli-CPU": (node.facts.cpu_milli, used.cpu_milli, sum(rank.cpu_milli for rank in ranks)),
        "MiB of memory": (node.facts.memory_mib, used.memory_mib, sum(rank.memory_mib for rank in ranks)),
    }
    for unit, (has, taken, asked) in wants.items():
        if asked > has - taken:
            return Refused("capacity", f"node {node.node_id} has {max(has - taken, 0)} of {has} {unit} free, {asked} asked")
    return None


def _holders(cordons: Iterable[Cordon]) -> str:
    return ", ".join(sorted(cordon.holder for cordon in cordons))
