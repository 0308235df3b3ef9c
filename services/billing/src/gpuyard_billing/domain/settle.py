"""Turning an allocation's interval into priced segments.

The amount of a segment is never computed from its own length. With R(t) the exact price of everything from the allocation's start under
one price version until t, rounded once (half to even), a segment from a to b costs R(b) - R(a). So the segments of a version always add
up to R of its end: neither the number of settlements nor where they cut changes the sum by a single micro-unit. R depends on the start,
the shape and the book alone; nothing is carried from one settlement to the next. GPU time is rounded down by the same device.

Read :func:`settle` first.
"""

from dataclasses import dataclass, replace
from math import lcm

from gpuyard_billing.domain.model import HOUR_MS, Allocation, Segment, Shape
from gpuyard_billing.domain.prices import PriceBook


@dataclass(frozen=True, slots=True)
class Settled:
    """The allocation as it is billed now, and the segments that were added."""

    allocation: Allocation
    segments: tuple[Segment, ...]

    @property
    def amount_micros(self) -> int:
        """What was added, in micro-units."""
        return sum(segment.amount_micros for segment in self.segments)


def half_even(numerator: int, denominator: int) -> int:
    """The nearest integer to a fraction, a half to the even neighbour."""
    whole, rest = divmod(numerator, denominator)
    twice = 2 * rest
    return whole + 1 if twice > denominator or (twice == denominator and whole & 1) else whole


def settle(allocation: Allocation, book: PriceBook, until_ms: int) -> Settled:
    """Bill a started allocation up to an instant; one before the billed instant takes back what was billed too far."""
    started = allocation.started_ms
    if started is None:
        return Settled(allocation, ())
    billed = started if allocation.billed_ms is None else allocation.billed_ms
    until = max(until_ms, started)
    sign = 1 if until >= billed else -1
    segments = tuple(
        _segment(allocation, book, started, piece, allocation.segments + number, sign)
        for number, piece in enumerate(_pieces(book, min(billed, until), max(billed, until)))
    )
    return Settled(
        replace(
            allocation,
            billed_ms=until,
            segments=allocation.segments + len(segments),
            held_ms=allocation.held_ms + sum(segment.held_ms for segment in segments),
            gpu_ms=allocation.gpu_ms + sum(segment.gpu_ms for segment in segments),
            amount_micros=allocation.amount_micros + sum(segment.amount_micros for segment in segments),
        ),
        segments,
    )


def _pieces(book: PriceBook, begin_ms: int, end_ms: int) -> list[tuple[int, int, int, int]]:
    """Cut at price versions and at UTC hours."""
    found: list[tuple[int, int, int, int]] = []
    for begin, end, version, start in book.pieces(begin_ms, end_ms):
        while begin < end:
            cut = min(end, (begin // HOUR_MS + 1) * HOUR_MS)
            found.append((begin, cut, version, start))
            begin = cut
    return found


def _segment(allocation: Allocation, book: PriceBook, started: int, piece: tuple[int, int, int, int], number: int, sign: int) -> Segment:
    begin, end, version, version_start = piece
    origin = max(started, version_start)
    numerator, denominator = book.rate(allocation.shape, version)
    over = denominator * HOUR_MS
    amount = half_even(numerator * (end - origin), over) - half_even(numerator * (begin - origin), over)
    cards, parts = cards_of(allocation.shape)
    gpu_ms = (end - started) * cards // parts - (begin - started) * cards // parts
    return Segment(number, begin, end, version, sign * (end - begin), sign * gpu_ms, sign * amount)


def cards_of(shape: Shape) -> tuple[int, int]:
    """How many cards a shape holds in all, as numerator and denominator."""
    denominator = lcm(*(part.denominator for part in shape))
    return sum(part.numerator * (denominator // part.denominator) for part in shape), denominator
