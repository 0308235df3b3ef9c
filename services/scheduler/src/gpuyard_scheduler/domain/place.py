"""Choosing cards for one job: the whole gang or nothing.

Best fit: of the nodes that can take it, one with the fewest empty cards, so that large holes stay whole; linked cards before cards apart;
a gang on as few nodes as will do. All cards of a job are of one kind, and no card serves two ranks or two shares of one job. Deterministic:
ties go to less free CPU and memory, then to the node's id. Read :func:`place` first.
"""

from bisect import bisect_left

from gpuyard_scheduler.domain.ask import portion
from gpuyard_scheduler.domain.capacity import has_labels
from gpuyard_scheduler.domain.fleet import Fleet
from gpuyard_scheduler.domain.model import Ask, Kind, RankPlan, Slice
from gpuyard_scheduler.domain.pool import Bank, Card, CardEntry, Pool

NOBODY: frozenset[str] = frozenset()


class Want:
    """One rank's wish, worked out for one kind of card. `barred`: nodes that are kept for others."""

    __slots__ = ("ask", "barred", "cards", "cpu", "is_picky", "memory", "mib", "milli", "used")

    def __init__(self, ask: Ask, kind: Kind, barred: frozenset[str]) -> None:
        self.ask = ask
        self.cards = ask.cards
        self.cpu = ask.cpu_milli
        self.memory = ask.memory_mib
        self.milli, self.mib = portion(ask, kind)
        self.barred = barred
        self.is_picky = bool(barred or ask.labels or ask.avoid_nodes or ask.avoid_gpus)
        self.used: set[str] = set()

    def takes_node(self, bank: Bank) -> bool:
        """Whether the node is one that the job may go to at all."""
        node = bank.node
        ask = self.ask
        return node.node_id not in self.barred and node.node_id not in ask.avoid_nodes and has_labels(ask, node.labels)

    def empties(self, bank: Bank) -> int:
        """The mask of empty cards that the job may have."""
        return bank.without(self.ask.avoid_gpus) if self.ask.avoid_gpus else bank.mask


def place(ask: Ask, fleet: Fleet, kind: Kind, pools: tuple[Pool, ...], barred: frozenset[str] = NOBODY) -> tuple[RankPlan, ...] | int:
    """Take room for every rank on the fleet's trial and return the plans; where not all find room, take none and say how many would.

    `pools` are the kind's, as :meth:`Fleet.kinds` gives them.
    """
    want = Want(ask, kind, barred)
    mark = fleet.mark()
    plans = _shares(want, fleet, pools) if ask.is_share else _whole(want, fleet, pools)
    if len(plans) == ask.ranks:
        return tuple(plans)
    fleet.undo(mark)
    return len(plans)


def _whole(want: Want, fleet: Fleet, pools: tuple[Pool, ...]) -> list[RankPlan]:
    plans: list[RankPlan] = []
    left = want.ask.ranks
    while left:
        times = left
        bank = _bank_for(want, pools, left)
        if bank is None and left > 1:
            bank, times = _roomiest(want, pools, left)
        if bank is None:
            break
        for _ in range(times):
            positions = bank.layout.choose(want.empties(bank), want.cards)
            plans.append(_plan(want, len(plans), bank, [bank.cards[position] for position in positions]))
            fleet.take(plans[-1])
        left -= times
    return plans


def _plan(want: Want, rank: int, bank: Bank, cards: list[Card]) -> RankPlan:
    slices = tuple([Slice(card.facts.uuid, want.milli, want.mib) for card in cards])
    return RankPlan(rank, bank.node.node_id, slices, want.cpu, want.memory)


def _bank_for(want: Want, pools: tuple[Pool, ...], ranks: int) -> Bank | None:
    """The best bank that takes so many ranks at once on whole cards."""
    cards, cpu, memory = want.cards * ranks, want.cpu * ranks, want.memory * ranks
    best: tuple[tuple[bool, int, int], int, int, str] | None = None
    chosen: Bank | None = None
    for pool in pools:
        for rung, line in pool.order(cards):
            if best is not None and rung > best[0]:
                break
            for at in range(bisect_left(line, (cpu,)), len(line)):
                free_cpu, free_memory, node_id, bank = line[at]
                if free_memory < memory or (want.is_picky and not _may(want, bank, cards)):
                    continue
                key = (rung, free_cpu, free_memory, node_id)
                if best is None or key < best:
                    best, chosen = key, bank
                break
            if best is not None and best[0] == rung:
                break
    return chosen


def _may(want: Want, bank: Bank, cards: int) -> bool:
    return want.takes_node(bank) and want.empties(bank).bit_count() >= cards


def _roomiest(want: Want, pools: tuple[Pool, ...], ranks: int) -> tuple[Bank | None, int]:
    """The bank that takes the most ranks, and how many. The fullest rungs come first, so the first that is filled to its end wins."""
    best: Bank | None = None
    most = 0
    rungs = sorted(
        ((rung, number) for number, pool in enumerate(pools) for rung in pool.rungs), key=lambda item: (-item[0][0], -item[0][1], item[1])
    )
    for (whole, joined), number in rungs:
        if whole // want.cards <= most:
            break
        for cpu, memory, _, bank in reversed(pools[number].rungs[whole, joined]):
            takes = min(ranks, whole // want.cards, cpu // want.cpu, memory // want.memory)
            if takes > most and want.is_picky:
                takes = min(takes, want.empties(bank).bit_count() // want.cards) if want.takes_node(bank) else 0
            if takes > most:
                best, most = bank, takes
                if most == whole // want.cards:
                    break
    return best, most


def _shares(want: Want, fleet: Fleet, pools: tuple[Pool, ...]) -> list[RankPlan]:
    plans: list[RankPlan] = []
    if want.milli > 1000:
        return plans
    while len(plans) < want.ask.ranks:
        cards = _one_share(want, pools) if want.cards == 1 else _several_shares(want, pools)
        if cards is None:
            break
        plans.append(_plan(want, len(plans), cards[0].bank, cards))
        want.used.update(card.uuid for card in cards)
        fleet.take(plans[-1])
    return plans


def _one_share(want: Want, pools: tuple[Pool, ...]) -> list[Card] | None:
    """The fullest card that has the room; else an empty one where the fewest are empty."""
    best: CardEntry | None = None
    for pool in pools:
        line = pool.partials
        for at in range(bisect_left(line, (want.milli, want.mib)), len(line)):
            entry = line[at]
            if entry[1] >= want.mib and _has_room(want, entry[4]):
                if best is None or entry[:4] < best[:4]:
                    best = entry
                break
    if best is not None:
        return [best[4]]
    bank = _bank_for(want, pools, 1)
    return None if bank is None else [bank.cards[bank.layout.choose(want.empties(bank), 1)[0]]]


def _has_room(want: Want, card: Card) -> bool:
    """Whether the job may have this partly used card, as far as node and uuid go."""
    node = card.bank.node
    if node.cpu_free < want.cpu or node.memory_free < want.memory or card.facts.uuid in want.used:
        return False
    return not want.is_picky or (want.takes_node(card.bank) and card.facts.uuid not in want.ask.avoid_gpus)


def _several_shares(want: Want, pools: tuple[Pool, ...]) -> list[Card] | None:
    """Shares on so many cards of one node: the bank that has to open the fewest empty cards, partly used cards first."""
    best: tuple[int, str] | None = None
    chosen: list[Card] | None = None
    for pool in pools:
        seen: set[str] = set()
        banks = [entry[4].bank for entry in pool.partials]
        banks += [entry[3] for _, line in pool.order(1) for entry in line]
        for bank in banks:
            if bank.node.node_id in seen:
                continue
            seen.add(bank.node.node_id)
            cards, opened = _cards_of(want, bank)
            if cards is not None and (best is None or (opened, bank.node.node_id) < best):
                best, chosen = (opened, bank.node.node_id), cards
                if not opened:
                    return chosen
    return chosen


def _cards_of(want: Want, bank: Bank) -> tuple[list[Card] | None, int]:
    """The bank's cards for one rank's shares, and how many of them were empty."""
    node = bank.node
    if node.cpu_free < want.cpu or node.memory_free < want.memory or (want.is_picky and not want.takes_node(bank)):
        return None, 0
    begun = [
        card
        for card in bank.cards
        if card.entry is not None and card.free_milli >= want.milli and card.free_mib >= want.mib and _has_room(want, card)
    ]
    begun.sort(key=lambda card: (card.free_milli, card.free_mib, card.position))
    missing = max(0, want.cards - len(begun))
    empties = want.empties(bank)
    if missing > empties.bit_count():
        return None, 0
    opened = [bank.cards[position] for position in bank.layout.choose(empties, missing)] if missing else []
    return begun[: want.cards - missing] + opened, missing
