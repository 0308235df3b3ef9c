"""The money once more, from nothing but intervals and prices: what the ledger is held against.

On purpose this shares no code with :mod:`gpuyard_billing.domain.settle`: no segments, no running sums, no integer rounding of our own,
but one exact fraction for each allocation and price version, rounded by Python. Two ways that agree to the unit are the proof.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from gpuyard_contracts.models import nearest_name

from gpuyard_billing.domain.instants import problem_of_interval
from gpuyard_billing.domain.model import PriceVersion

HOUR = 60 * 60 * 1000
Cards = tuple[tuple[str, Fraction], ...]
"""Every slice of an allocation: its card's model and its part of that card."""
Key = tuple[str, int]
"""(allocation, price version)."""


@dataclass(slots=True)
class Told:
    """What the events tell of one allocation."""

    tenant: str = ""
    cards: Cards | None = None
    committed_ms: int | None = None
    opened_ms: int | None = None
    """The start as the start event told it."""
    started_ms: int | None = None
    """The start that counts: the release has the last word."""
    ended_ms: int | None = None
    said_ms: int = 0
    """When placement told the last of it."""
    released_by: str | None = None
    """The id of the event that ended it."""


@dataclass(frozen=True, slots=True)
class Money:
    """What one allocation costs under one price version."""

    tenant: str
    micros: int
    held_ms: int


@dataclass(frozen=True, slots=True)
class Booked:
    """What billing says of itself: the ledger's sums by allocation and version, how far each allocation is billed, which are final, and its
    own record of each interval."""

    money: Mapping[str, Mapping[int, Money]]
    billed_ms: Mapping[str, int | None]
    finals: frozenset[str]
    own: Mapping[str, Told]


@dataclass(frozen=True, slots=True)
class Found:
    """One place where the ledger is not what it should be."""

    allocation_id: str
    where: str
    expected: str
    found: str


@dataclass(slots=True)
class Comparison:
    """The whole result. `from_own_records`: allocations whose events the stream no longer keeps. `pending`: releases not yet handled."""

    differences: list[Found] = field(default_factory=list[Found])
    expected_micros: int = 0
    from_own_records: int = 0
    pending: int = 0


def without_the_impossible(events: Mapping[str, Told]) -> None:
    """Take intervals that cannot be as never told (their events were dead-lettered); what only started runs since its start event."""
    for told in events.values():
        if problem_of_interval(told.committed_ms, told.opened_ms, None, told.said_ms) is not None:
            told.opened_ms = None
        if problem_of_interval(told.committed_ms, told.started_ms, told.ended_ms, told.said_ms) is not None:
            told.released_by = None
        if told.released_by is None:
            told.started_ms, told.ended_ms = told.opened_ms, None


def money_of(told: Told, until_ms: int, versions: Iterable[PriceVersion]) -> dict[int, Money]:
    """What the interval from its start until an instant costs, by price version."""
    found: dict[int, Money] = {}
    if told.started_ms is None or told.cards is None:
        return found
    rows = list(versions)
    for version in rows:
        replaced = [other.valid_from_ms for other in rows if other.version > version.version]
        begin = max(told.started_ms, version.valid_from_ms)
        end = min([until_ms, *replaced])
        if end <= begin:
            continue
        prices = dict(version.prices)
        per_hour = sum((share * prices.get(nearest_name(model, prices) or "", 0) for model, share in told.cards), Fraction(0))
        found[version.version] = Money(told.tenant, round(per_hour * Fraction(end - begin, HOUR)), end - begin)
    return found


def compare(
    events: Mapping[str, Told], booked: Booked, versions: tuple[PriceVersion, ...], unhandled: frozenset[str] = frozenset()
) -> Comparison:
    """The ledger against the events. `unhandled`: ids of release events that billing has not come to yet."""
    result = Comparison()
    for allocation_id in sorted({*events, *booked.billed_ms, *booked.money}):
        told = events.get(allocation_id)
        if told is None or told.cards is None:
            told = booked.own.get(allocation_id, Told())
            result.from_own_records += told.cards is not None
        until = _until(allocation_id, told, booked, unhandled, result)
        expected = {} if until is None else money_of(told, until, versions)
        result.expected_micros += sum(money.micros for money in expected.values())
        found = booked.money.get(allocation_id, {})
        for version in sorted({*expected, *found}):
            nothing = Money(told.tenant, 0, 0)
            should, does = expected.get(version, nothing), found.get(version, nothing)
            if should != does:
                where = f"allocation {allocation_id}, price version {version}"
                result.differences.append(Found(allocation_id, where, _shown(should), _shown(does)))
    return result


def _until(allocation_id: str, told: Told, booked: Booked, unhandled: frozenset[str], result: Comparison) -> int | None:
    """Up to when the allocation must be billed: its end, or as far as billing says it has come where it goes on."""
    if told.released_by is None:
        return booked.billed_ms.get(allocation_id)
    is_final = allocation_id in booked.finals
    if not is_final and told.released_by in unhandled:
        result.pending += 1
        return booked.billed_ms.get(allocation_id)
    if not is_final:
        result.differences.append(Found(allocation_id, f"allocation {allocation_id}", "settled, for it was released", "not settled"))
    return told.ended_ms


def _shown(money: Money) -> str:
    return f"{money.micros} micros for {money.held_ms} ms, owed by {money.tenant or 'nobody'}"
