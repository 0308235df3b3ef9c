"""The nouns of billing. Instants are integer milliseconds since 1970 UTC, money is integer micro-units, intervals are half-open."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

HOUR_MS = 3_600_000
CURRENCY = "USD"
"""One currency for the whole ledger, set by the first price book."""


@dataclass(frozen=True, slots=True)
class Part:
    """How many cards of one model an allocation holds, as an exact fraction: 2/1 are two whole cards, 1/4 a quarter of one."""

    model: str
    numerator: int
    denominator: int


Shape = tuple[Part, ...]
"""What is priced; ordered by model, one part for each."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """One attempt's hold on cards and how far it is billed.

    `started_ms` None: nothing runs (yet), so nothing is owed. `billed_ms`: what lies before is in the ledger. `held_ms`, `gpu_ms` and
    `amount_micros` are the sums over its `segments` postings.
    """

    allocation_id: str
    tenant: str
    job_id: str
    attempt: int
    shape: Shape
    committed_ms: int
    started_ms: int | None = None
    ended_ms: int | None = None
    billed_ms: int | None = None
    segments: int = 0
    held_ms: int = 0
    gpu_ms: int = 0
    amount_micros: int = 0
    is_final: bool = False
    reason: str = ""
    traceparent: str | None = None


@dataclass(frozen=True, slots=True)
class EarlyFact:
    """What was heard of an allocation before its commitment: kept until that comes. `is_released`: it has ended, whether or not it ran."""

    allocation_id: str
    started_ms: int | None
    ended_ms: int | None
    is_released: bool
    reason: str
    said_ms: int
    heard_ms: int


class Evidence(NamedTuple):
    """What one node counted for one rank since its boot: the highest of each that was ever told.

    A tuple, since ten thousand of them are made in a second. `is_closed`: its allocation is long over, it may leave the memory.
    """

    allocation_id: str
    rank: int
    boot_id: str
    gpu_ms: int
    held_ms: int
    confirmed_ms: int
    is_closed: bool = False


@dataclass(frozen=True, slots=True)
class PriceVersion:
    """Prices in micro-units per whole card and hour, by model name, from `valid_from_ms` on. ``*`` is any other model."""

    version: int
    currency: str
    valid_from_ms: int
    prices: tuple[tuple[str, int], ...]
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class Balance:
    """One tenant's sums over the ledger, and the last instant for which it was billed."""

    tenant: str
    credit_micros: int = 0
    used_micros: int = 0
    billed_until_ms: int = 0


@dataclass(frozen=True, slots=True)
class Grant:
    """Credit that was given; known by the tenant and the request."""

    tenant: str
    request_id: str
    amount_micros: int


@dataclass(frozen=True, slots=True)
class Segment:
    """A priced interval within one hour and one price version. A negative `held_ms` takes back what was billed too far."""

    number: int
    begin_ms: int
    end_ms: int
    price_version: int
    held_ms: int
    gpu_ms: int
    amount_micros: int


Kind = Literal["usage", "correction", "grant"]
Account = Literal["receivable", "revenue", "credit", "granted"]
"""`receivable`: what a tenant owes for use; `revenue`: its counterpart; `credit`: what a tenant was given; `granted`: who gave it."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """Why money was booked. Its entries sum to zero."""

    transaction_id: str
    kind: Kind
    tenant: str
    job_id: str | None = None
    allocation_id: str | None = None
    segment: int | None = None
    price_version: int | None = None
    begin_ms: int | None = None
    end_ms: int | None = None
    held_ms: int = 0
    gpu_ms: int = 0
    memo: str = ""
    booked_ms: int = 0


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a transaction: debits are positive, credits negative."""

    transaction_id: str
    tenant: str
    account: Account
    amount_micros: int
    currency: str
