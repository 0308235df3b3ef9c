"""GPU that the node's CPU can no longer feed.

A node with idle cards and no idle cores is idle for good. What its free CPU can feed is worked out from the mean cores of a GPU in the mix;
nine tenths of the mean are enough, since tasks differ.
"""

import numpy as np

from gpuyard_scheduler.domain.mix import Outlook
from gpuyard_scheduler.domain.places import Ints, Places


def cost(places: Places, outlook: Outlook) -> Ints:
    """How much more would be starved."""
    idle, need = places.idle, outlook.cpu_of_gpu * 9 // 10
    after = _starved(idle - places.taken, places.cpu - places.ask.cpu_milli, need)
    return after - _starved(idle, places.cpu, need)


def _starved(idle: Ints, cpu: Ints, need: int) -> Ints:
    """Idle milli-GPU beyond what the CPU feeds, in micro-GPU. `need`: milli-CPU of one GPU."""
    if need <= 0:
        return idle * 0
    return np.maximum(idle * 1000 - np.maximum(cpu, 0) * 1_000_000 // need, 0)
