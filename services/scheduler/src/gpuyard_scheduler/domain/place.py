"""Choosing cards for one job: the whole gang or nothing.

The board says for every bank whether a rank fits and how good the place is (:mod:`gpuyard_scheduler.domain.scoring`); the best is taken.
All cards of a job are of one kind, and no card serves two ranks or two shares of one job; a gang lies on as few nodes as will do. Between
kinds, first those that nobody is short of, then those with less memory. Deterministic: equal places go to the first node by id.
"""

import numpy as np

from gpuyard_scheduler.domain.ask import portion
from gpuyard_scheduler.domain.board import Rows, View
from gpuyard_scheduler.domain.fleet import Fleet, Kinds
from gpuyard_scheduler.domain.model import Ask, RankPlan, Slice
from gpuyard_scheduler.domain.pool import Bank, Card
from gpuyard_scheduler.domain.scarcity import in_turn
from gpuyard_scheduler.domain.scoring import NO_PLACE

NOBODY: frozenset[str] = frozenset()


def place(ask: Ask, fleet: Fleet, kinds: Kinds, barred: frozenset[str] = NOBODY) -> tuple[RankPlan, ...] | int:
    """Take room for every rank on the fleet's trial and return the plans; where not all find room, take none and say how many would.

    `kinds` are those of :meth:`Fleet.kinds` that the job may use; `barred`: nodes that are kept for others.
    """
    view = fleet.board.view(ask, fleet.kinds(ask))
    most = 0
    for kind_group in in_turn(ask, fleet, kinds):
        if ask.ranks == 1:
            chosen = _best(view, view.rows_of(kind_group), fleet, barred)
            if chosen is not None:
                return (_take(ask, fleet, chosen, 0, set()),)
            continue
        for kind in kind_group:
            found = _gang(ask, fleet, view, view.by_kind[kind], barred)
            if not isinstance(found, int):
                return found
            most = max(most, found)
    return most


def _best(view: View, rows: Rows, fleet: Fleet, barred: frozenset[str]) -> Bank | None:
    """The best of these rows that one rank fits into."""
    if not len(rows):
        return None
    score = view.score[rows]
    if barred:
        score = np.where(fleet.board.shut(barred)[rows], NO_PLACE, score)
    at = int(score.argmin())
    return None if score[at] == NO_PLACE else fleet.board.banks[int(rows[at])]


def _gang(ask: Ask, fleet: Fleet, view: View, rows: Rows, barred: frozenset[str]) -> tuple[RankPlan, ...] | int:
    """All ranks on cards of one kind: one node for all that are left if there is one, else the one that takes the most."""
    room = view.room[rows].astype(np.int64)
    if barred:
        room[fleet.board.shut(barred)[rows]] = 0
    total = int(room.sum())
    if total < ask.ranks:
        return total
    plans: list[RankPlan] = []
    mark = fleet.mark()
    while len(plans) < ask.ranks and room.any():
        left = ask.ranks - len(plans)
        enough = room >= left
        at = int(np.where(enough, view.score[rows], NO_PLACE).argmin()) if enough.any() else int(room.argmax())
        bank, used = fleet.board.banks[int(rows[at])], set[str]()
        for _ in range(min(left, int(room[at]))):
            if bank.node.cpu_free < ask.cpu_milli or bank.node.memory_free < ask.memory_mib:
                break  # another bank of the same node has had it
            plans.append(_take(ask, fleet, bank, len(plans), used))
        room[at] = 0
    if len(plans) == ask.ranks:
        return tuple(plans)
    fleet.undo(mark)
    return len(plans)


def _take(ask: Ask, fleet: Fleet, bank: Bank, rank: int, used: set[str]) -> RankPlan:
    """Take the best cards of a bank that has the room. `used`: cards that other ranks of the job have there."""
    milli, mib = portion(ask, bank.pool.kind)
    cards = _shares_of(ask, fleet, bank, milli, mib, used) if ask.is_share else _empty_ones(ask, bank, ask.cards)
    used.update(card.uuid for card in cards)
    slices = tuple([Slice(card.facts.uuid, milli, mib) for card in cards])
    plan = RankPlan(rank, bank.node.node_id, slices, ask.cpu_milli, ask.memory_mib)
    fleet.take(plan)
    return plan


def _empty_ones(ask: Ask, bank: Bank, count: int) -> list[Card]:
    mask = bank.without(ask.avoid_gpus) if ask.avoid_gpus else bank.mask
    return [bank.cards[position] for position in bank.layout.choose(mask, count)] if count else []


def _shares_of(ask: Ask, fleet: Fleet, bank: Bank, milli: int, mib: int, used: set[str]) -> list[Card]:
    """The cards on which the shares waste the least; begun ones before empty ones where that is the same."""
    waste = fleet.board.scoring.outlook.waste
    fits = [
        (int(waste[card.free_milli - milli] - waste[card.free_milli]), card.free_milli, card.free_mib, card.position)
        for card in bank.cards
        if card.is_open
        and card.free_milli >= milli
        and card.free_mib >= mib
        and card.facts.uuid not in used
        and card.facts.uuid not in ask.avoid_gpus
    ]
    return [bank.cards[position] for _, _, _, position in sorted(fits)[: ask.cards]]
