"""Double entry: what is booked for a segment and for a grant. Debits are positive, credits negative, each transaction sums to zero."""

from gpuyard_contracts.types import short_hash

from gpuyard_billing.domain.model import CURRENCY, Account, Allocation, Balance, Entry, Grant, Segment, Transaction

Booking = tuple[Transaction, tuple[Entry, Entry]]


def booking_of_segment(allocation: Allocation, segment: Segment, booked_ms: int) -> Booking:
    """The tenant owes the segment's amount, the platform has earned it; the other way round for what is taken back."""
    made = Transaction(
        transaction_id=f"use-{allocation.allocation_id}-{segment.number}",
        kind="usage" if segment.held_ms >= 0 else "correction",
        tenant=allocation.tenant,
        job_id=allocation.job_id,
        allocation_id=allocation.allocation_id,
        segment=segment.number,
        price_version=segment.price_version,
        begin_ms=segment.begin_ms,
        end_ms=segment.end_ms,
        held_ms=segment.held_ms,
        gpu_ms=segment.gpu_ms,
        booked_ms=booked_ms,
    )
    return made, _entries(made, "receivable", "revenue", segment.amount_micros)


def booking_of_grant(grant: Grant, memo: str, booked_ms: int) -> Booking:
    """The platform gives, the tenant's credit grows (a liability: its side is negative)."""
    grant_id = f"grant-{short_hash('grant', grant.tenant, grant.request_id)}"
    made = Transaction(grant_id, "grant", grant.tenant, memo=memo, booked_ms=booked_ms)
    return made, _entries(made, "granted", "credit", grant.amount_micros)


def _entries(made: Transaction, debit: Account, credit: Account, micros: int) -> tuple[Entry, Entry]:
    return (
        Entry(made.transaction_id, made.tenant, debit, micros, CURRENCY),
        Entry(made.transaction_id, made.tenant, credit, -micros, CURRENCY),
    )


def used(balance: Balance, micros: int, until_ms: int) -> Balance:
    """The balance after use was booked."""
    return Balance(balance.tenant, balance.credit_micros, balance.used_micros + micros, max(balance.billed_until_ms, until_ms))


def credited(balance: Balance, micros: int) -> Balance:
    """The balance after credit was booked."""
    return Balance(balance.tenant, balance.credit_micros + micros, balance.used_micros, balance.billed_until_ms)
