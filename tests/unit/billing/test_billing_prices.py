"""Which price holds when, and for which card."""

from fractions import Fraction

import pytest
from gpuyard_billing.domain.model import Part, PriceVersion
from gpuyard_billing.domain.prices import DEFAULT_BOOK, PriceBook, problem_of_prices
from gpuyard_billing.domain.shape import shape_of, share_of
from gpuyard_contracts.models import is_of_model, nearest_name


def version(number: int, valid_from_ms: int, **prices: int) -> PriceVersion:
    return PriceVersion(number, "USD", valid_from_ms, tuple(prices.items()) or (("*", number),))


def test_a_version_holds_until_a_younger_one_does() -> None:
    book = PriceBook((version(1, 0), version(2, 100), version(3, 200)))
    assert [(begin, end, number) for begin, end, number, _ in book.pieces(50, 250)] == [(50, 100, 1), (100, 200, 2), (200, 250, 3)]


def test_a_younger_version_that_begins_earlier_replaces_the_planned_one() -> None:
    book = PriceBook((version(1, 0), version(2, 500), version(3, 100)))
    assert [(begin, end, number) for begin, end, number, _ in book.pieces(0, 1000)] == [(0, 100, 1), (100, 1000, 3)]
    assert (book.version_at(99), book.version_at(100), book.version_at(700)) == (1, 3, 3)


def test_two_versions_from_the_same_instant_leave_the_younger() -> None:
    assert [piece[2] for piece in PriceBook((version(1, 0), version(2, 100), version(3, 100))).pieces(0, 300)] == [1, 3]


@pytest.mark.parametrize(
    ("model", "micros"),
    [("A100-80GB", 2_500_000), ("a100-80gb", 2_500_000), ("T4", 350_000), ("H100-80GB", 4_000_000), ("A30", 1_000_000)],
)
def test_a_card_costs_what_the_nearest_name_costs(model: str, micros: int) -> None:
    assert PriceBook((DEFAULT_BOOK,)).price_of(1, model) == micros


def test_a_name_stands_for_longer_ones_only_after_a_hyphen() -> None:
    assert is_of_model("A100-80GB", "a100")
    assert not is_of_model("A100-80GB", "A10")
    assert not is_of_model("A100", "A100-80GB")
    assert nearest_name("A100-80GB", ("A100", "A100-80GB", "*")) == "A100-80GB"
    assert nearest_name("B300", ("A100",)) is None


def test_a_book_must_price_any_card_and_each_only_once() -> None:
    assert problem_of_prices((("*", 1), ("T4", 1))) is None
    assert "'*'" in (problem_of_prices((("T4", 1),)) or "")
    assert "t4 is priced twice" in (problem_of_prices((("*", 1), ("T4", 1), ("t4", 2))) or "")


def test_a_share_costs_the_larger_of_its_compute_and_its_memory() -> None:
    assert share_of(250, 4_000, 16_000) == Fraction(1, 4)
    assert share_of(250, 6_000, 16_000) == Fraction(3, 8)
    assert share_of(250, 20_000, 16_000) == 1
    assert share_of(250, 6_000, None) == Fraction(1, 4)
    assert share_of(1000, 1, 16_000) == 1


def test_slices_of_one_model_are_one_part_of_the_shape() -> None:
    shape = shape_of([("T4", Fraction(1, 3)), ("A100", Fraction(1)), ("T4", Fraction(1, 6))])
    assert shape == (Part("A100", 1, 1), Part("T4", 1, 2))
    book = PriceBook((version(1, 0, T4=350_000, A100=2_500_000),))
    numerator, denominator = book.rate(shape, 1)
    assert Fraction(numerator, denominator) == 2_675_000
