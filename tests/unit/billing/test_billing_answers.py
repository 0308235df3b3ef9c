"""Prices set, credit given, balances read."""

from datetime import datetime
from typing import Any

import pytest
from gpuyard_contracts.messages.asks import BalanceAskV1, GrantCreditAskV1, PriceBookAskV1, PriceV1, SetPricesAskV1, VerifyAskV1
from gpuyard_runtime.faults import Refused

from tests.unit.billing.billing_world import HOUR_MS, T4_HOUR, after, committed, harness, ledger_sum, released


def prices(request_id: str = "r1", valid_from: datetime | None = None, **given: int) -> SetPricesAskV1:
    book = {"*": 1_000_000, **given}
    return SetPricesAskV1(
        request_id=request_id,
        valid_from=valid_from,
        prices=tuple(PriceV1(model=model, micros_per_gpu_hour=micros) for model, micros in book.items()),
    )


def grant(amount: int = 5_000_000, request_id: str = "g1", tenant: str = "acme") -> GrantCreditAskV1:
    return GrantCreditAskV1(tenant=tenant, request_id=request_id, amount_micros=amount, reason="welcome")


def test_a_fresh_installation_has_a_price_book_and_keeps_it_over_a_restart() -> None:
    h = harness()
    h.restart()
    (version,) = h.ask(PriceBookAskV1()).versions
    assert version.version == 1
    assert {price.model for price in version.prices} >= {"A100-80GB", "H100", "T4", "*"}


def test_new_prices_hold_from_their_instant_and_split_what_runs() -> None:
    h = harness()
    assert h.ask(prices(valid_from=after(HOUR_MS // 2), T4=700_000)).problem == ""
    h.feed(committed(), released())
    assert ledger_sum(h, "receivable") == T4_HOUR // 2 + 350_000
    assert [row.price_version for row in h.journal("transactions")] == [1, 2]


def test_prices_cannot_begin_in_time_that_is_billed_already() -> None:
    h = harness()
    h.feed(committed(), released())
    reply = h.ask(prices(valid_from=after(HOUR_MS - 1)))
    assert "is billed already" in reply.problem
    assert len(reply.versions) == 1
    assert h.ask(prices(valid_from=after(HOUR_MS))).problem == ""


def test_prices_without_an_instant_begin_now_but_never_in_billed_time() -> None:
    h = harness(0)
    h.feed(committed(), released(end=200_000))  # its clock is ahead of this one
    assert h.ask(prices()).versions[-1].valid_from == after(200_000)


def test_the_same_request_sets_prices_once() -> None:
    h = harness()
    h.ask(prices(T4=1))
    assert len(h.ask(prices(T4=1)).versions) == 2


def test_a_book_that_leaves_cards_unpriced_is_not_taken() -> None:
    h = harness()
    reply = h.ask(SetPricesAskV1(request_id="r1", prices=(PriceV1(model="T4", micros_per_gpu_hour=1),)))
    assert "'*'" in reply.problem


def test_credit_is_granted_once_for_each_tenant_and_request() -> None:
    h = harness()
    h.ask(grant())
    h.ask(grant())
    h.ask(grant(tenant="beta"))
    assert h.ask(BalanceAskV1(tenant="acme")).credit_micros == 5_000_000
    assert ledger_sum(h, "credit") == -5_000_000
    assert ledger_sum(h, "credit", "beta") == -5_000_000


def test_a_request_id_that_granted_another_amount_is_refused() -> None:
    h = harness()
    h.ask(grant())
    with pytest.raises(Refused, match="request-id-taken"):
        h.ask(grant(6_000_000))
    assert h.ask(BalanceAskV1(tenant="acme")).credit_micros == 5_000_000


@pytest.mark.parametrize("request_id", ["", "with space", "nul\x00", "x" * 129])
def test_a_request_id_that_no_store_could_keep_is_refused(request_id: str) -> None:
    h = harness()
    with pytest.raises(Refused, match="request_id"):
        h.ask(grant(request_id=request_id))


def test_the_balance_is_what_was_granted_less_what_was_used() -> None:
    h = harness()
    h.ask(grant())
    h.feed(committed(), released())
    found = h.ask(BalanceAskV1(tenant="acme"))
    assert (found.credit_micros, found.used_micros, found.balance_micros) == (5_000_000, T4_HOUR, 5_000_000 - T4_HOUR)
    assert h.ask(BalanceAskV1(tenant="nobody")).balance_micros == 0


def test_every_transaction_sums_to_zero() -> None:
    h = harness()
    h.ask(grant())
    h.feed(committed(), released(end=4 * HOUR_MS + 7))
    sums: dict[Any, int] = {}
    for row in h.journal("entries"):
        sums[row.transaction_id] = sums.get(row.transaction_id, 0) + row.amount_micros
    assert len(sums) == 6
    assert set(sums.values()) == {0}


def test_without_a_database_the_ledger_is_said_to_be_out_of_reach() -> None:
    with pytest.raises(Refused, match="unavailable"):
        harness().ask(VerifyAskV1())
