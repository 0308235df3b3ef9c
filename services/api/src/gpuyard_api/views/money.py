"""Money as it is seen over HTTP: billing's own answers, with examples. Amounts are whole micro-units of the currency."""

from typing import Annotated, Any

from gpuyard_contracts.messages.asks import (
    BalanceReplyV1,
    EntriesReplyV1,
    PriceBookReplyV1,
    PriceV1,
    UsageReplyV1,
    VerifyReplyV1,
)
from gpuyard_contracts.types import Instant, Line
from pydantic import ConfigDict, Field

from gpuyard_api.views.shapes import AT, JOB, TENANT, Answer, Body, example

_ROW: dict[str, Any] = {
    "tenant": TENANT,
    "job_id": JOB,
    "allocation_id": f"{JOB}-1",
    "models": ["A100-80GB"],
    "started_at": AT,
    "billed_until": "2030-01-31T13:00:00Z",
    "is_final": True,
    "held_ms": 3600000,
    "gpu_ms": 7200000,
    "evidence_gpu_ms": 7199000,
    "amount_micros": 5000000,
}
_BOOK: dict[str, Any] = {
    "version": 1,
    "currency": "EUR",
    "valid_from": AT,
    "prices": [{"model": "A100-80GB", "micros_per_gpu_hour": 2500000}, {"model": "*", "micros_per_gpu_hour": 1000000}],
}


class UsageView(UsageReplyV1):
    """What was used: a row for each attempt, with the sum of what was asked for."""

    model_config = ConfigDict(
        json_schema_extra=example(rows=[_ROW], currency="EUR", total_micros=5000000, total_gpu_ms=7200000, next_cursor=None)
    )


class CostView(Answer):
    """What a job has cost so far. `is_final`: nothing more will come of it but corrections."""

    model_config = ConfigDict(
        frozen=True,
        json_schema_extra=example(job_id=JOB, currency="EUR", total_micros=5000000, total_gpu_ms=7200000, is_final=True, rows=[_ROW]),
    )

    job_id: str
    currency: str
    total_micros: int
    total_gpu_ms: int
    is_final: bool
    rows: list[dict[str, Any]]


class BalanceView(BalanceReplyV1):
    """What a tenant was granted, has used and has left."""

    model_config = ConfigDict(
        json_schema_extra=example(tenant=TENANT, currency="EUR", credit_micros=100000000, used_micros=5000000, balance_micros=95000000)
    )


class CreditBody(Body):
    """Credit for a tenant."""

    model_config = ConfigDict(frozen=True, extra="forbid", json_schema_extra=example(amount_micros=100000000, reason="contract 2030-17"))

    amount_micros: Annotated[int, Field(ge=1, le=10**15, strict=True)]
    reason: Line


class EntriesView(EntriesReplyV1):
    """Entries in the order they were booked; a transaction's entries sum to zero."""

    model_config = ConfigDict(
        json_schema_extra=example(
            entries=[
                {
                    "entry_id": 1,
                    "transaction_id": "seg-…",
                    "kind": "usage",
                    "tenant": TENANT,
                    "account": "tenant:acme",
                    "amount_micros": -5000000,
                    "currency": "EUR",
                    "job_id": JOB,
                    "allocation_id": f"{JOB}-1",
                    "price_version": 1,
                    "period_start": AT,
                    "period_end": "2030-01-31T13:00:00Z",
                    "booked_at": "2030-01-31T13:00:01Z",
                    "memo": "",
                }
            ],
            next_cursor=None,
        )
    )


class VerifyView(VerifyReplyV1):
    """The money, rebuilt from the events and compared to the unit."""

    model_config = ConfigDict(
        json_schema_extra=example(
            is_right=True,
            transactions=12,
            entries=24,
            allocations=9,
            events=31,
            differences=[],
            expected_micros=5000000,
            ledger_micros=5000000,
            detail="",
        )
    )


class PricesView(PriceBookReplyV1):
    """All versions of the price book, the oldest first."""

    model_config = ConfigDict(json_schema_extra=example(versions=[_BOOK], problem=""))


class PricesBody(Body):
    """A new version of the price book: prices of whole cards for one hour.

    Model ``*`` is any other; without `valid_from` it holds from now.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", json_schema_extra=example(prices=_BOOK["prices"]))

    prices: Annotated[tuple[PriceV1, ...], Field(min_length=1, max_length=1000)]
    valid_from: Instant | None = None
