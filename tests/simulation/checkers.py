"""What must hold after every step: INV-1…10 of ``docs/failure.md``.

The checkers share no code with what they check. They keep their own books from what was committed and published, and hold them against
the committed rows and against what truly runs on the machines: :mod:`.holds`, :mod:`.lives`, :mod:`.truth`, and here the ledger and the
bus. What must hold in the end only is in :mod:`.endings`.
"""

from typing import Any

from gpuyard_contracts.envelope import Envelope
from gpuyard_contracts.messages.placement import (
    AllocationCommittedV1,
    AllocationRefusedV1,
    AllocationReleasedV1,
    AllocationStartedV1,
)

from tests.simulation.holds import Holds
from tests.simulation.lives import Lives
from tests.simulation.record import Record, Stored, must
from tests.simulation.truth import Truth


class Ledger:
    """INV-7 after each step: every transaction is whole and sums to zero, every segment is there once, balances are sums of the ledger."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.transactions = 0
        self.entries = 0
        self.by_transaction: dict[str, list[int]] = {}
        self.segments: set[tuple[str, int]] = set()
        self.owed: dict[str, int] = {}

    def check(self) -> None:
        """Take in what was booked since the last look."""
        entries = self.record.journal("billing", "entries")
        transactions = self.record.journal("billing", "transactions")
        if len(entries) == self.entries and len(transactions) == self.transactions:
            return
        for entry in entries[self.entries :]:
            self.by_transaction.setdefault(entry.transaction_id, []).append(entry.amount_micros)
            if entry.account == "receivable":
                self.owed[entry.tenant] = self.owed.get(entry.tenant, 0) + entry.amount_micros
        for row in transactions[self.transactions :]:
            amounts = self.by_transaction.get(row.transaction_id, [])
            must(len(amounts) >= 2 and sum(amounts) == 0, "INV-7", f"{row.transaction_id} has {amounts}")
            if row.kind != "grant":
                must((row.allocation_id, row.segment) not in self.segments, "INV-7", f"segment {row.segment} of {row.allocation_id} twice")
                self.segments.add((row.allocation_id, row.segment))
        must(len(self.by_transaction) == len(transactions), "INV-7", "entries without their transaction")
        self.entries, self.transactions = len(entries), len(transactions)
        balances = {tenant: row.used_micros for tenant, row in self.record.rows("billing", "balances").items()}
        for tenant, micros in self.owed.items():
            must(balances.get(tenant, 0) == micros, "INV-7", f"{tenant}'s balance is {balances.get(tenant)}, the ledger says {micros}")


class Bus:
    """INV-10 after each step: what a service publishes, it has committed; one thing has one id."""

    ONCE = (AllocationCommittedV1, AllocationStartedV1, AllocationReleasedV1, AllocationRefusedV1)

    def __init__(self, record: Record) -> None:
        self.record = record
        self.ids: dict[tuple[str, str], str] = {}

    def told(self, event: Envelope[Any]) -> None:
        """What happens once in an allocation's life is told under one id."""
        if isinstance(event.data, self.ONCE):
            key = (event.type, event.data.allocation_id)
            must(self.ids.setdefault(key, event.id) == event.id, "INV-10", f"{key} is told under two ids")

    def published(self, stream: str, message: Stored) -> None:
        """A message has come onto a stream."""
        committed = self.record.committed_ids.get(message.source)
        if message.source in self.record.world.databases:
            is_committed = committed is not None and message.event_id in committed
            must(is_committed, "INV-10", f"{message.source} published {message.event_id} on {message.subject}, and committed no such thing")


class Checkers:
    """All of them. :meth:`check` after every step."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.holds = Holds(record)
        self.lives = Lives(record)
        self.truth = Truth(record, self.holds)
        self.ledger = Ledger(record)
        self.bus = Bus(record)

    def check(self) -> None:
        """Assert what must always hold. Raises Violation."""
        said, published = self.record.look()
        for service, event in said:
            if service == "placement":
                self.bus.told(event)
                self.truth.told(event.data)
                self.holds.told(event)
            elif service == "scheduler":
                self.lives.told(event)
                self.lives.check_rejection(event, self.holds.whole_since)
        for stream, message in published:
            self.bus.published(stream, message)
        if any(service == "placement" for service, _ in said):
            self.holds.check()
        self.lives.check()
        self.lives.check_holds(self.holds.live)
        self.truth.check()
        self.ledger.check()
        failures = self.record.world.failures
        must(not failures, "no-crash", lambda: f"a handler failed: {failures[0]!r}")
