"""Keeping room for a job that has waited long, so that small jobs cannot starve a large one.

The job's planned start is worked out from the limits of what runs: the earliest instant at which enough would have ended. Until then only
jobs that end before it may use the nodes of the plan (backfill). Where limits are unknown the start is unknown too: then the nodes with
the least still to end are kept, and nothing new goes there. Integers only; a plan is a promise to wait, never a hold.
"""

from typing import NamedTuple

from gpuyard_scheduler.domain.ask import portion
from gpuyard_scheduler.domain.fleet import Fleet
from gpuyard_scheduler.domain.model import Ask, HoldFacts, Kind, RankPlan, Reservation
from gpuyard_scheduler.domain.policy import Policy
from gpuyard_scheduler.domain.pool import Bank, Pool


class Room:
    """What a bank has free, as holds end one by one."""

    __slots__ = ("_ask", "_cards", "_cpu", "_memory", "_mib", "_milli", "ends", "node_id", "ranks", "unlimited")

    def __init__(self, ask: Ask, kind: Kind, bank: Bank, held: list[tuple[HoldFacts, int | None]]) -> None:
        self._ask = ask
        self._milli, self._mib = portion(ask, kind)
        self._cpu, self._memory = bank.node.cpu_free, bank.node.memory_free
        usable = (card for card in bank.cards if card.is_open and card.facts.uuid not in ask.avoid_gpus)
        self._cards = {card.facts.uuid: [card.free_milli, card.free_mib, card.holds] for card in usable}
        self.node_id = bank.node.node_id
        self.ends = sorted(((until, hold) for hold, until in held if until is not None), key=lambda item: item[0])
        self.unlimited = [hold for hold, until in held if until is None]
        self.ranks = self._count()

    def free(self, hold: HoldFacts | RankPlan) -> int:
        """The hold ends; returns how many more ranks then find room."""
        return self._change(hold, 1)

    def take(self, hold: HoldFacts | RankPlan) -> int:
        """The hold is there again; returns how many more ranks find room, which is negative."""
        return self._change(hold, -1)

    def _change(self, hold: HoldFacts | RankPlan, sign: int) -> int:
        for part in hold.slices:
            card = self._cards.get(part.gpu_uuid)
            if card is not None:
                card[0] += sign * part.milli
                card[1] += sign * part.memory_mib
                card[2] -= sign
        self._cpu += sign * hold.cpu_milli
        self._memory += sign * hold.memory_mib
        before, self.ranks = self.ranks, self._count()
        return self.ranks - before

    def _count(self) -> int:
        ask = self._ask
        if ask.is_share:
            cards = sum(1 for milli, mib, _ in self._cards.values() if milli >= self._milli and mib >= self._mib)
        else:
            cards = sum(1 for _, _, holds in self._cards.values() if not holds)
        return max(0, min(cards // ask.cards, self._cpu // ask.cpu_milli, self._memory // ask.memory_mib))


class Outlook(NamedTuple):
    """Where a job would start, and when (None: nobody knows)."""

    start_ms: int | None
    nodes: frozenset[str]


def reserve(
    job_id: str,
    ask: Ask,
    fleet: Fleet,
    kinds: tuple[tuple[Kind, tuple[Pool, ...]], ...],
    barred: frozenset[str],
    now_ms: int,
    policy: Policy,
) -> Reservation | None:
    """The earliest plan over these kinds, nodes in `barred` left out; None where even an idle fleet has no room."""
    best: Reservation | None = None
    for kind, _ in kinds:
        outlook = _outlook(_rooms(ask, fleet, kind, barred, policy), ask.ranks, now_ms)
        if outlook is None:
            continue
        made = Reservation(kind, job_id, outlook.nodes, outlook.start_ms, now_ms)
        if best is None or _is_sooner(made.start_ms, best.start_ms):
            best = made
    return best


def may_backfill(ask: Ask, kept: Reservation, now_ms: int, policy: Policy) -> bool:
    """Whether a job that starts now on the kept nodes is sure to be gone before their planned start."""
    if kept.start_ms is None or ask.max_seconds is None:
        return False
    return now_ms + (policy.start_slack + ask.max_seconds) * 1000 <= kept.start_ms


def _is_sooner(one: int | None, other: int | None) -> bool:
    return one is not None and (other is None or one < other)


def _rooms(ask: Ask, fleet: Fleet, kind: Kind, barred: frozenset[str], policy: Policy) -> list[Room]:
    """The nodes worth looking at: open ones that the job may use, those with the most empty cards first."""
    tried = fleet.tried()
    most = max(policy.reserve_nodes, 4 * ask.ranks)
    return [
        Room(ask, kind, bank, fleet.held_on(bank.node) + [(hold, None) for hold in tried.get(bank.node.node_id, ())])
        for bank in fleet.board.emptiest(ask, fleet.kinds(ask), kind, barred, most)
    ]


def _outlook(rooms: list[Room], ranks: int, now_ms: int) -> Outlook | None:
    """Let holds end in the order of their limits until all ranks find room."""
    total = sum(room.ranks for room in rooms)
    ends = sorted(((until, room.node_id, number) for number, room in enumerate(rooms) for until, _ in room.ends))
    steps = [iter(room.ends) for room in rooms]
    start_ms = now_ms
    for until, _, number in ends:
        if total >= ranks:
            break
        total += rooms[number].free(next(steps[number])[1])
        start_ms = max(now_ms, until)
    if total >= ranks:
        return Outlook(start_ms, _fewest(sorted(rooms, key=lambda room: (-room.ranks, room.node_id)), ranks))
    by_nearness = sorted(rooms, key=lambda room: (len(room.unlimited), -room.ranks, room.node_id))
    for room in rooms:
        for hold in room.unlimited:
            total += room.free(hold)
    return Outlook(None, _fewest(by_nearness, ranks)) if total >= ranks else None


def _fewest(rooms: list[Room], ranks: int) -> frozenset[str]:
    """The first rooms, in order, that hold all ranks together."""
    nodes: list[str] = []
    for room in rooms:
        if ranks <= 0:
            break
        if room.ranks:
            nodes.append(room.node_id)
            ranks -= room.ranks
    return frozenset(nodes)
