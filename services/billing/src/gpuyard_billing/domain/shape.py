"""How much of which cards an allocation holds: a share is priced by the larger of its part of the compute and its part of the memory."""

from collections.abc import Iterable
from fractions import Fraction

from gpuyard_contracts.types import SHARE_FULL_MILLI

from gpuyard_billing.domain.model import Part, Shape


def share_of(milli: int, memory_mib: int, card_memory_mib: int | None) -> Fraction:
    """The part of one card that a slice takes, at most the whole. `card_memory_mib` None or 0: only the compute is known."""
    if milli >= SHARE_FULL_MILLI:
        return Fraction(1)
    compute = Fraction(milli, SHARE_FULL_MILLI)
    if not card_memory_mib:
        return compute
    return min(Fraction(1), max(compute, Fraction(memory_mib, card_memory_mib)))


def shape_of(slices: Iterable[tuple[str, Fraction]]) -> Shape:
    """The shape of slices, given as model and part of a card."""
    sums: dict[str, Fraction] = {}
    for model, share in slices:
        sums[model] = sums.get(model, Fraction(0)) + share
    return tuple(Part(model, total.numerator, total.denominator) for model, total in sorted(sums.items()))
