"""Periodic duties of billing."""

from gpuyard_runtime.service import Tx

from gpuyard_billing import mapping
from gpuyard_billing.domain.evidence import confirmed_until
from gpuyard_billing.domain.model import Allocation
from gpuyard_billing.posting import bill
from gpuyard_billing.store import BillingStore

SETTLED_AT_ONCE = 2000
"""At most so many allocations are settled in one unit, so that nothing else waits long; the rest follows with the next beat."""
KEPT_MS = 10 * 60_000
"""How long evidence stays in memory after its last word, once its allocation is over."""
EARLY_START_KEPT_MS = 60 * 60_000
"""How long a start waits for its commitment: longer than any redelivery takes."""
EARLY_RELEASE_KEPT_MS = 36 * 24 * 60 * 60_000
"""How long a release waits for its commitment: longer than a stream keeps that."""


def every_settlement(tx: Tx[BillingStore], after_ms: int) -> None:
    """Bill what has run for `after_ms` since it was last billed, up to the last confirmed instant and no further."""
    now_ms = mapping.ms_of(tx.now)
    settled = 0
    for row in tx.store.allocations.values():
        if row.started_ms is None or row.is_final or now_ms - _billed(row) < after_ms:
            continue
        until_ms = confirmed_until(tx.store.evidence_of.get(row.allocation_id))
        if until_ms is not None and until_ms > _billed(row):
            bill(tx, row, until_ms)
            settled += 1
            if settled == SETTLED_AT_ONCE:
                return


def every_clearing(tx: Tx[BillingStore]) -> None:
    """Let go of evidence whose allocation is over, and of facts whose commitment never came (it came and went before them)."""
    store, now_ms = tx.store, mapping.ms_of(tx.now)
    for row in store.evidence.values():
        if row.confirmed_ms < now_ms - KEPT_MS and row.allocation_id not in store.allocations:
            store.evidence.put(row._replace(is_closed=True))
    for fact in store.early.values():
        if fact.heard_ms < now_ms - (EARLY_RELEASE_KEPT_MS if fact.is_released else EARLY_START_KEPT_MS):
            store.early.drop(fact.allocation_id)


def _billed(row: Allocation) -> int:
    return row.billed_ms if row.billed_ms is not None else (row.started_ms or 0)
