"""Fragmentation as the next task would find it (Weng et al., "Beware of Fragmentation", USENIX ATC'23), as the increase that a place means.

F of a node is the sum over the mix's tasks of their chance times what is idle there and of no use to them: all of it where the task cannot
run, else the cards that are too small for it. Dear to work out; the default weight is 0, since `waste` and `kept` together are as good or
better on every measured mix. It stays as what others can be compared with.
"""

import numpy as np

from gpuyard_scheduler.domain.mix import Outlook, Task
from gpuyard_scheduler.domain.places import FULL, Ints, Places

_NEVER = 1 << 40


def cost(places: Places, outlook: Outlook) -> Ints:
    """F after it less F before it, in micro-GPU, on the card where that is least."""
    before = _fragment(places.milli, places.cpu, outlook.tasks)
    cpu = places.cpu - places.ask.cpu_milli
    if not places.ask.is_share:
        empty = places.milli == FULL
        left = np.where(empty & (np.cumsum(empty, 1) <= places.ask.cards), 0, places.milli)
        return _fragment(left, cpu, outlook.tasks) - before
    best = np.full(len(places.room), _NEVER, np.int64)
    fits = places.fits
    for card in range(places.milli.shape[1]):
        rows = np.flatnonzero(fits[:, card])
        left = places.milli[rows]
        left[:, card] -= places.takes_milli[rows]
        best[rows] = np.minimum(best[rows], _fragment(left, cpu[rows], outlook.tasks) - before[rows])
    return best


def _fragment(milli: Ints, cpu: Ints, tasks: tuple[Task, ...]) -> Ints:
    """F in micro-GPU. `Task.chance` is in millionths."""
    idle = np.maximum(milli, 0)
    total, empty = idle.sum(1), (milli == FULL).sum(1)
    lost = np.zeros(len(total), np.int64)
    for task in tasks:
        fits = idle >= task.milli
        runs = (cpu >= task.cpu_milli) & (empty >= task.cards if task.cards > 1 else fits.any(1)) & (task.cards > 0)
        lost += task.chance * np.where(runs, np.where(fits, 0, idle).sum(1), total)
    return lost // 1000
