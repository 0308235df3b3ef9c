"""The one place where money is booked: ledger, balance, the allocation's row and the event, in one unit."""

from gpuyard_runtime.service import Tx

from gpuyard_billing import mapping
from gpuyard_billing.domain import ledger
from gpuyard_billing.domain.ledger import Booking
from gpuyard_billing.domain.model import Allocation
from gpuyard_billing.domain.settle import Settled, settle
from gpuyard_billing.store import BillingStore


def book(tx: Tx[BillingStore], booking: Booking) -> None:
    """Add one transaction with its entries to the ledger."""
    transaction, entries = booking
    tx.store.transactions.add(transaction)
    tx.store.entries.add(*entries)


def bill(tx: Tx[BillingStore], allocation: Allocation, until_ms: int) -> None:
    """Bill an allocation up to an instant and say so. A final one is told even if nothing was left to bill, unless it never started."""
    store = tx.store
    settled = settle(allocation, store.book, until_ms)
    row = settled.allocation
    store.allocations.put(row)
    booked_ms = mapping.ms_of(tx.now)
    for segment in settled.segments:
        book(tx, ledger.booking_of_segment(row, segment, booked_ms))
    if settled.segments:
        highest = max(segment.end_ms for segment in settled.segments)
        store.balances.put(ledger.used(store.balance_of(row.tenant), settled.amount_micros, highest))
    if row.started_ms is not None and (settled.segments or row.is_final):
        _say(tx, settled)


def _say(tx: Tx[BillingStore], settled: Settled) -> None:
    row = settled.allocation
    last = settled.segments[-1] if settled.segments else None
    until = row.billed_ms if row.billed_ms is not None else row.committed_ms
    tx.say(
        mapping.posted_of(
            settled,
            "" if row.segments == 0 else f"use-{row.allocation_id}-{row.segments - 1}",
            tx.store.book.version_at(until) if last is None else last.price_version,
        ),
        once=f"{row.allocation_id}/{row.segments}/{'final' if row.is_final else 'interim'}",
        traceparent=None if tx.cause is not None else row.traceparent,
    )
