"""Shares of cards that will stay idle for good.

With the mix's probabilities p(m) of share sizes m and a horizon of h tasks, what a rest r will still serve is
V(r) = h·Σ p(m)·(m + V(r-m)) / (1 + h·Σ p(m)), over m ≤ r, and r - V(r) is wasted: a rest that no usual size fills counts nearly whole, one
that many fit counts little. The outlook holds r - V(r) as a table (:mod:`gpuyard_scheduler.domain.mix`).
"""

import numpy as np

from gpuyard_scheduler.domain.mix import Outlook
from gpuyard_scheduler.domain.places import FULL, Ints, Places

_NEVER = 1 << 40


def cost(places: Places, outlook: Outlook) -> Ints:
    """What becomes waste on the cards that would be taken: the best ones of each place."""
    table = outlook.waste
    if not places.ask.is_share:
        return np.full(len(places.room), places.ask.cards * int(table[0] - table[FULL]), np.int64)
    left = np.maximum(places.milli - places.takes_milli[:, None], 0)
    each = np.where(places.fits, table[left] - table[places.free], _NEVER)
    if places.ask.cards == 1:
        return each.min(1)
    return np.sort(each, axis=1)[:, : places.ask.cards].sum(1)
