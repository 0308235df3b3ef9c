"""Holding a ledger against the events."""

from fractions import Fraction

from gpuyard_billing.domain.model import PriceVersion
from gpuyard_billing.domain.rebuild import Booked, Comparison, Money, Told, compare, money_of, without_the_impossible

HOUR = 3_600_000
BOOK = (PriceVersion(1, "USD", 0, (("*", 1_000_000),)), PriceVersion(2, "USD", HOUR, (("*", 2_000_000),)))


def told(started_ms: int | None = 0, ended_ms: int | None = 2 * HOUR) -> Told:
    return Told("acme", (("T4", Fraction(1)),), 0, 0, started_ms, ended_ms, HOUR * 3, None if ended_ms is None else "event")


def booked(first: int = 1_000_000, second: int = 2_000_000, *, tenant: str = "acme", is_final: bool = True) -> Booked:
    money = {"a": {1: Money(tenant, first, HOUR), 2: Money(tenant, second, HOUR)}}
    return Booked(money, {"a": 2 * HOUR}, frozenset({"a"} if is_final else ()), {})


def differences(result: Comparison) -> list[str]:
    return [found.where for found in result.differences]


def test_an_interval_costs_one_rounded_amount_for_each_version() -> None:
    assert money_of(told(), 2 * HOUR, BOOK) == {1: Money("acme", 1_000_000, HOUR), 2: Money("acme", 2_000_000, HOUR)}


def test_a_ledger_that_says_what_the_events_say_is_right() -> None:
    result = compare({"a": told()}, booked(), BOOK)
    assert result.differences == []
    assert result.expected_micros == 3_000_000


def test_a_single_unit_too_much_is_found() -> None:
    assert differences(compare({"a": told()}, booked(second=2_000_001), BOOK)) == ["allocation a, price version 2"]


def test_units_moved_between_versions_are_found_though_the_sum_is_right() -> None:
    assert len(compare({"a": told()}, booked(1_000_001, 1_999_999), BOOK).differences) == 2


def test_money_booked_on_another_tenant_is_found() -> None:
    assert len(compare({"a": told()}, booked(tenant="beta"), BOOK).differences) == 2


def test_a_release_that_was_handled_and_not_settled_is_found() -> None:
    assert "allocation a" in differences(compare({"a": told()}, Booked({}, {}, frozenset(), {}), BOOK))


def test_a_release_that_billing_has_not_come_to_is_pending_and_no_difference() -> None:
    found = Booked({"a": {1: Money("acme", 1_000_000, HOUR)}}, {"a": HOUR}, frozenset(), {})
    result = compare({"a": told()}, found, BOOK, frozenset({"event"}))
    assert (result.differences, result.pending) == ([], 1)


def test_money_for_an_allocation_that_no_event_knows_is_found() -> None:
    assert len(compare({}, booked(), BOOK).differences) == 2


def test_where_events_are_no_longer_kept_billings_own_interval_stands_in_and_is_counted() -> None:
    own = Booked(booked(first=999_999).money, {"a": 2 * HOUR}, frozenset({"a"}), {"a": told()})
    result = compare({}, own, BOOK)
    assert result.from_own_records == 1
    assert differences(result) == ["allocation a, price version 1"]


def test_what_still_runs_is_compared_as_far_as_it_is_billed() -> None:
    found = Booked({"a": {1: Money("acme", 500_000, HOUR // 2)}}, {"a": HOUR // 2}, frozenset(), {})
    assert compare({"a": told(ended_ms=None)}, found, BOOK).differences == []


def test_an_impossible_release_counts_as_never_told() -> None:
    events = {"a": told(started_ms=5, ended_ms=4)}
    without_the_impossible(events)
    assert events["a"] == told(ended_ms=None)
    assert compare(events, Booked({}, {"a": None}, frozenset(), {}), BOOK).differences == []


def test_an_impossible_start_counts_as_never_told() -> None:
    events = {"a": told(ended_ms=None)}
    events["a"].opened_ms = HOUR * 4
    without_the_impossible(events)
    assert events["a"].started_ms is None
