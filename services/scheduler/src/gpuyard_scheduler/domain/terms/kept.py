"""Empty cards kept together for tasks that need several on one node.

Each task of the mix that wants more cards than a node would have left loses that node; what is lost is the node's idle share. It counts
only as far as tasks leave: a hole that is kept is then used again and again. While a fleet only fills, it is used once at most, and keeping
it costs more than it brings (both were measured).
"""

import numpy as np

from gpuyard_scheduler.domain.mix import Outlook
from gpuyard_scheduler.domain.places import Ints, Places


def cost(places: Places, outlook: Outlook) -> Ints:
    """The chance that the next task needs more than is left, times what is idle; before and after."""
    wants = outlook.wants_more_than
    most = len(wants) - 1
    idle = places.idle
    after = wants[np.minimum(np.maximum(places.empty - places.opened, 0), most)] * (idle - places.taken)
    return (after - wants[np.minimum(places.empty, most)] * idle) * outlook.turnover // 1_000_000
