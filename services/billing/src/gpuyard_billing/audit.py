"""Rebuilding the money and comparing: the shell around :mod:`gpuyard_billing.domain.rebuild`.

First the ledger is read, in one snapshot, then the events from the oldest that is kept: so whatever the snapshot holds, its events are
there (or were dropped for age; then billing's own record of the interval stands in). What differs is compared once more against a younger
snapshot, together with the question whether billing has come to the release at all.
"""

import asyncio

from gpuyard_contracts.messages.asks import DifferenceV1, VerifyReplyV1

from gpuyard_billing import mapping
from gpuyard_billing.domain.model import PriceVersion
from gpuyard_billing.domain.rebuild import Comparison, Found, Told, compare, without_the_impossible
from gpuyard_billing.ports import EventSource
from gpuyard_billing.reads import LedgerReads

SHOWN_DIFFERENCES = 50


async def audit(source: EventSource, ledger: LedgerReads, versions: tuple[PriceVersion, ...]) -> VerifyReplyV1:
    """The money by the events against the money in the ledger, to the unit."""
    booked = await ledger.booked(None)
    told: dict[str, Told] = {}
    events = 0
    async for batch in source.allocation_events():
        for event in batch:
            mapping.tell(told, event)
        events += len(batch)
        await asyncio.sleep(0)  # the service goes on while this reads
    without_the_impossible(told)
    result = await asyncio.to_thread(compare, told, booked, versions)  # seconds for a long history
    if result.differences:
        differences, pending = await _second_look(result, told, ledger, versions)
        result.differences, result.pending = differences, result.pending + pending
    counts = await ledger.counts()
    wrong = [DifferenceV1(where=found.where, expected=found.expected, found=found.found) for found in result.differences]
    wrong += await ledger.contradictions()
    return VerifyReplyV1(
        is_right=not wrong,
        transactions=counts["transactions"],
        entries=counts["entries"],
        allocations=len({*told, *booked.billed_ms}),
        events=events,
        differences=tuple(wrong[:SHOWN_DIFFERENCES]),
        expected_micros=result.expected_micros,
        ledger_micros=sum(money.micros for by_version in booked.money.values() for money in by_version.values()),
        detail=_detail(result, len(wrong)),
    )


async def _second_look(
    result: Comparison, told: dict[str, Told], ledger: LedgerReads, versions: tuple[PriceVersion, ...]
) -> tuple[list[Found], int]:
    """Only those that differed, against the ledger as it is now and knowing which releases billing has handled."""
    suspects = sorted({found.allocation_id for found in result.differences})
    events = {name: told[name] for name in suspects if name in told}
    releases = [row.released_by for row in events.values() if row.released_by is not None]
    booked, handled = await ledger.booked_and_handled(suspects, releases)
    again = compare(events, booked, versions, frozenset(releases) - handled)
    return again.differences, again.pending


def _detail(result: Comparison, wrong: int) -> str:
    told: list[str] = []
    if wrong > SHOWN_DIFFERENCES:
        told.append(f"{wrong} differences in all, {SHOWN_DIFFERENCES} shown")
    if result.from_own_records:
        told.append(f"{result.from_own_records} allocations are older than the events kept and were held against billing's own intervals")
    if result.pending:
        told.append(f"{result.pending} releases are on their way and not yet settled")
    return "; ".join(told)
