"""Billing's tables: what is live in memory, and the ledger, which is only ever added to.

A final allocation leaves the memory and stays in the database. The ledger's rows are never read back here: :mod:`gpuyard_billing.reads`
answers for them, and balances are its sums, kept in the same transaction.
"""

import json
from collections import Counter
from typing import Any

from gpuyard_runtime.store import Store
from gpuyard_runtime.table import Column, Record

from gpuyard_billing.domain.model import Allocation, Balance, EarlyFact, Entry, Evidence, Grant, Part, PriceVersion, Shape, Transaction
from gpuyard_billing.domain.prices import PriceBook


def shape_json(shape: Shape) -> str:
    """A shape as JSON text: a list of [model, numerator, denominator]."""
    return json.dumps([[part.model, part.numerator, part.denominator] for part in shape])


def shape_of_json(text: str) -> Shape:
    """A shape from its JSON text."""
    return tuple(Part(model, numerator, denominator) for model, numerator, denominator in json.loads(text))


def prices_of_json(text: str) -> tuple[tuple[str, int], ...]:
    """Prices from their JSON text: a list of [model, micros]."""
    return tuple((model, micros) for model, micros in json.loads(text))


_ALLOCATION: tuple[Column[Allocation], ...] = (
    Column("allocation_id", "text", is_key=True),
    Column("tenant", "text"),
    Column("job_id", "text"),
    Column("attempt", "int4"),
    Column("shape", "jsonb", lambda row: shape_json(row.shape)),
    Column("committed_ms", "int8"),
    Column("started_ms", "int8"),
    Column("ended_ms", "int8"),
    Column("billed_ms", "int8"),
    Column("segments", "int4"),
    Column("held_ms", "int8"),
    Column("gpu_ms", "int8"),
    Column("amount_micros", "int8"),
    Column("is_final", "bool"),
    Column("reason", "text"),
    Column("traceparent", "text"),
)
_EVIDENCE: tuple[Column[Evidence], ...] = (
    Column("allocation_id", "text", is_key=True),
    Column("rank", "int4", is_key=True),
    Column("boot_id", "text", is_key=True),
    Column("gpu_ms", "int8"),
    Column("held_ms", "int8"),
    Column("confirmed_ms", "int8"),
    Column("is_closed", "bool"),
)
_EARLY: tuple[Column[EarlyFact], ...] = (
    Column("allocation_id", "text", is_key=True),
    Column("started_ms", "int8"),
    Column("ended_ms", "int8"),
    Column("is_released", "bool"),
    Column("reason", "text"),
    Column("said_ms", "int8"),
    Column("heard_ms", "int8"),
)
_PRICES: tuple[Column[PriceVersion], ...] = (
    Column("version", "int4", is_key=True),
    Column("currency", "text"),
    Column("valid_from_ms", "int8"),
    Column("prices", "jsonb", lambda row: json.dumps(row.prices)),
    Column("request_id", "text"),
)
_BALANCE: tuple[Column[Balance], ...] = (
    Column("tenant", "text", is_key=True),
    Column("credit_micros", "int8"),
    Column("used_micros", "int8"),
    Column("billed_until_ms", "int8"),
)
_GRANT: tuple[Column[Grant], ...] = (
    Column("tenant", "text", is_key=True),
    Column("request_id", "text", is_key=True),
    Column("amount_micros", "int8"),
)
_TRANSACTION: tuple[Column[Transaction], ...] = (
    Column("transaction_id", "text"),
    Column("kind", "text"),
    Column("tenant", "text"),
    Column("job_id", "text"),
    Column("allocation_id", "text"),
    Column("segment", "int4"),
    Column("price_version", "int4"),
    Column("begin_ms", "int8"),
    Column("end_ms", "int8"),
    Column("held_ms", "int8"),
    Column("gpu_ms", "int8"),
    Column("memo", "text"),
    Column("booked_ms", "int8"),
)
_ENTRY: tuple[Column[Entry], ...] = (
    Column("transaction_id", "text"),
    Column("tenant", "text"),
    Column("account", "text"),
    Column("amount_micros", "int8"),
    Column("currency", "text"),
)


def allocation_of_record(record: Record) -> Allocation:
    """An allocation from its database row."""
    fields: dict[str, Any] = dict(record)
    fields["shape"] = shape_of_json(record["shape"])
    return Allocation(**fields)


def price_version_of_record(record: Record) -> PriceVersion:
    """A price version from its database row."""
    fields: dict[str, Any] = dict(record)
    fields["prices"] = prices_of_json(record["prices"])
    return PriceVersion(**fields)


class BillingStore(Store):
    """Allocations not yet final, evidence, facts that came early, prices, balances, grants; and the ledger's journals.

    `ignored` counts evidence that was not believed, by reason. It is for /metrics alone, so it may count a unit that was undone.
    """

    def __init__(self) -> None:
        super().__init__()
        self.allocations = self.table(
            "allocations",
            lambda row: row.allocation_id,
            _ALLOCATION,
            allocation_of_record,
            keep=lambda row: not row.is_final,
            where="not is_final",
        )
        self.evidence = self.table(
            "evidence",
            lambda row: (row.allocation_id, row.rank, row.boot_id),
            _EVIDENCE,
            lambda record: Evidence(**record),
            keep=lambda row: not row.is_closed,
            where="not is_closed",
        )
        self.evidence_of = self.evidence.index(lambda row: row.allocation_id)
        self.early = self.table("early_facts", lambda row: row.allocation_id, _EARLY, lambda record: EarlyFact(**record))
        self.prices = self.table("price_versions", lambda row: row.version, _PRICES, price_version_of_record)
        self.balances = self.table("balances", lambda row: row.tenant, _BALANCE, lambda record: Balance(**record))
        self.grants = self.table("grants", lambda row: (row.tenant, row.request_id), _GRANT, lambda record: Grant(**record))
        self.transactions = self.journal("transactions", _TRANSACTION, key=lambda row: row.transaction_id)
        self.entries = self.journal("entries", _ENTRY, key=lambda row: (row.transaction_id, row.account))
        self.ignored: Counter[str] = Counter()
        self._book = PriceBook(())

    @property
    def book(self) -> PriceBook:
        """The price book as the open unit sees it."""
        versions = tuple(self.prices.values())
        if versions != self._book.versions:
            self._book = PriceBook(versions)
        return self._book

    def balance_of(self, tenant: str) -> Balance:
        """A tenant's balance; zeros for one that never used anything."""
        return self.balances.get(tenant) or Balance(tenant)
