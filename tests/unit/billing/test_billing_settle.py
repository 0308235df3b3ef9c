"""Pricing intervals: exact, and the same however often it is settled."""

from gpuyard_billing.domain.model import HOUR_MS, Allocation, Part, PriceVersion
from gpuyard_billing.domain.prices import PriceBook
from gpuyard_billing.domain.settle import half_even, settle

ODD = PriceVersion(1, "USD", 0, (("*", 1_000_003),))


def allocation(shape: tuple[Part, ...] = (Part("T4", 1, 1),), started_ms: int = 0) -> Allocation:
    return Allocation("job-a-1", "acme", "job-a", 1, shape, started_ms, started_ms)


def test_halves_round_to_the_even_neighbour_on_both_sides_of_zero() -> None:
    assert [half_even(n, 2) for n in (-3, -1, 1, 3, 5)] == [-2, 0, 0, 2, 2]
    assert half_even(10**30 + 1, 2) == 5 * 10**29


def test_a_whole_hour_costs_exactly_the_hourly_price() -> None:
    settled = settle(allocation(), PriceBook((ODD,)), HOUR_MS)
    assert settled.allocation.amount_micros == 1_000_003
    assert settled.allocation.held_ms == 3_600_000


def test_segments_are_cut_at_every_utc_hour() -> None:
    begin = HOUR_MS - 1000
    settled = settle(allocation(started_ms=begin), PriceBook((ODD,)), 2 * HOUR_MS + 1000)
    assert [(s.begin_ms, s.end_ms) for s in settled.segments] == [
        (begin, HOUR_MS),
        (HOUR_MS, 2 * HOUR_MS),
        (2 * HOUR_MS, 2 * HOUR_MS + 1000),
    ]
    assert [s.number for s in settled.segments] == [0, 1, 2]


def test_a_millisecond_at_a_time_costs_what_it_costs_at_once() -> None:
    """A milli-second of this card is 0.277… micro-units: rounded one by one nothing would ever be owed."""
    book = PriceBook((PriceVersion(1, "USD", 0, (("*", 1_000),)),))
    row = allocation()
    for ms in range(1, 10_001):
        row = settle(row, book, ms).allocation
    assert row.amount_micros == settle(allocation(), book, 10_000).allocation.amount_micros == 3


def test_each_price_version_is_charged_for_its_own_time() -> None:
    dearer = PriceVersion(2, "USD", HOUR_MS // 2, (("*", 2_000_000),))
    cheap = PriceVersion(1, "USD", 0, (("*", 1_000_000),))
    settled = settle(allocation(), PriceBook((cheap, dearer)), HOUR_MS)
    assert [(s.price_version, s.amount_micros) for s in settled.segments] == [(1, 500_000), (2, 1_000_000)]


def test_what_was_billed_too_far_is_taken_back_to_the_unit() -> None:
    book = PriceBook((ODD,))
    ahead = settle(allocation(), book, HOUR_MS + 777).allocation
    back = settle(ahead, book, HOUR_MS - 333)
    assert [s.held_ms for s in back.segments] == [-333, -777]
    assert back.allocation.amount_micros == settle(allocation(), book, HOUR_MS - 333).allocation.amount_micros
    assert back.allocation.gpu_ms == HOUR_MS - 333


def test_gpu_time_counts_cards_and_shares_and_rounds_down_once() -> None:
    third = (Part("A100-80GB", 1, 3), Part("T4", 2, 1))
    row = allocation(third)
    for until in (1, 2, 5, 1000):
        row = settle(row, PriceBook((ODD,)), until).allocation
    assert row.gpu_ms == 1000 * 7 // 3


def test_what_never_started_is_not_billed() -> None:
    row = Allocation("job-a-1", "acme", "job-a", 1, (Part("T4", 1, 1),), 0)
    assert settle(row, PriceBook((ODD,)), HOUR_MS).segments == ()
