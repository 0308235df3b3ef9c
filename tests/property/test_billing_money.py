"""Laws of money: delivery does not matter, the ledger balances, two ways of computing agree."""

from fractions import Fraction
from itertools import pairwise
from random import Random
from typing import Any

from gpuyard_billing.domain.model import Allocation, Part, PriceVersion
from gpuyard_billing.domain.prices import PriceBook
from gpuyard_billing.domain.rebuild import Told, money_of
from gpuyard_billing.domain.settle import settle
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.billing.billing_world import committed, harness, ledger_sum, released, started, ticked

DAY = 86_400_000
deterministic = settings(derandomize=True, max_examples=60, deadline=None, database=None)

parts = st.builds(Part, st.sampled_from(["A100-80GB", "T4", "X"]), st.integers(1, 64), st.integers(1, 1000))
shapes = st.lists(parts, min_size=1, max_size=3, unique_by=lambda part: part.model).map(tuple)
price_lists = st.fixed_dictionaries({"*": st.integers(0, 10**9), "T4": st.integers(0, 10**9)}).map(lambda found: tuple(found.items()))
books = st.lists(st.tuples(st.integers(0, 3 * DAY), price_lists), min_size=0, max_size=4).map(
    lambda rows: (
        PriceVersion(1, "USD", 0, (("*", 1_234_567),)),
        *(PriceVersion(number, "USD", begin, prices) for number, (begin, prices) in enumerate(rows, 2)),
    )
)
instants = st.integers(0, 2 * DAY)


@deterministic
@given(shape=shapes, versions=books, begin=instants, stops=st.lists(instants, min_size=1, max_size=8))
def test_any_way_of_settling_costs_what_the_interval_costs(
    shape: tuple[Part, ...], versions: tuple[PriceVersion, ...], begin: int, stops: list[int]
) -> None:
    """However often, how far ahead or back it is settled in between, the end alone decides, by version and to the unit."""
    row = Allocation("a", "acme", "job", 1, shape, begin, begin)
    book = PriceBook(versions)
    sums: dict[int, int] = {}
    for stop in stops:
        settled = settle(row, book, begin + stop)
        row = settled.allocation
        for segment in settled.segments:
            sums[segment.price_version] = sums.get(segment.price_version, 0) + segment.amount_micros
    cards = tuple((part.model, Fraction(part.numerator, part.denominator)) for part in shape)
    expected = money_of(Told("acme", cards, begin, begin, begin, begin + stops[-1]), begin + stops[-1], versions)
    assert {version: micros for version, micros in sums.items() if micros} == {
        version: money.micros for version, money in expected.items() if money.micros
    }
    assert row.held_ms == stops[-1]
    assert row.gpu_ms == sum((share for _, share in cards), Fraction(0)) * stops[-1] // 1


@deterministic
@given(versions=books, begin=instants, length=st.integers(1, 2 * DAY))
def test_segments_cover_the_interval_without_gap_or_overlap(versions: tuple[PriceVersion, ...], begin: int, length: int) -> None:
    """Each lies within one UTC hour and one price version."""
    row = Allocation("a", "acme", "job", 1, (Part("T4", 1, 1),), begin, begin)
    book = PriceBook(versions)
    segments = settle(row, book, begin + length).segments
    assert segments[0].begin_ms == begin
    assert segments[-1].end_ms == begin + length
    assert all(before.end_ms == after.begin_ms for before, after in pairwise(segments))
    assert all(segment.begin_ms // 3_600_000 == (segment.end_ms - 1) // 3_600_000 for segment in segments)
    assert all(book.version_at(segment.begin_ms) == book.version_at(segment.end_ms - 1) == segment.price_version for segment in segments)


@deterministic
@given(seed=st.integers(0, 2**32), ends=st.lists(st.integers(0, 7_200_000), min_size=1, max_size=4), milli=st.integers(1, 1000))
def test_money_does_not_depend_on_delivery(seed: int, ends: list[int], milli: int) -> None:
    """Any order, repetition or batching of the same events, with ticks and settlements in between, costs the same, to the unit."""
    plain, shaken = harness(), harness()
    random = Random(seed)
    events: list[Any] = []
    for number, end in enumerate(ends):
        name = f"job{number}"
        events += [
            committed(name, milli=milli),
            started(name),
            ticked(name, ms=end // 3),
            ticked(name, ms=end // 2),
            released(name, end=end),
        ]
    plain.clock.advance(7_200)
    shaken.clock.advance(7_200)
    plain.feed(*events)
    envelopes = [shaken.envelope(event) for event in events] * 2
    random.shuffle(envelopes)
    while envelopes:
        size = random.randint(1, 5)
        batch, envelopes = envelopes[:size], envelopes[size:]
        shaken.feed(*batch)
        shaken.tick("settlement")
    assert ledger_sum(shaken, "receivable") == ledger_sum(plain, "receivable")
    assert ledger_sum(shaken, "revenue") == -ledger_sum(plain, "receivable")
    assert shaken.store.balance_of("acme").used_micros == plain.store.balance_of("acme").used_micros
    assert len(shaken.store.allocations) == 0
