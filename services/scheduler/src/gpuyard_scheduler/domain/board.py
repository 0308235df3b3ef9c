"""The fleet's free room as arrays: one row for each bank, in the order of node ids, kept up with what changes.

A search asks for a :class:`View` of one ask: for every row how many of its ranks find room, and how good the place is. A view remembers how
far it has read the list of changed rows and works out those anew and no others; so a decision costs what has changed since the same was
last asked, not the size of the fleet. The objects of :mod:`gpuyard_scheduler.domain.pool` are the truth, the arrays follow them.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gpuyard_scheduler.domain.ask import has_labels, portion
from gpuyard_scheduler.domain.model import Ask, Kind
from gpuyard_scheduler.domain.places import Ints, Places
from gpuyard_scheduler.domain.pool import Bank, Pool
from gpuyard_scheduler.domain.scoring import NO_PLACE, Scoring

Rows = npt.NDArray[np.intp]

VIEW_BYTES = 96 << 20
"""Memory for views, all together: a deep queue of many different asks drops the longest unused ones."""
FEWEST_VIEWS = 16
_MOST_ROOM = 32_000


class Key(NamedTuple):
    """Where a bank stands."""

    node_id: str
    kind: Kind
    sharing: str


def key_of(bank: Bank) -> Key:
    """Banks are in the order of these, whatever order they came in."""
    return Key(bank.node.node_id, bank.pool.kind, bank.pool.sharing)


class Columns:
    """What the rows hold. A closed card has -1, a closed node only closed cards and no CPU."""

    def __init__(self, rows: int, cards: int) -> None:
        self.milli = np.full((rows, cards), -1, np.int64)
        self.mib = np.full((rows, cards), -1, np.int64)
        self.empty = np.zeros(rows, np.int64)
        self.joined = np.zeros(rows, np.int64)
        self.cpu = np.full(rows, -1, np.int64)
        self.memory = np.full(rows, -1, np.int64)

    def like(self, rows: Rows, cards: int) -> "Columns":
        """These rows of it (-1: a new one), each with so many cards at least."""
        made = Columns(len(rows), max(cards, self.milli.shape[1]))
        kept = np.flatnonzero(rows >= 0)
        old = rows[kept]
        made.milli[kept, : self.milli.shape[1]] = self.milli[old]
        made.mib[kept, : self.mib.shape[1]] = self.mib[old]
        for name in ("empty", "joined", "cpu", "memory"):
            getattr(made, name)[kept] = getattr(self, name)[old]
        return made

    def put(self, bank: Bank) -> None:
        """Copy what is left of a bank."""
        row, node = bank.row, bank.node
        if not node.is_open:
            self.milli[row] = self.mib[row] = self.cpu[row] = self.memory[row] = -1
            self.empty[row] = self.joined[row] = 0
            return
        cards = bank.cards
        self.milli[row, : len(cards)] = [card.free_milli if card.is_open else -1 for card in cards]
        self.mib[row, : len(cards)] = [card.free_mib if card.is_open else -1 for card in cards]
        self.empty[row] = bank.mask.bit_count()
        self.joined[row] = bank.layout.joined(bank.mask)
        self.cpu[row] = node.cpu_free
        self.memory[row] = node.memory_free


class View:
    """One ask on all rows. `room`: ranks that find room; `score`: the smaller the better, NO_PLACE where none does.

    `takes`: milli-GPU and MiB that a rank takes of one card, by the pool's number.
    """

    __slots__ = ("_groups", "at", "by_kind", "eligible", "room", "score", "takes")

    def __init__(self, rows: int, takes: Ints, eligible: npt.NDArray[np.bool_], by_kind: dict[Kind, Rows]) -> None:
        self.room = np.zeros(rows, np.int16)
        self.score = np.full(rows, NO_PLACE, np.int32)
        self.takes = takes
        self.eligible = eligible
        self.by_kind = by_kind
        self.at = 0
        self._groups: dict[tuple[Kind, ...], Rows] = {}

    def rows_of(self, kinds: tuple[Kind, ...]) -> Rows:
        """The rows of these kinds, in order."""
        found = self._groups.get(kinds)
        if found is None:
            found = self._groups[kinds] = np.sort(np.concatenate([self.by_kind[kind] for kind in kinds]))
        return found


class Board:
    """All banks as rows, and the views that are in use."""

    def __init__(self) -> None:
        self.banks: list[Bank] = []
        self.columns = Columns(0, 1)
        self.scoring = Scoring()
        self._keys: list[Key] = []
        self._pools = np.zeros(0, np.int64)
        self._is_other = False
        self._changed: list[Bank] = []
        self._log: list[int] = []
        self._views: dict[Ask, View] = {}
        self._shut: dict[frozenset[str], npt.NDArray[np.bool_]] = {}

    def add(self, bank: Bank) -> None:
        """A bank has come."""
        key = key_of(bank)
        at = bisect_left(self._keys, key)
        self._keys.insert(at, key)
        self.banks.insert(at, bank)
        bank.row = -1
        self._is_other = True
        self.touch(bank)

    def remove(self, bank: Bank) -> None:
        """A bank has gone."""
        at = bisect_left(self._keys, key_of(bank))
        del self._keys[at], self.banks[at]
        bank.row = -1
        self._is_other = True

    def touch(self, bank: Bank) -> None:
        """Something of the bank has changed."""
        if not bank.is_changed:
            bank.is_changed = True
            self._changed.append(bank)

    def use(self, scoring: Scoring) -> None:
        """Score places in this way from now on."""
        if scoring is not self.scoring:
            self.scoring = scoring
            self._views.clear()

    def catch_up(self) -> None:
        """Bring the arrays to what the banks are."""
        if self._is_other:
            self._rebuild()
        if not self._changed:
            return
        changed, self._changed = self._changed, []
        for bank in changed:
            bank.is_changed = False
            if bank.row >= 0:
                self.columns.put(bank)
                self._log.append(bank.row)
        if len(self._log) > 4 * len(self.banks) + 100_000:
            self._log.clear()
            self._views.clear()

    def _rebuild(self) -> None:
        """Banks have come or gone: give every bank its row, and keep what is known of those that stay."""
        before = np.fromiter((bank.row for bank in self.banks), np.intp, len(self.banks))
        self.columns = self.columns.like(before, max((len(bank.cards) for bank in self.banks), default=1))
        for row, bank in enumerate(self.banks):
            bank.row = row
        self._pools = np.fromiter((bank.pool.number for bank in self.banks), np.int64, len(self.banks))
        self._is_other = False
        self._views.clear()
        self._shut.clear()
        self._log.clear()

    def view(self, ask: Ask, kinds: Sequence[tuple[Kind, Sequence[Pool]]]) -> View:
        """The ask on every row, as things are now. `kinds` are those that serve it, as :meth:`Fleet.kinds` gives them."""
        self.catch_up()
        key = ask._replace(ranks=1, max_seconds=None, is_spot=False)
        found = self._views.get(key)
        if found is None:
            found = self._open(key, kinds)
        elif found.at < len(self._log):
            rows = np.array(sorted(set(self._log[found.at :])), np.intp)
            self._work_out(found, key, rows[found.eligible[rows]])
        found.at = len(self._log)
        return found

    def _open(self, ask: Ask, kinds: Sequence[tuple[Kind, Sequence[Pool]]]) -> View:
        size = len(self.banks)
        while len(self._views) > max(FEWEST_VIEWS, VIEW_BYTES // (16 * size + 1)):
            del self._views[next(iter(self._views))]
        may = np.ones(size, np.bool_)
        if ask.labels or ask.avoid_nodes:
            may = np.fromiter((self._may(ask, bank) for bank in self.banks), np.bool_, size)
        takes = np.full((int(self._pools.max(initial=0)) + 1, 2), -1, np.int64)
        by_kind: dict[Kind, Rows] = {}
        for kind, pools in kinds:
            numbers = [pool.number for pool in pools]
            takes[numbers] = portion(ask, kind)
            by_kind[kind] = np.flatnonzero(np.isin(self._pools, numbers) & may)
        eligible = (takes[self._pools, 0] >= 0) & may
        made = self._views[ask] = View(size, takes, eligible, by_kind)
        self._work_out(made, ask, np.flatnonzero(eligible))
        return made

    @staticmethod
    def _may(ask: Ask, bank: Bank) -> bool:
        return bank.node.node_id not in ask.avoid_nodes and has_labels(ask, bank.node.labels)

    def _work_out(self, view: View, ask: Ask, rows: Rows) -> None:
        """Room and score of these rows."""
        if len(rows):
            places = self._places(view, ask, rows)
            view.room[rows] = np.minimum(places.room, _MOST_ROOM)
            view.score[rows] = self.scoring.score(places)

    def _places(self, view: View, ask: Ask, rows: Rows) -> Places:
        columns = self.columns
        milli, empty = columns.milli[rows], columns.empty[rows]
        if ask.avoid_gpus:
            milli, empty = self._without(ask, rows, milli, empty)
        takes = view.takes[self._pools[rows]]
        mib, joined, cpu, memory = columns.mib[rows], columns.joined[rows], columns.cpu[rows], columns.memory[rows]
        return Places(ask, takes[:, 0], takes[:, 1], milli, mib, empty, joined, cpu, memory)

    def _without(self, ask: Ask, rows: Rows, milli: Ints, empty: Ints) -> tuple[Ints, Ints]:
        """The same without the cards that the ask avoids."""
        milli, empty = milli.copy(), empty.copy()
        for at, row in enumerate(rows):
            bank = self.banks[int(row)]
            for card in bank.cards:
                if card.facts.uuid in ask.avoid_gpus:
                    milli[at, card.position] = -1
                    empty[at] -= bank.mask >> card.position & 1 if bank.node.is_open else 0
        return milli, empty

    def shut(self, nodes: frozenset[str]) -> npt.NDArray[np.bool_]:
        """The rows of these nodes."""
        found = self._shut.get(nodes)
        if found is None:
            if len(self._shut) > FEWEST_VIEWS:
                self._shut.clear()
            found = self._shut[nodes] = np.fromiter((bank.node.node_id in nodes for bank in self.banks), np.bool_, len(self.banks))
        return found

    def most_empty(self, ask: Ask, kinds: Sequence[tuple[Kind, Sequence[Pool]]]) -> int:
        """How many empty cards the emptiest node has on which the ask may lie."""
        view = self.view(ask, kinds)
        return max((int(self.columns.empty[rows].max(initial=0)) for rows in view.by_kind.values()), default=0)

    def emptiest(self, ask: Ask, kinds: Sequence[tuple[Kind, Sequence[Pool]]], kind: Kind, barred: frozenset[str], most: int) -> list[Bank]:
        """Open banks of a kind on which the ask may lie, those with the most empty cards first, then by node."""
        rows = self.view(ask, kinds).by_kind[kind]
        is_open = self.columns.cpu[rows] >= 0
        if barred:
            is_open &= ~self.shut(barred)[rows]
        rows = rows[is_open]
        return [self.banks[int(row)] for row in rows[np.argsort(-self.columns.empty[rows], kind="stable")[:most]]]

    def terms(self, ask: Ask, kinds: Sequence[tuple[Kind, Sequence[Pool]]], rows: Sequence[int]) -> list[dict[str, int]]:
        """What each term says of these places, weighted, in micro-GPU: for people who ask why."""
        return self.scoring.by_term(self._places(self.view(ask, kinds), ask, np.array(rows, np.intp)))
