"""What kinds of jobs come: learnt from the last requests, and turned into what the terms of a score need.

Requests are counted as they are taken; at a restart the last ones are read again. Only shapes count, never who asked. The outlook is worked
out anew when a part of the window has changed, so that scores stay comparable in between.
"""

from collections import Counter, deque
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gpuyard_scheduler.domain.model import Ask, Job

WINDOW = 4096
"""So many of the last requests make the mix."""
FEWEST_NEW = 64
PART_NEW = 8
"""The outlook is renewed after so many new requests, and at least an eighth of those that are known."""
HORIZON = 100
"""Tasks ahead that a rest of a card may wait for."""
MOST_CARDS = 64
MOST_TASKS = 60
_MILLION = 1_000_000
_PRIOR_MOVES = 64


class Shape(NamedTuple):
    """What of an ask the mix remembers."""

    cards: int
    milli: int
    cpu_milli: int
    models: tuple[str, ...]


class Task(NamedTuple):
    """A shape with its chance, in millionths."""

    chance: int
    cards: int
    milli: int
    cpu_milli: int


class Outlook(NamedTuple):
    """What is expected of the jobs to come.

    - `waste`: micro-GPU that stay unused of a card's rest, by the rest in milli-GPU (1,001 entries).
    - `cpu_of_gpu`: milli-CPU that come with one GPU, on average.
    - `wants_more_than`: by a number of cards, the chance (millionths) that a task needs more than these on one node.
    - `insists`: by models that a request named, the part (millionths) of all GPU demand that takes nothing else.
    - `turnover`: thousandths; how many jobs end for each that starts.
    - `tasks`: the most frequent shapes.
    """

    waste: npt.NDArray[np.int64]
    cpu_of_gpu: int
    wants_more_than: npt.NDArray[np.int64]
    insists: tuple[tuple[tuple[str, ...], int], ...]
    turnover: int
    tasks: tuple[Task, ...]


def _linear() -> npt.NDArray[np.int64]:
    """Before anything is known: a rest serves as well as its size, which makes all places equal."""
    return np.zeros(1001, np.int64)


NOTHING_KNOWN = Outlook(_linear(), 0, np.zeros(MOST_CARDS + 1, np.int64), (), 1000, ())


class Mix:
    """Counts of the last requests by shape, and of starts and ends."""

    def __init__(self) -> None:
        self._last: deque[Shape] = deque()
        self._counts: Counter[Shape] = Counter()
        self._new = 0
        self._starts = self._ends = _PRIOR_MOVES
        self._outlook = NOTHING_KNOWN
        self._told_turnover = 1000

    def add(self, ask: Ask) -> None:
        """A request was taken."""
        shape = Shape(ask.cards, ask.milli, ask.cpu_milli, ask.models)
        self._last.append(shape)
        self._counts[shape] += 1
        self._new += 1
        if len(self._last) > WINDOW:
            old = self._last.popleft()
            self._counts[old] -= 1
            if not self._counts[old]:
                del self._counts[old]

    def learn(self, asks: Iterable[Ask]) -> None:
        """Forget what was counted; these requests were the last, in this order."""
        self._last.clear()
        self._counts.clear()
        self._starts = self._ends = _PRIOR_MOVES
        for ask in asks:
            self.add(ask)

    def move(self, old: Job | None, new: Job | None) -> None:
        """Follow one job: count it when it is new, when it begins to hold hardware and when it lets go."""
        if new is None:
            return
        if old is None:
            if new.state == "queued" and not new.attempt:
                self.add(new.ask)
            return
        self._starts += new.is_live and not old.is_live
        self._ends += old.is_live and not new.is_live
        if self._starts + self._ends > 4 * WINDOW:
            self._starts, self._ends = self._starts // 2, self._ends // 2

    @property
    def turnover(self) -> int:
        """Jobs that end for each that starts, in thousandths, at most 1000, in steps of a sixteenth."""
        return min(16, self._ends * 16 // max(self._starts, 1)) * 1000 // 16

    def outlook(self) -> Outlook:
        """What is expected; the same object while nothing that matters has changed."""
        if self._new >= max(FEWEST_NEW, len(self._last) // PART_NEW):
            self._new = 0
            self._outlook = outlook_of(self._counts, self.turnover)
        elif self._outlook.turnover != self.turnover:
            self._outlook = self._outlook._replace(turnover=self.turnover)
        return self._outlook


def outlook_of(counts: Counter[Shape], turnover: int = 1000) -> Outlook:
    """What these requests let expect. Integers all through: the same counts give the same outlook on every machine."""
    total = sum(counts.values())
    on_gpus = [(shape, number) for shape, number in sorted(counts.items()) if shape.cards]
    milli = sum(shape.cards * shape.milli * number for shape, number in on_gpus)
    if not milli:
        return NOTHING_KNOWN._replace(turnover=turnover)
    sizes: Counter[int] = Counter()
    wants, insists = np.zeros(MOST_CARDS + 1, np.int64), Counter[tuple[str, ...]]()
    for shape, number in on_gpus:
        sizes[shape.milli] += number
        if shape.cards > 1:
            wants[: shape.cards] += number
        if shape.models:
            insists[shape.models] += shape.cards * shape.milli * number
    tasks = tuple(
        Task(number * _MILLION // total, shape.cards, shape.milli, shape.cpu_milli)
        for shape, number in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:MOST_TASKS]
    )
    return Outlook(
        waste=waste_of(sizes, total),
        cpu_of_gpu=sum(shape.cpu_milli * number for shape, number in on_gpus) * 1000 // milli,
        wants_more_than=wants * _MILLION // total,
        insists=tuple(sorted((models, demand * _MILLION // milli) for models, demand in insists.items())),
        turnover=turnover,
        tasks=tasks,
    )


def waste_of(sizes: Counter[int], total: int) -> npt.NDArray[np.int64]:
    """The table of :mod:`gpuyard_scheduler.domain.terms.waste` for shares of these sizes (milli → how many of `total` requests)."""
    known = np.array(sorted(sizes), np.int64)
    numbers = np.array([sizes[int(size)] for size in known], np.int64)
    served = np.zeros(1001, np.int64)
    for rest in range(1, 1001):
        upto = int(np.searchsorted(known, rest, side="right"))
        if upto:
            some, often = known[:upto], numbers[:upto]
            use = int((often * (some * 1000 + served[rest - some])).sum())
            served[rest] = HORIZON * use // (total + HORIZON * int(often.sum()))
    return np.arange(1001, dtype=np.int64) * 1000 - served
