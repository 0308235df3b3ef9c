"""What must hold after every step: INV-1…10 of ``docs/failure.md``.

The checkers share no code with what they check. They keep their own books from what was committed and published, and hold them against the
committed rows and against what truly runs on the machines. Each is told what is new and raises Violation. What must hold in the end only is
in :mod:`tests.simulation.endings`.
"""

from datetime import datetime
from typing import Any

from gpuyard_contracts.envelope import Envelope
from gpuyard_contracts.messages.placement import (
    AllocationCommittedV1,
    AllocationRefusedV1,
    AllocationReleasedV1,
    AllocationStartedV1,
    NodeCordonedV1,
    NodeStateV1,
    NodeStatusChangedV1,
    NodeUncordonedV1,
)
from gpuyard_contracts.messages.scheduler import (
    JobEndedV1,
    JobPlacingV1,
    JobQueuedV1,
    JobRejectedV1,
    JobRequeuedV1,
    JobRunningV1,
    JobStartingV1,
    PlaceV1,
)

from tests.simulation.machine import Process
from tests.simulation.record import Record, Stored, Violation, must
from tests.simulation.tenants import QUOTAS, could_run

Part = tuple[str, str, int]
"""Card, allocation, rank."""


class Capacity:
    """INV-1, 2, 4, 8, 9: who holds what, by placement's own word, against its rows, the cards and the quotas."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.memory = {card.uuid: card.memory_mib for agent in record.agents for card in agent.machine.cards}
        self.homes = {card.uuid: agent.node_id for agent in record.agents for card in agent.machine.cards}
        self.live: dict[str, AllocationCommittedV1] = {}
        self.past: dict[str, int] = {}
        """Job → the highest attempt that was refused or released."""
        self.known: set[str] = set()
        self.cordons: dict[str, set[tuple[str, str]]] = {}
        self.status: dict[str, str] = {}
        self.states: dict[str, NodeStateV1] = {}
        self.held: dict[Part, tuple[int, int]] = {}
        self.whole_since: datetime | None = None
        """Since when every kind of card of every node has been known."""

    def told(self, event: Envelope[Any]) -> None:
        """Placement committed to saying this."""
        data = event.data
        if event.id in self.known:
            return
        self.known.add(event.id)
        if isinstance(data, AllocationCommittedV1):
            self._commit(data)
        elif isinstance(data, AllocationReleasedV1):
            self._release(data)
        elif isinstance(data, AllocationRefusedV1):
            must(data.allocation_id not in self.live, "INV-2", f"{data.allocation_id} is refused and held")
            self.past[data.job_id] = max(data.attempt, self.past.get(data.job_id, 0))
        elif isinstance(data, NodeCordonedV1):
            self.cordons.setdefault(data.node_id, set()).add((data.cordon.holder, data.cordon.gpu_uuid or ""))
        elif isinstance(data, NodeUncordonedV1):
            self.cordons.get(data.node_id, set()).discard((data.holder, data.gpu_uuid or ""))
        elif isinstance(data, NodeStatusChangedV1):
            self.status[data.node_id] = data.status
        elif isinstance(data, NodeStateV1):
            known = self.states.get(data.node_id)
            must(known is None or data.version > known.version, "INV-4", f"two states of {data.node_id} under version {data.version}")
            self.states[data.node_id] = data
            is_whole = len(self.states) == len(self.record.agents) and all(state.facts.gpus for state in self.states.values())
            self.whole_since = (self.whole_since or event.time) if is_whole else None

    def _commit(self, data: AllocationCommittedV1) -> None:
        name = data.allocation_id
        others = [found.allocation_id for found in self.live.values() if found.job_id == data.job_id]
        must(not others, "INV-6", f"{name} is committed while {others} of the same job holds slices")
        must(data.attempt > self.past.get(data.job_id, 0), "INV-6", f"{name} comes back: attempt {self.past.get(data.job_id)} is over")
        asked = self.record.tenants.asked.get(data.job_id)
        if asked is not None and asked.spec is not None:
            shape = [len({part.gpu_uuid for part in rank.slices}) for rank in data.ranks]
            must(shape == [asked.spec.gpu.count] * asked.spec.ranks, "INV-2", f"{name} was asked for {asked.spec.gpu}, it holds {shape}")
        for rank in data.ranks:
            self._must_be_open(name, rank.node_id, [part.gpu_uuid for part in rank.slices])
            for part in rank.slices:
                self.held[part.gpu_uuid, name, rank.rank] = (part.milli, part.memory_mib)
        self.live[name] = data
        for rank in data.ranks:
            for part in rank.slices:
                self._must_fit(part.gpu_uuid)
        self._must_be_within_quota(data.tenant)

    def _must_be_open(self, name: str, node_id: str, uuids: list[str]) -> None:
        cordons = [(holder, uuid) for holder, uuid in self.cordons.get(node_id, ()) if uuid == "" or uuid in uuids]
        must(not cordons, "INV-9", f"{name} is committed to {node_id}, which is cordoned: {cordons}")
        status = self.status.get(node_id, "ready")
        must(status == "ready", "INV-9", f"{name} is committed to {node_id}, which is {status}")
        must(all(self.homes.get(uuid) == node_id for uuid in uuids), "INV-1", f"{name} holds cards that {node_id} does not have")

    def _must_fit(self, uuid: str) -> None:
        parts = [amount for (card, _, _), amount in self.held.items() if card == uuid]
        milli, memory = sum(part[0] for part in parts), sum(part[1] for part in parts)
        is_shared = len(parts) > 1 and any(part[0] == 1000 for part in parts)
        fits = milli <= 1000 and memory <= self.memory[uuid] and not is_shared
        must(fits, "INV-1", f"{uuid} is held twice: {sorted(key[1:] for key in self.held if key[0] == uuid)}")

    def _must_be_within_quota(self, tenant: str) -> None:
        milli, memory = QUOTAS.get(tenant, (None, None))
        mine = [part for found in self.live.values() if found.tenant == tenant for rank in found.ranks for part in rank.slices]
        used = sum(part.milli for part in mine), sum(part.memory_mib for part in mine)
        within = (milli is None or used[0] <= milli) and (memory is None or used[1] <= memory)
        must(within, "INV-8", f"{tenant} uses {used} of {(milli, memory)}")

    def _release(self, data: AllocationReleasedV1) -> None:
        must(data.allocation_id in self.live, "INV-4", f"{data.allocation_id} is released and was not held")
        found = self.live.pop(data.allocation_id)
        self.past[data.job_id] = max(data.attempt, self.past.get(data.job_id, 0))
        for rank in found.ranks:
            for part in rank.slices:
                self.held.pop((part.gpu_uuid, data.allocation_id, rank.rank), None)

    def check(self) -> None:
        """The rows are what was said."""
        rows = {key: (row.milli, row.memory_mib) for key, row in self.record.rows("placement", "slices_held").items()}
        if rows != self.held:
            missing = sorted(set(self.held) - set(rows))
            must(not missing, "INV-2", f"committed and not held: {missing}")
            must(False, "INV-4", f"held and not committed: {sorted(set(rows) - set(self.held))}")
        for node_id, state in self.states.items():
            shown = {(part.gpu_uuid, hold.allocation_id, hold.rank) for hold in state.holds for part in hold.slices}
            true = {key for key in self.held if self.homes[key[0]] == node_id}
            if shown != true:
                raise Violation("INV-4", f"{node_id} shows {sorted(shown)}, held are {sorted(true)}")


class Jobs:
    """INV-3 and the jobs' side of INV-6: every job moves forward, ends once and stays ended; placement holds only what is wanted."""

    KNOWN_SECONDS = 20.0

    def __init__(self, record: Record) -> None:
        self.record = record
        self.queued: set[str] = set()
        self.rejected: set[str] = set()
        self.ended: dict[str, JobEndedV1] = {}
        self.plans: dict[str, dict[int, PlaceV1]] = {}
        self.rows: dict[str, Any] = {}
        self.known: set[str] = set()

    def told(self, event: Envelope[Any]) -> None:
        """The scheduler committed to saying this."""
        data = event.data
        if event.id in self.known:
            return
        self.known.add(event.id)
        if isinstance(data, JobQueuedV1):
            must(data.job_id not in self.queued, "INV-3", f"{data.job_id} is queued as a new job twice")
            self.queued.add(data.job_id)
        elif isinstance(data, JobRejectedV1):
            must(data.job_id not in self.queued, "INV-3", f"{data.job_id} is rejected ({data.reason}) after it was accepted")
            self.rejected.add(data.job_id)
        elif isinstance(data, JobEndedV1):
            must(data.job_id in self.queued, "INV-3", f"{data.job_id} ended and was never accepted")
            must(data.job_id not in self.ended, "INV-3", f"{data.job_id} ends twice")
            self.ended[data.job_id] = data
        elif isinstance(data, JobPlacingV1 | JobStartingV1 | JobRunningV1 | JobRequeuedV1):
            must(data.job_id not in self.ended, "INV-3", f"{data.TYPE} after the end of {data.job_id}")
        elif isinstance(data, PlaceV1):
            self._plan(data)

    def _plan(self, data: PlaceV1) -> None:
        must(data.job_id not in self.ended, "INV-3", f"{data.job_id} is planned after its end")
        plans = self.plans.setdefault(data.job_id, {})
        same = plans.get(data.attempt)
        must(same is None or same.ranks == data.ranks, "INV-6", f"two plans for attempt {data.attempt} of {data.job_id}")
        must(
            data.attempt >= max(plans, default=0),
            "INV-6",
            f"attempt {data.attempt} of {data.job_id} is planned after {max(plans, default=0)}",
        )
        plans[data.attempt] = data

    def check(self) -> None:
        """Rows of ended jobs never change; who has ended has a reason."""
        for job_id, row in self.record.rows("scheduler", "jobs").items():
            known = self.rows.get(job_id)
            if known is row:
                continue
            if known is not None:
                must(known.ended_at is None, "INV-3", f"{job_id} was {known.state} and is {row.state}")
                must(row.attempt >= known.attempt, "INV-6", f"{job_id} goes back from attempt {known.attempt} to {row.attempt}")
            is_over = row.state in ("succeeded", "failed", "cancelled", "expired")
            must(
                is_over == (row.ended_at is not None) == (row.end_reason is not None), "INV-3", f"{job_id} is {row.state}: {row.end_reason}"
            )
            must(is_over == (job_id in self.ended), "INV-3", f"{job_id} is {row.state}, and its end was {'' if is_over else 'not '}told")
            self.rows[job_id] = row

    def check_rejection(self, event: Envelope[Any], whole_since: datetime | None) -> None:
        """Nobody is told that his job could never run if it could; who knows only a part of the fleet may be wrong."""
        said = event.data
        if whole_since is None or (event.time - whole_since).total_seconds() < self.KNOWN_SECONDS:
            return
        if isinstance(said, JobRejectedV1) and said.reason in ("never-fits", "over-quota-for-ever"):
            spec = self.record.tenants.asked[said.job_id].spec
            is_false = spec is not None and could_run(spec, said.tenant, self.record.tenants.machines)
            must(not is_false, "truth", f"{said.job_id} was rejected: {said.reason}, {said.detail}")

    def check_holds(self, live: dict[str, AllocationCommittedV1]) -> None:
        """What placement holds is what the scheduler still wants (or has been told to let go of)."""
        for name, found in live.items():
            row = self.rows.get(found.job_id)
            if found.job_id in self.record.tenants.rogue_jobs:
                continue
            is_wanted = row is not None and row.ended_at is None and row.state != "queued" and row.attempt == found.attempt
            if not is_wanted:
                raise Violation("INV-6", f"{name} is held, the scheduler has {row and (row.state, row.attempt)}")


class Truth:
    """INV-1, 5, 6 on the machines: what truly runs, whatever anybody believes."""

    PATIENCE_SECONDS = 60.0
    BEATS = 10

    def __init__(self, record: Record, capacity: Capacity) -> None:
        self.record = record
        self.capacity = capacity
        self.plans: dict[str, AllocationCommittedV1] = {}
        self.seen: dict[str, int] = {}
        self.begun: set[str] = set()
        self.strays: dict[str, tuple[datetime, int]] = {}

    def told(self, data: Any) -> None:
        """A commitment says where each rank may run; a release, that nothing of it runs any more or ever will."""
        if isinstance(data, AllocationCommittedV1):
            self.plans.setdefault(data.allocation_id, data)
        elif isinstance(data, AllocationReleasedV1):
            running = [found for agent in self.record.agents for found in agent.machine.running.values()]
            left = sorted(found.key for found in running if found.order.allocation_id == data.allocation_id)
            must(not left, "INV-1", f"{data.allocation_id} is released ({data.reason}), and {left} still run")

    def check(self) -> None:
        """Hold what runs against what may run."""
        running: dict[str, list[Process]] = {}
        cards: dict[str, list[Process]] = {}
        for agent in self.record.agents:
            machine = agent.machine
            for process in machine.ever[self.seen.get(machine.node_id, 0) :]:
                self._must_be_planned(machine.node_id, process)
            self.seen[machine.node_id] = len(machine.ever)
            for key, process in machine.running.items():
                running.setdefault(process.order.job_id, []).append(process)
                for part in process.order.slices:
                    cards.setdefault(part.gpu_uuid, []).append(process)
                self._must_be_wanted(key, process, agent.confirmed.get(key, 0))
        for job_id, found in running.items():
            if len(found) > 1:
                attempts = {process.order.attempt for process in found}
                must(len(attempts) == 1, "INV-6", f"attempts {sorted(attempts)} of {job_id} run at once")
        for uuid, found in cards.items():
            if len(found) > 1:
                self._must_share(uuid, found)

    def _must_be_planned(self, node_id: str, process: Process) -> None:
        order, key = process.order, process.key
        must(key not in self.begun, "INV-6", f"{key} was started twice")
        self.begun.add(key)
        plan = self.plans.get(order.allocation_id)
        ranks = {} if plan is None else {rank.rank: rank for rank in plan.ranks}
        rank = ranks.get(process.rank)
        is_planned = rank is not None and rank.node_id == node_id and rank.slices == order.slices
        must(is_planned, "INV-5", f"{key} was started on {node_id} and was never committed there")
        must(order.allocation_id in self.capacity.live, "INV-5", f"{key} was started on {node_id} after its allocation was released")

    def _must_be_wanted(self, key: str, process: Process, beats: int) -> None:
        """INV-5: what has no live allocation is gone soon after contact."""
        if process.order.allocation_id in self.capacity.live:
            self.strays.pop(key, None)
            return
        now = self.record.world.clock.now()
        since, before = self.strays.setdefault(key, (now, beats))
        is_long = (now - since).total_seconds() > self.PATIENCE_SECONDS and beats - before > self.BEATS
        must(not is_long, "INV-5", f"{key} has run without an allocation since {since}, through {beats - before} heartbeats")

    def _must_share(self, uuid: str, found: list[Process]) -> None:
        parts = [part for process in found for part in process.order.slices if part.gpu_uuid == uuid]
        fits = sum(part.milli for part in parts) <= 1000 and sum(part.memory_mib for part in parts) <= self.capacity.memory[uuid]
        must(fits, "INV-1", f"{uuid} is used by {sorted(process.key for process in found)} at once")


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
        self.capacity = Capacity(record)
        self.jobs = Jobs(record)
        self.truth = Truth(record, self.capacity)
        self.ledger = Ledger(record)
        self.bus = Bus(record)

    def check(self) -> None:
        """Assert what must always hold. Raises Violation."""
        said, published = self.record.look()
        for service, event in said:
            if service == "placement":
                self.bus.told(event)
                self.truth.told(event.data)
                self.capacity.told(event)
            elif service == "scheduler":
                self.jobs.told(event)
                self.jobs.check_rejection(event, self.capacity.whole_since)
        for stream, message in published:
            self.bus.published(stream, message)
        if any(service == "placement" for service, _ in said):
            self.capacity.check()
        self.jobs.check()
        self.jobs.check_holds(self.capacity.live)
        self.truth.check()
        self.ledger.check()
        failures = self.record.world.failures
        must(not failures, "no-crash", lambda: f"a handler failed: {failures[0]!r}")
