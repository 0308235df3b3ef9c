"""Lightest load first: the place that has the most left afterwards."""

from gpuyard_scheduler.domain.mix import Outlook
from gpuyard_scheduler.domain.places import Ints, Places


def cost(places: Places, outlook: Outlook) -> Ints:
    """Less for more idle milli-GPU, in micro-GPU."""
    return (places.taken - places.idle) * 1000
