"""Making room: which running jobs must yield so that a job starts that has more right to the room.

Right is one of these:
- a higher priority within the same tenant (or in the whole fleet, where the policy says so);
- a tenant that stays within its guarantee takes back what others hold above theirs (reclaim);
- spare jobs (of a tenant of weight 0, above its guarantee) yield to all that are not;
- spot jobs yield to all that are not.

Spot and spare jobs make nobody yield. So that jobs never evict each other in turn, what is used within guarantees only grows: a job that
lies partly within its tenant's guarantee yields only to a reclaim that brings more than is lost.

The victims are a smallest set in the sense that the job would not fit if any of them stayed: chosen weakest first, then with the least
work to lose, then the youngest; the whole gang counts together, and what is leaving anyway counts as free. Nobody is evicted before having
run for the policy's minimum, or if the job would still not fit.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from gpuyard_scheduler.domain.ask import has_labels
from gpuyard_scheduler.domain.fleet import Fleet, Kinds
from gpuyard_scheduler.domain.lives import Live, Lives
from gpuyard_scheduler.domain.model import Ask, Kind, Tenant
from gpuyard_scheduler.domain.place import place
from gpuyard_scheduler.domain.policy import SPOT_RANK, Policy
from gpuyard_scheduler.domain.pool import Pool
from gpuyard_scheduler.domain.quota import Used
from gpuyard_scheduler.domain.reserve import Room

MayYield = Callable[[Live], bool]


class Eviction(NamedTuple):
    """Who yields to a job, and the nodes that are kept for it. No victims: those that leave already are enough."""

    victims: tuple[str, ...]
    kind: Kind
    nodes: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A job that found no room. `milli` is what it needs of all GPUs."""

    job_id: str
    tenant: str
    rank: int
    milli: int


class Rights:
    """Who must yield to a claim. `used` is what tenants use, with what this cycle has planned; `told`: who yields to others already."""

    def __init__(
        self,
        claim: Claim,
        tenants: Mapping[str, Tenant],
        used: Callable[[str], Used],
        lives: Lives,
        told: Collection[str],
        now_ms: int,
        policy: Policy,
    ) -> None:
        self._claim = claim
        self._tenants = tenants
        self._lives = lives
        self._now_ms = now_ms
        self._policy = policy
        self._told = told
        self._left: dict[str, int] = {}
        for job_id in {*lives.leaving, *told}:  # what is on its way out is not there to be taken
            live = lives.by_job[job_id]
            self._left[live.tenant] = self._left.get(live.tenant, used(live.tenant).milli) - live.milli
        self._lost = 0
        self.again_ms: int | None = None
        """When the first of those will have run for its minimum that had not when it was looked at."""
        self._used = used
        own, after = tenants[claim.tenant], used(claim.tenant).milli + claim.milli
        self._is_within = after <= own.guarantee_milli
        self._has_none = claim.rank == SPOT_RANK or (own.weight == 0 and not self._is_within)

    def is_hopeless(self, weakest: Mapping[str, int]) -> bool:
        """Whether nobody could have to yield, seen from afar: `weakest` is the lowest live rank by tenant."""
        claim, policy = self._claim, self._policy
        if self._has_none:
            return True
        if self._is_within or weakest.get(claim.tenant, claim.rank) < claim.rank:
            return False
        return not any(
            rank == SPOT_RANK or (policy.preempt == "fleet" and rank < claim.rank) or self._is_spare(tenant)
            for tenant, rank in weakest.items()
        )

    def _is_spare(self, tenant: str) -> bool:
        known = self._tenants.get(tenant)
        return known is None or known.weight == 0

    def may_yield(self, live: Live) -> bool:
        """Whether this one must yield, those left aside that were chosen before."""
        policy, claim = self._policy, self._claim
        least = policy.min_run_spot if live.rank == SPOT_RANK else policy.min_run
        if live.started_ms is None or live.is_leaving or live.job_id in self._told:
            return False
        ripe_ms = live.started_ms + least * 1000
        if ripe_ms > self._now_ms:
            self.again_ms = ripe_ms if self.again_ms is None else min(ripe_ms, self.again_ms)
            return False
        if live.tenant == claim.tenant:
            return live.rank < claim.rank
        if live.rank == SPOT_RANK:
            return True
        theirs = self._tenants.get(live.tenant)
        lost = self._lost_by(live)
        if self._is_within:
            is_above = self._left_of(live.tenant) > (theirs.guarantee_milli if theirs is not None else 0)
            return is_above and self._lost + lost < claim.milli
        return not lost and (self._is_spare(live.tenant) or (policy.preempt == "fleet" and live.rank < claim.rank))

    def choose(self, live: Live) -> None:
        """It yields: its tenant then has so much less."""
        if live.tenant != self._claim.tenant:
            self._lost += self._lost_by(live)
        self._left[live.tenant] = self._left_of(live.tenant) - live.milli

    def _lost_by(self, live: Live) -> int:
        """How much of what its tenant uses within its guarantee goes with it, in milli-GPU."""
        theirs, left = self._tenants.get(live.tenant), self._left_of(live.tenant)
        guarantee = theirs.guarantee_milli if theirs is not None else 0
        return min(left, guarantee) - min(left - live.milli, guarantee)

    def _left_of(self, tenant: str) -> int:
        return self._left.get(tenant, self._used(tenant).milli)


def evict(
    claim: Claim, ask: Ask, fleet: Fleet, kinds: Kinds, barred: frozenset[str], rights: Rights, lives: Lives, now_ms: int, policy: Policy
) -> Eviction | None:
    """Who must yield so that all ranks find room on one of these kinds; None: nobody can make enough room."""
    for kind, pools in kinds:
        found = _on_kind(ask, fleet, kind, pools, barred, rights, lives, now_ms, policy)
        if found is None:
            continue
        nodes = _verified(ask, fleet, (kind, pools), barred, [lives.by_job[job_id] for job_id in found], lives)
        if nodes is not None:
            return Eviction(tuple(sorted(found)), kind, nodes)
    return None


def _on_kind(
    ask: Ask,
    fleet: Fleet,
    kind: Kind,
    pools: tuple[Pool, ...],
    barred: frozenset[str],
    rights: Rights,
    lives: Lives,
    now_ms: int,
    policy: Policy,
) -> list[str] | None:
    def cost(live: Live) -> tuple[int, int, int, str]:
        return live.rank, live.lost_work(now_ms), -(live.started_ms or 0), live.job_id

    banks = {bank.node.node_id: bank for pool in pools for bank in pool.banks.values() if bank.node.is_open}
    usable = {
        node_id
        for node_id, bank in banks.items()
        if node_id not in barred and node_id not in ask.avoid_nodes and has_labels(ask, bank.node.labels)
    }
    mine = [live for live in lives.by_job.values() if any(plan.node_id in usable for plan in live.plans)]
    candidates = sorted((live for live in mine if rights.may_yield(live)), key=cost)
    leaving = [live for live in mine if live.is_leaving]
    nodes = _worth_a_look(ask, fleet, candidates, leaving, usable, policy)
    search = _Search({node_id: Room(ask, kind, banks[node_id], []) for node_id in nodes}, ask.ranks, cost)
    for live in leaving:
        search.free(live)
    return search.run(candidates, rights)


def _worth_a_look(
    ask: Ask, fleet: Fleet, candidates: Iterable[Live], leaving: Iterable[Live], usable: set[str], policy: Policy
) -> list[str]:
    """Nodes in order: those with room, those of whoever leaves, then those of the cheapest candidates."""
    view = fleet.board.view(ask, fleet.kinds(ask))
    free = [fleet.board.banks[int(row)].node.node_id for row in view.room.nonzero()[0][: 4 * ask.ranks]]
    of_jobs = [plan.node_id for live in (*leaving, *candidates) for plan in live.plans]
    return list(dict.fromkeys(node_id for node_id in (*free, *of_jobs) if node_id in usable))[: policy.reserve_nodes]


class _Search:
    """Room on some nodes while jobs are taken away one by one."""

    def __init__(self, rooms: dict[str, Room], ranks: int, cost: Callable[[Live], tuple[int, int, int, str]]) -> None:
        self._rooms = rooms
        self._ranks = ranks
        self._cost = cost
        self._total = sum(room.ranks for room in rooms.values())

    def free(self, live: Live) -> None:
        """The job is taken away everywhere."""
        for plan in live.plans:
            room = self._rooms.get(plan.node_id)
            if room is not None:
                self._total += room.free(plan)

    def put_back(self, live: Live) -> None:
        """The job is there again."""
        for plan in live.plans:
            room = self._rooms.get(plan.node_id)
            if room is not None:
                self._total += room.take(plan)

    def run(self, candidates: list[Live], rights: Rights) -> list[str] | None:
        """The ids of a smallest set whose going makes room for all ranks."""
        chosen: list[Live] = []
        on_node: dict[str, list[Live]] = {}
        for live in candidates:
            for node_id in {plan.node_id for plan in live.plans}:
                on_node.setdefault(node_id, []).append(live)
        steps: dict[str, tuple[Live, ...]] = {}
        while self._total < self._ranks:
            for node_id in self._rooms:
                if node_id not in steps:
                    steps[node_id] = self._step(node_id, on_node.get(node_id, ()))
            best = min((step for step in steps.values() if step), key=self._dear, default=None)
            if best is None:
                return None
            for live in best:
                if not rights.may_yield(live):  # its tenant has given up all that it holds above its guarantee
                    on_node = {node_id: [one for one in found if one is not live] for node_id, found in on_node.items()}
                    steps.clear()
                    break
                rights.choose(live)
                chosen.append(live)
                self.free(live)
                for node_id in {plan.node_id for plan in live.plans}:
                    steps.pop(node_id, None)
                    on_node[node_id].remove(live)
        return self._fewest(chosen)

    def _step(self, node_id: str, found: Iterable[Live]) -> tuple[Live, ...]:
        """The cheapest jobs of a node, in order, until one more rank finds room there; none where even all are not enough."""
        room, taken = self._rooms[node_id], list[Live]()
        before, enough = room.ranks, False
        for live in found:
            taken.append(live)
            for plan in live.plans:
                if plan.node_id == node_id:
                    room.free(plan)
            if room.ranks > before:
                enough = True
                break
        for live in taken:
            for plan in live.plans:
                if plan.node_id == node_id:
                    room.take(plan)
        return tuple(taken) if enough else ()

    def _dear(self, step: tuple[Live, ...]) -> tuple[int, int, int, str]:
        costs = [self._cost(live) for live in step]
        return max(cost[0] for cost in costs), sum(cost[1] for cost in costs), len(step), min(cost[3] for cost in costs)

    def _fewest(self, chosen: list[Live]) -> list[str]:
        """Without those that turned out not to be needed; the dearest is spared first."""
        kept: list[str] = []
        for live in sorted(chosen, key=self._cost, reverse=True):
            self.put_back(live)
            if self._total < self._ranks:
                self.free(live)
                kept.append(live.job_id)
        return kept


def _verified(
    ask: Ask, fleet: Fleet, kind: tuple[Kind, tuple[Pool, ...]], barred: frozenset[str], victims: list[Live], lives: Lives
) -> frozenset[str] | None:
    """The nodes on which the job would be placed if the victims and all who are leaving were gone; None if it could not be."""
    mark = fleet.mark()
    for live in [*victims, *(lives.by_job[job_id] for job_id in sorted(lives.leaving))]:
        for plan in live.plans:
            fleet.lift(plan)
    found = place(ask, fleet, (kind,), barred)
    fleet.undo(mark)
    return None if isinstance(found, int) else frozenset(plan.node_id for plan in found)
