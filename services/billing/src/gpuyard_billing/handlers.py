"""What billing does about what it hears.

Placement's word on intervals is the truth and its order does not matter: what comes before its commitment is kept until that comes, and a
release alone is enough for the whole bill. The nodes' ticks are evidence.
"""

from dataclasses import replace

from gpuyard_contracts.envelope import Envelope
from gpuyard_contracts.messages.node import UsageTickV1
from gpuyard_contracts.messages.placement import AllocationCommittedV1, AllocationReleasedV1, AllocationStartedV1
from gpuyard_runtime.service import Tx

from gpuyard_billing import mapping
from gpuyard_billing.domain import instants
from gpuyard_billing.domain.evidence import fold
from gpuyard_billing.domain.model import Allocation, EarlyFact, Evidence
from gpuyard_billing.posting import bill
from gpuyard_billing.store import BillingStore


def on_allocation_committed(event: Envelope[AllocationCommittedV1], tx: Tx[BillingStore]) -> None:
    """Note what is held and by whom; nothing is owed for that alone.

    Twice: the row is there; once it is final the database refuses it. Late: what was heard before is applied now, up to the whole bill.
    """
    store = tx.store
    if event.data.allocation_id in store.allocations:
        return
    row = mapping.allocation_of(event.data, tx.traceparent)
    store.allocations.put(row)
    early = store.early.drop(row.allocation_id)
    if early is None:
        return
    if instants.problem_of_interval(row.committed_ms, early.started_ms, early.ended_ms, early.said_ms) is not None:
        store.ignored["bad-interval"] += 1
        return
    if early.is_released:
        _finish(tx, row, early)
    else:
        store.allocations.put(replace(row, started_ms=early.started_ms))


def on_allocation_started(event: Envelope[AllocationStartedV1], tx: Tx[BillingStore]) -> None:
    """The interval opens.

    Twice: the same start again changes nothing. Late: a start after the release finds no live row and is forgotten by a tick.
    """
    fact = EarlyFact(
        allocation_id=event.data.allocation_id,
        started_ms=mapping.ms_of(event.data.started_at),
        ended_ms=None,
        is_released=False,
        reason="",
        said_ms=mapping.ms_of(event.time),
        heard_ms=mapping.ms_of(tx.now),
    )
    row = _live(tx, fact)
    if row is not None and row.started_ms is None:
        tx.store.allocations.put(replace(row, started_ms=fact.started_ms))


def on_allocation_released(event: Envelope[AllocationReleasedV1], tx: Tx[BillingStore]) -> None:
    """The final bill: exactly from start to end, whatever was billed before.

    Twice: the row is final and gone, and the database keeps nothing of it. Late: the end is in the event, so the bill is the same.
    """
    data = event.data
    fact = EarlyFact(
        allocation_id=data.allocation_id,
        started_ms=None if data.started_at is None else mapping.ms_of(data.started_at),
        ended_ms=mapping.ms_of(data.ended_at),
        is_released=True,
        reason=data.reason,
        said_ms=mapping.ms_of(event.time),
        heard_ms=mapping.ms_of(tx.now),
    )
    row = _live(tx, fact)
    if row is not None:
        _finish(tx, row, fact)


def on_usage_ticked(event: Envelope[UsageTickV1], tx: Tx[BillingStore]) -> None:
    """Keep the highest that each rank was ever told to have used.

    Twice and late: cumulative sums, so a repeated or an older tick is lower and changes nothing.
    """
    data = event.data
    now_ms, at_ms = mapping.ms_of(tx.now), mapping.ms_of(data.at)
    problem = instants.problem_of_tick(at_ms, now_ms)
    if problem is not None:
        tx.store.ignored[problem] += 1
        return
    confirmed_ms = min(at_ms, now_ms)
    table, boot_id = tx.store.evidence, data.boot_id
    get, put = table.get, table.put
    for held in data.held:
        told = Evidence(held.allocation_id, held.rank, boot_id, held.gpu_ms, held.held_ms, confirmed_ms)
        old = get(told[:3])
        row = fold(old, told)
        if row is not old:
            put(row)


def _live(tx: Tx[BillingStore], fact: EarlyFact) -> Allocation | None:
    """The live row that a fact is about; without one the fact is kept for its commitment. An impossible interval is dead-lettered."""
    row = tx.store.allocations.get(fact.allocation_id)
    problem = instants.problem_of_interval(None if row is None else row.committed_ms, fact.started_ms, fact.ended_ms, fact.said_ms)
    if problem is not None:
        tx.reject("bad-interval", f"the interval of {fact.allocation_id} is not billed: {problem}")
    if row is None:
        known = tx.store.early.get(fact.allocation_id)
        if known is None or not known.is_released:
            tx.store.early.put(fact)
        return None
    return None if row.is_final else row


def _finish(tx: Tx[BillingStore], row: Allocation, fact: EarlyFact) -> None:
    """Bill to the end. A start that money was already billed from stands; else the release says when it started, if it did."""
    assert fact.ended_ms is not None
    started_ms = row.started_ms if row.segments else fact.started_ms
    until_ms = fact.ended_ms if fact.started_ms is not None else (started_ms or fact.ended_ms)
    bill(tx, replace(row, started_ms=started_ms, ended_ms=fact.ended_ms, is_final=True, reason=fact.reason), until_ms)
