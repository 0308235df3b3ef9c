"""The decision: who starts where, who waits and why, for whom room is kept.

:func:`decide` is pure: the same snapshot and policy give the same plan, whatever order the rows came in; it leaves the snapshot as it was.
A plan is a proposal; placement checks it against the truth, so nothing here need think about races.

A cycle takes heads in order (:mod:`gpuyard_scheduler.domain.order`). A head that cannot start leaves the cycle with a verdict that holds
for its whole line, and blocks nobody: others go on with other asks. Lines whose verdict still holds are not looked at again until something
has been freed that could change it, so a cycle costs what changed and what can start, not the length of the queue.
"""

from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace

from gpuyard_scheduler.domain import verdicts
from gpuyard_scheduler.domain.ask import need, takes
from gpuyard_scheduler.domain.capacity import settled
from gpuyard_scheduler.domain.evict import Claim, Eviction, Rights, evict
from gpuyard_scheduler.domain.fleet import Kinds
from gpuyard_scheduler.domain.model import Ask, Kind, RankPlan, Reservation, Slot, Start, Verdict, Why
from gpuyard_scheduler.domain.order import Place, place_of
from gpuyard_scheduler.domain.place import NOBODY, place
from gpuyard_scheduler.domain.policy import Policy
from gpuyard_scheduler.domain.queue import Group, GroupKey, Stamp
from gpuyard_scheduler.domain.quota import Used, above_quota, used_with
from gpuyard_scheduler.domain.reserve import may_backfill, reserve
from gpuyard_scheduler.domain.snapshot import Snapshot

NEVER = Reservation(Kind("", 0), "", NOBODY, None, 0)

_Head = tuple[int, int, str, int, Group]
"""-rank, aged µs, job id, place in the line, line."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done. `verdicts` by line, for lines that were looked at (None: it is going on). `is_capped`: there is more to start.

    `evictions`: who must yield to whom, by the victim's id.
    """

    starts: tuple[Start, ...]
    evictions: dict[str, str]
    verdicts: dict[GroupKey, Verdict | None]
    reservations: dict[Slot, Reservation]
    is_capped: bool


def decide(snapshot: Snapshot, policy: Policy) -> Plan:
    """The plan for this snapshot."""
    snapshot.fleet.board.use(snapshot.scoring)
    cycle = _Cycle(snapshot, policy)
    mark = snapshot.fleet.mark()
    try:
        cycle.run()
    finally:
        snapshot.fleet.undo(mark)
    return Plan(tuple(cycle.starts), cycle.evictions, cycle.verdicts, cycle.kept, bool(cycle.heads))


def stamp_of(group: Group, snapshot: Snapshot) -> Stamp:
    """What a verdict on this line depends on, as numbers: it holds while they stay the same."""
    tenant = snapshot.tenants.get(group.tenant)
    return (
        snapshot.fleet.gains_of(group.ask),
        snapshot.fleet.shape,
        snapshot.usage.of(group.tenant).falls,
        -1 if tenant is None else tenant.version,
        snapshot.reservations_version,
        snapshot.is_blind,
    )


def is_awake(group: Group, snapshot: Snapshot) -> bool:
    """Whether the line must be looked at: it has no verdict, or one that may have changed."""
    verdict = group.verdict
    if verdict is None or (verdict.look_at_ms is not None and snapshot.now_ms >= verdict.look_at_ms):
        return True
    return group.stamp != stamp_of(group, snapshot)


class _Cycle:
    """One decision in the making."""

    def __init__(self, snapshot: Snapshot, policy: Policy) -> None:
        self.snapshot = snapshot
        self.policy = policy
        self.fleet = snapshot.fleet
        self.starts: list[Start] = []
        self.evictions: dict[str, str] = {}
        self.verdicts: dict[GroupKey, Verdict | None] = {}
        self.kept: dict[Slot, Reservation] = {}
        self.heads: list[tuple[Place, str]] = []
        self._lines: dict[str, list[_Head]] = {}
        self._used: dict[str, Used] = {}
        self._holders: dict[Slot, Place] = {}
        self._is_let_go = False
        self._claims = 0
        self._weakest = snapshot.lives.weakest()
        self._cannot: dict[tuple[Ask, Kinds, frozenset[str]], int] = {}

    def run(self) -> None:
        """Take heads in order until none is left or the plan is full."""
        self._keep()
        self._gather()
        starts, heads, most = self.starts, self.heads, self.policy.starts_per_cycle
        while heads and len(starts) < most:
            where, tenant = heads[0]
            lines = self._lines[tenant]
            rank, _, job_id, at, group = lines[0]
            if self._consider(where, group, job_id) and at + 1 < len(group.line):
                aged, following = group.line[at + 1]
                heapreplace(lines, (rank, aged, following, at + 1, group))
            else:
                heappop(lines)
            if lines:
                heapreplace(heads, (self._place(tenant, lines[0]), tenant))
            else:
                heappop(heads)

    def _keep(self) -> None:
        """Take over what is kept for jobs that still wait; a kind whose job is gone only remembers when it was planned."""
        queue, now = self.snapshot.queue, self.snapshot.now_ms
        for slot, kept in self.snapshot.reservations.items():
            spot = queue.spots.get(kept.job_id)
            if spot is not None:
                group, aged = spot
                self.kept[slot] = kept
                self._holders[slot] = self._place(group.tenant, (-group.rank, aged, kept.job_id, 0, group))
                continue
            self._is_let_go = self._is_let_go or bool(kept.job_id)
            if not kept.evicting and now < kept.planned_ms + self.policy.replan * 1000:
                self.kept[slot] = kept._replace(job_id="", nodes=NOBODY, start_ms=None)

    def _gather(self) -> None:
        """The heads of all lines that must be looked at; where nothing can start, only verdicts."""
        snapshot = self.snapshot
        for tenant in snapshot.queue.tenants():
            awake = [group for group in snapshot.queue.lines_of(tenant) if self._is_to_be_seen(group)]
            verdict = verdicts.for_all(snapshot.fleet, tenant in snapshot.tenants, is_blind=snapshot.is_blind)
            if verdict is not None:
                self.verdicts.update((group.key, verdict) for group in awake)
            elif awake:
                lines = [(-group.rank, *group.line[0], 0, group) for group in awake]
                heapify(lines)
                self._lines[tenant] = lines
                self.heads.append((self._place(tenant, lines[0]), tenant))
        heapify(self.heads)

    def _is_to_be_seen(self, group: Group) -> bool:
        return is_awake(group, self.snapshot) or (self._is_let_go and group.reason == "behind-others")

    def _place(self, tenant: str, head: _Head) -> Place:
        known = self.snapshot.tenants.get(tenant)
        totals = self.fleet.total_milli, self.fleet.total_mib
        return place_of(known, head[4].rank, head[1], head[2], self._used_by(tenant), totals, self.snapshot.now_ms, self.policy)

    def _used_by(self, tenant: str) -> Used:
        """What the tenant uses, with what this cycle has planned."""
        return self._used.get(tenant) or self.snapshot.usage.of(tenant)

    def _consider(self, where: Place, group: Group, job_id: str) -> bool:
        """Plan one job if it can start now; else its line gets a verdict."""
        ask = settled(group.ask, self.fleet, self.snapshot.tenants.get(group.tenant))
        kinds, verdict = self._affordable(group.tenant, ask)
        if verdict is not None:
            self._drop(group, job_id)
            self.verdicts[group.key] = verdict
            return False
        barred = self._barred(where, group, job_id, ask)
        found = self._try(ask, kinds, barred)
        if isinstance(found, int):
            self.verdicts[group.key] = self._blocked(where, group, job_id, ask, kinds, barred, found)
            return False
        why = Why(where, ask, tuple([kind for kind, _ in kinds]), barred)
        self._start(group, job_id, Start(job_id, found, self._seen(found), why), takes(tuple(plan.slices for plan in found)))
        return True

    def _affordable(self, tenant: str, ask: Ask) -> tuple[Kinds, Verdict | None]:
        """The kinds that serve the ask within the tenant's quota; a verdict where there is none."""
        kinds = self.fleet.kinds(ask)
        if not kinds:
            return kinds, verdicts.no_kind(ask, self.fleet)
        known = self.snapshot.tenants[tenant]
        if known.quota_milli is None and known.quota_mib is None and not known.is_suspended:
            return kinds, None
        used = self._used_by(tenant)
        why = [above_quota(known, used, *need(ask, kind)) for kind, _ in kinds]
        within = tuple(item for item, above in zip(kinds, why, strict=True) if above is None)
        return within, None if within else Verdict("quota", why[0] or "")

    def _is_mine(self, kept: Reservation, group: Group, job_id: str) -> bool:
        """Whether it is kept for this job; room that others made is anybody's of the same line, since they ask for the same."""
        if kept.job_id == job_id or not kept.evicting:
            return kept.job_id == job_id
        spot = self.snapshot.queue.spots.get(kept.job_id)
        return spot is not None and spot[0] is group

    def _drop(self, group: Group, job_id: str) -> None:
        """Keep nothing for the job any more; a kind that was planned for it remembers when."""
        for slot, kept in list(self.kept.items()):
            if kept.job_id and self._is_mine(kept, group, job_id):
                del self.kept[slot], self._holders[slot]
                if not kept.evicting:
                    self.kept[slot] = kept._replace(job_id="", nodes=NOBODY, start_ms=None)

    def _barred(self, where: Place, group: Group, job_id: str, ask: Ask) -> frozenset[str]:
        """Nodes kept for jobs that go before this one and that it could delay; and those on which others have made room, for whoever."""
        if not self._holders:
            return NOBODY
        nodes = [
            kept.nodes
            for slot, kept in self.kept.items()
            if kept.job_id
            and not self._is_mine(kept, group, job_id)
            and (kept.evicting or self._holders[slot] < where)
            and not may_backfill(ask, kept, self.snapshot.now_ms, self.policy)
        ]
        return frozenset().union(*nodes) if nodes else NOBODY

    def _try(self, ask: Ask, kinds: Kinds, barred: frozenset[str]) -> tuple[RankPlan, ...] | int:
        """:func:`place`, remembering what cannot be placed: within a cycle room only becomes less."""
        key = (ask, kinds, barred)
        known = self._cannot.get(key)
        if known is not None:
            return known
        found = place(ask, self.fleet, kinds, barred)
        if isinstance(found, int):
            self._cannot[key] = found
        return found

    def _start(self, group: Group, job_id: str, start: Start, size: tuple[int, int]) -> None:
        tenant = group.tenant
        self.starts.append(start)
        self._used[tenant] = used_with(self._used, tenant, self.snapshot.usage.of(tenant), *size)
        self.verdicts[group.key] = None
        self._drop(group, job_id)

    def _seen(self, ranks: tuple[RankPlan, ...]) -> dict[str, int]:
        return {plan.node_id: self.fleet.nodes[plan.node_id].facts.version for plan in ranks}

    def _blocked(self, where: Place, group: Group, job_id: str, ask: Ask, kinds: Kinds, barred: frozenset[str], most: int) -> Verdict:
        """The verdict on a head that found no room; room is kept for it if it has waited long enough."""
        if barred and self._would_fit(ask, kinds):
            verdict = verdicts.behind_others(len(barred))
        else:
            verdict = verdicts.no_room(ask, self.fleet, kinds, most)
        if where[0]:
            return verdict  # spare jobs run on what nobody else wants: nothing is kept for them
        claimed = self._claim(where, group, job_id, ask, kinds)
        if isinstance(claimed, Verdict):
            return claimed
        looks = [at_ms for at_ms in (claimed, self._reserve(where, group, job_id, ask, kinds)) if at_ms is not None]
        return verdict._replace(look_at_ms=min(looks, default=None))

    def _claim(self, where: Place, group: Group, job_id: str, ask: Ask, kinds: Kinds) -> Verdict | int | None:
        """The verdict on a head for which others make room; when to look again where they may have to later; None where nobody has to."""
        now, again_ms = self.snapshot.now_ms, self.snapshot.now_ms + 1000
        lives = self.snapshot.lives
        mine = next((kept for kept in self.kept.values() if kept.evicting and self._is_mine(kept, group, job_id)), None)
        if mine is not None and mine.evicting & lives.leaving:
            return verdicts.preempting(len(mine.evicting & lives.leaving), again_ms)
        if mine is not None:  # they are gone, and it was not enough: begin anew
            self._drop(group, job_id)
        if self.policy.preempt == "none":
            return None
        own = Claim(job_id=job_id, tenant=group.tenant, rank=group.rank, milli=need(ask, kinds[0][0])[0])
        rights = Rights(own, self.snapshot.tenants, self._used_by, lives, self.evictions, now, self.policy)
        if rights.is_hopeless(self._weakest):
            return None
        if self._claims >= self.policy.claims_per_cycle:
            return Verdict("not-considered-yet", "is looked at in one of the next cycles", again_ms)
        self._claims += 1
        found = evict(own, ask, self.fleet, kinds, self._kept_before(where), rights, lives, now, self.policy)
        if found is None:
            return min(rights.again_ms or now + self.policy.replan * 1000, now + self.policy.replan * 1000)
        return self._carry_out(found, where, group, job_id, again_ms)

    def _carry_out(self, found: Eviction, where: Place, group: Group, job_id: str, again_ms: int) -> Verdict:
        """Note who yields, and keep the nodes."""
        self.evictions.update(dict.fromkeys(found.victims, job_id))
        self._drop(group, job_id)
        lives = self.snapshot.lives
        there = {job_id for job_id in lives.leaving if any(plan.node_id in found.nodes for plan in lives.by_job[job_id].plans)}
        slot, leaving = (found.kind, job_id), frozenset(found.victims) | there
        self.kept[slot] = Reservation(found.kind, job_id, found.nodes, None, self.snapshot.now_ms, leaving)
        self._holders[slot] = where
        return verdicts.preempting(len(leaving), again_ms)

    def _kept_before(self, where: Place) -> frozenset[str]:
        """Nodes that are kept for jobs before this one, and those on which others make room."""
        nodes = [kept.nodes for slot, kept in self.kept.items() if kept.job_id and (kept.evicting or self._holders[slot] < where)]
        return frozenset().union(*nodes)

    def _would_fit(self, ask: Ask, kinds: Kinds) -> bool:
        mark = self.fleet.mark()
        fits = not isinstance(self._try(ask, kinds, NOBODY), int)
        self.fleet.undo(mark)
        return fits

    def _reserve(self, where: Place, group: Group, job_id: str, ask: Ask, kinds: Kinds) -> int | None:
        """Keep room for the job where it is its turn; returns when to look at it again."""
        now, replan_ms = self.snapshot.now_ms, self.policy.replan * 1000
        due_ms = where[4] // 1000 + self.policy.reserve_after[group.priority] * 1000
        if now < due_ms:
            return due_ms
        mine = [(slot, kept) for slot, kept in self.kept.items() if kept.job_id == job_id]
        if mine and now < mine[0][1].planned_ms + replan_ms and self._are_open(mine[0][1].nodes):
            return mine[0][1].planned_ms + replan_ms
        free = tuple(item for item in kinds if self._is_free_for(item[0], where, job_id, now - replan_ms))
        if not free:
            return now + replan_ms
        for slot, _ in mine:
            del self.kept[slot], self._holders[slot]
        made = reserve(job_id, ask, self.fleet, free, self._kept_before(where), now, self.policy)
        for kind, _ in free:
            if self.kept.get((kind, ""), NEVER).job_id == "":
                self.kept[kind, ""] = Reservation(kind, "", NOBODY, None, now)
        if made is not None:
            self.kept[made.kind, ""] = made
            self._holders[made.kind, ""] = where
        return now + replan_ms

    def _is_free_for(self, kind: Kind, where: Place, job_id: str, planned_before_ms: int) -> bool:
        """Whether room of this kind may be planned for the job: nobody before it has a plan there, and the last one is old enough."""
        kept = self.kept.get((kind, ""))
        if kept is None or kept.job_id == job_id:
            return True
        if kept.job_id and self._holders[kind, ""] < where:
            return False
        return bool(kept.job_id) or kept.planned_ms <= planned_before_ms

    def _are_open(self, nodes: frozenset[str]) -> bool:
        return all((node := self.fleet.nodes.get(node_id)) is not None and node.is_open for node_id in nodes)
