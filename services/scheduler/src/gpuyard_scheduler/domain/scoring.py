"""How good a place is: a weighted sum of named terms, the smaller the better. Integers only, so that equal inputs give equal plans.

Every term says in micro-GPU what it would cost to put one rank there: what is likely to stay unused because of it. It is a function of
:class:`Places` in a file of its own under ``terms/``; a new one is added to :data:`TERMS` with a weight in :class:`Weights`. The sum is
rounded to steps, and among equals the node with the fewest empty cards wins, then the first: coarse steps fill node after node, and that
keeps nodes whole (measured in ``bench``; the same was found for FGD by its authors' own code).
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cached_property
from types import MappingProxyType

import numpy as np

from gpuyard_scheduler.domain.mix import NOTHING_KNOWN, Outlook
from gpuyard_scheduler.domain.places import Ints, Places
from gpuyard_scheduler.domain.terms import apart, fragment, kept, pack, spread, starved, waste

NO_PLACE = 2**31 - 1
_OFFSET = 10_000_000
_TIES = 64
_MOST = NO_PLACE // _TIES - 1

Term = Callable[[Places, Outlook], Ints]

TERMS: MappingProxyType[str, Term] = MappingProxyType(
    {
        "waste": waste.cost,
        "starved": starved.cost,
        "kept": kept.cost,
        "apart": apart.cost,
        "fragment": fragment.cost,
        "pack": pack.cost,
        "spread": spread.cost,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Of each term, in thousandths. Terms of weight 0 are not worked out. `step`: micro-GPU that count as equal."""

    waste: int = 1000
    starved: int = 500
    kept: int = 10_000
    apart: int = 1000
    fragment: int = 0
    pack: int = 0
    spread: int = 0
    step: int = 3_000


@dataclass(frozen=True)
class Scoring:
    """Weights, and what has been learnt of the jobs that come."""

    weights: Weights = field(default_factory=Weights)
    outlook: Outlook = NOTHING_KNOWN

    def score(self, places: Places) -> Ints:
        """One number for each place, NO_PLACE where no rank finds room."""
        total = np.zeros(len(places.room), np.int64)
        for name, weight in self._used:
            total += TERMS[name](places, self.outlook) * weight
        steps = np.minimum(np.maximum(total // (1000 * self.weights.step) + _OFFSET, 0), _MOST)
        return np.where(places.room > 0, steps * _TIES + np.minimum(places.empty, _TIES - 1), NO_PLACE)

    def by_term(self, places: Places) -> list[dict[str, int]]:
        """What each weighted term says of each place, in micro-GPU."""
        said = {name: (TERMS[name](places, self.outlook) * weight // 1000).tolist() for name, weight in self._used}
        return [{name: values[at] for name, values in said.items()} for at in range(len(places.room))]

    @cached_property
    def _used(self) -> list[tuple[str, int]]:
        """Terms that count, by name and weight; what nothing is known about says the same of all places."""
        silent = {"waste", "starved", "kept", "fragment"} if self.outlook is NOTHING_KNOWN else set[str]()
        named = [(found.name, int(getattr(self.weights, found.name))) for found in fields(self.weights) if found.name in TERMS]
        return [(name, weight) for name, weight in named if weight and name not in silent]
