"""Least remaining first: the place that has the least left afterwards."""

from gpuyard_scheduler.domain.mix import Outlook
from gpuyard_scheduler.domain.places import Ints, Places


def cost(places: Places, outlook: Outlook) -> Ints:
    """Idle milli-GPU that would be left on the node, in micro-GPU."""
    return (places.idle - places.taken) * 1000
