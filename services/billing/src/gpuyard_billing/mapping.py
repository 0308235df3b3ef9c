"""Between messages, rows and the domain: the only file that knows two of them."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

from gpuyard_contracts.envelope import Envelope
from gpuyard_contracts.messages.asks import BalanceReplyV1, PriceBookReplyV1, PriceBookV1, PriceV1
from gpuyard_contracts.messages.billing import LedgerPostedV1
from gpuyard_contracts.messages.placement import AllocationCommittedV1, AllocationReleasedV1, AllocationStartedV1

from gpuyard_billing.domain.model import CURRENCY, Allocation, Balance, PriceVersion
from gpuyard_billing.domain.rebuild import Cards, Told
from gpuyard_billing.domain.settle import Settled
from gpuyard_billing.domain.shape import shape_of, share_of

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
UNKNOWN_MODEL = "unknown"
"""Stands for a card whose model placement did not tell: priced as any other."""


def ms_of(instant: datetime) -> int:
    """Whole milliseconds since 1970 UTC, rounded down; no float on the way."""
    since = instant - _EPOCH
    return since.days * 86_400_000 + since.seconds * 1000 + since.microseconds // 1000


def instant_of(ms: int) -> datetime:
    """The instant of whole milliseconds since 1970 UTC. Raises OverflowError beyond the calendar."""
    return _EPOCH + timedelta(milliseconds=ms)


def cards_of(data: AllocationCommittedV1) -> Cards:
    """Every slice of a commitment: its card's model and its part of that card."""
    return tuple(
        (data.models.get(part.gpu_uuid, UNKNOWN_MODEL), share_of(part.milli, part.memory_mib, data.gpu_memory_mib.get(part.gpu_uuid)))
        for rank in data.ranks
        for part in rank.slices
    )


def allocation_of(data: AllocationCommittedV1, traceparent: str | None) -> Allocation:
    """The row of a fresh commitment."""
    return Allocation(
        allocation_id=data.allocation_id,
        tenant=data.tenant,
        job_id=data.job_id,
        attempt=data.attempt,
        shape=shape_of(cards_of(data)),
        committed_ms=ms_of(data.at),
        traceparent=traceparent,
    )


def posted_of(settled: Settled, transaction_id: str, price_version: int) -> LedgerPostedV1:
    """What is said of a settlement."""
    row = settled.allocation
    return LedgerPostedV1(
        tenant=row.tenant,
        job_id=row.job_id,
        allocation_id=row.allocation_id,
        transaction_id=transaction_id,
        amount_micros=settled.amount_micros,
        total_micros=row.amount_micros,
        gpu_ms=row.gpu_ms,
        currency=CURRENCY,
        price_version=price_version,
        until=instant_of(row.billed_ms or row.committed_ms),
        is_final=row.is_final,
    )


def book_reply(versions: Sequence[PriceVersion], problem: str = "") -> PriceBookReplyV1:
    """The price book as it is told, the oldest version first."""
    ordered = sorted(versions, key=lambda version: version.version)
    return PriceBookReplyV1(
        versions=tuple(
            PriceBookV1(
                version=row.version,
                currency=row.currency,
                valid_from=instant_of(row.valid_from_ms),
                prices=tuple(PriceV1(model=model, micros_per_gpu_hour=micros) for model, micros in row.prices),
            )
            for row in ordered
        ),
        problem=problem,
    )


def balance_reply(row: Balance) -> BalanceReplyV1:
    """A balance as it is told."""
    return BalanceReplyV1(
        tenant=row.tenant,
        currency=CURRENCY,
        credit_micros=row.credit_micros,
        used_micros=row.used_micros,
        balance_micros=row.credit_micros - row.used_micros,
    )


def tell(told: dict[str, Told], event: Envelope[Any]) -> None:
    """Add one event of placement to what is told of its allocation; the release has the last word on the interval."""
    data = event.data
    row = told.setdefault(data.allocation_id, Told())
    row.said_ms = max(row.said_ms, ms_of(event.time))
    row.tenant = row.tenant or data.tenant
    if isinstance(data, AllocationCommittedV1):
        row.cards, row.committed_ms = row.cards or cards_of(data), row.committed_ms or ms_of(data.at)
    elif isinstance(data, AllocationStartedV1):
        row.opened_ms = ms_of(data.started_at)
    elif isinstance(data, AllocationReleasedV1):
        row.started_ms = None if data.started_at is None else ms_of(data.started_at)
        row.ended_ms, row.released_by = ms_of(data.ended_at), event.id


def told_of(row: Allocation) -> Told:
    """Billing's own record of an allocation, for one whose events are no longer kept."""
    return Told(
        tenant=row.tenant,
        cards=tuple((part.model, Fraction(part.numerator, part.denominator)) for part in row.shape),
        committed_ms=row.committed_ms,
        started_ms=row.started_ms,
        ended_ms=row.ended_ms,
    )
