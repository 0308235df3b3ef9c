"""What the agent knows, in memory, over the journal: every change is a record that is written and then applied.

The same appliers run for what happens now and for what is read at the next start, so what was known is known again. An event travels in the
record of the change that it tells of: either both are on the disk or neither is. What has ended is kept as a bare name, so that an
order that comes again late starts nothing.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from gpuyard_contracts.envelope import Envelope
from gpuyard_contracts.messages.node import UsageTickV1, WorkloadEndedV1
from gpuyard_runtime.logs import log_of

from gpuyard_node_agent import mapping
from gpuyard_node_agent.domain.admission import Past
from gpuyard_node_agent.domain.faults import Observed
from gpuyard_node_agent.domain.lease import Lease
from gpuyard_node_agent.domain.lines import Position
from gpuyard_node_agent.domain.model import Workload, key_of
from gpuyard_node_agent.domain.ticks import thin
from gpuyard_node_agent.journal import Journal, Record

REMEMBERED = 32_768
"""How many keys that have ended, and how many jobs' attempts, are remembered: minutes at the highest rate, days at an ordinary one."""
WAITING_TICKS = 720
"""Statements of use that wait for the bus at most (an hour of them), the last one of each allocation aside."""

STREAMS = ("stdout", "stderr")


class NodeStore:
    """The agent's memory. Writers are the methods; fields are to be read."""

    def __init__(self, journal: Journal, boot_id: str) -> None:
        self.journal = journal
        self.boot_id = boot_id
        self.workloads: dict[str, Workload] = {}
        self.uids: dict[str, int] = {}
        """By key, the users that living workloads run as."""
        self.past: OrderedDict[str, Past] = OrderedDict()
        self.attempts: OrderedDict[str, int] = OrderedDict()
        self.unsaid: dict[str, tuple[str, Envelope[Any]]] = {}
        self.unsaid_ends: dict[str, str] = {}
        """Allocations by the id of their end's event."""
        self.tails: dict[str, dict[str, Position]] = {}
        self.lease = Lease()
        self.observed = Observed(boot_id)
        self.known_boot = ""
        self.last_uid = 0
        """The user that was given to a workload last."""
        self._log = log_of("store")
        self._said: list[str] = []
        self._moved_tails: set[str] = set()
        self._appliers: dict[str, Callable[[Record], None]] = {
            "put": self._apply_put,
            "end": self._apply_end,
            "attempt": lambda record: self._know_attempt(record["job"], record["attempt"]),
            "said": self._apply_said,
            "seen": self._apply_seen,
            "lease": self._apply_lease,
            "tail": self._apply_tail,
            "boot": self._apply_boot,
            "uid": self._apply_uid,
        }

    def load(self) -> None:
        """Read the journal and write it anew without its history."""
        for record in self.journal.open():
            self.apply(record)
        try:
            self.journal.rewrite(self.records())
        except OSError as error:  # a full disk: what is there can be read, and that is what counts now
            self._log.error("journal_not_rewritten", detail=error.strerror)

    # -- writers

    def put(self, workload: Workload, *events: tuple[str, Envelope[Any]]) -> None:
        """A workload is new or has moved, with what is to be said of that."""
        is_first = workload.key not in self.workloads
        self._write(mapping.workload_record(workload, is_first=is_first), events, lambda record: self._know(workload))

    def end(self, key: str, job_id: str, attempt: int, past: Past, *events: tuple[str, Envelope[Any]]) -> None:
        """A key has had its end, or is barred: it never starts again."""
        self._write({"t": "end", "key": key, "job": job_id, "attempt": attempt, "past": past}, events)

    def say(self, *events: tuple[str, Envelope[Any]]) -> None:
        """Something to be published that belongs to no workload."""
        self._write({"t": "say"}, events)

    def said(self, event_id: str) -> None:
        """The stream has it. Written with the next record: to publish it again does no harm."""
        self._said.append(event_id)
        self._forget_event(event_id)

    def see(self, observed: Observed, *events: tuple[str, Envelope[Any]]) -> None:
        """What was seen last of the cards."""
        self._write(_seen_record(observed), events)

    def lease_is(self, lease: Lease) -> None:
        """The lease after an answer; only its horizon outlives the agent (the keeper knows the end)."""
        is_new = lease.horizon != self.lease.horizon
        self.lease = lease
        if is_new and lease.horizon is not None:
            self._write({"t": "lease", "horizon": lease.horizon.isoformat()}, ())

    def tail_is(self, key: str, stream: str, position: Position) -> None:
        """How far a workload's output was published. In memory; :meth:`flush` writes it."""
        self.tails.setdefault(key, {})[stream] = position
        self._moved_tails.add(key)

    def flush(self) -> None:
        """Write what may be written late: acknowledged events and positions in outputs. And the journal anew where it is mostly history."""
        records: list[Record] = []
        if self._said:
            records.append({"t": "said", "ids": self._said})
            self._said = []
        records += [_tail_record(key, self.tails[key]) for key in sorted(self._moved_tails) if key in self.tails]
        self._moved_tails.clear()
        if records:
            self.journal.append(*records)
        if self.journal.is_worth_rewriting:
            self.journal.rewrite(self.records())

    def thin_ticks(self) -> int:
        """Let go of older statements of use that wait for the bus; how many."""
        waiting = [
            (event_id, frozenset(f"{held.allocation_id}.{held.rank}" for held in event.data.held))
            for event_id, (_, event) in self.unsaid.items()
            if isinstance(event.data, UsageTickV1)
        ]
        spare = thin(waiting, WAITING_TICKS)
        for event_id in spare:
            self.said(event_id)
        return len(spare)

    def _write(
        self, record: Record, events: tuple[tuple[str, Envelope[Any]], ...], applier: Callable[[Record], None] | None = None
    ) -> None:
        """Append, then apply: as at the next start, or by an `applier` that comes to the same without reading the record."""
        records = [record | {"say": [mapping.event_record(lane, event) for lane, event in events]} if events else record]
        if self._said:
            records.append({"t": "said", "ids": self._said})
            self._said = []
        self.journal.append(*records)
        (applier or self._appliers.get(record["t"], _nothing))(record)
        for lane, event in events:
            self._remember_event(lane, event)

    # -- appliers

    def apply(self, record: Record) -> None:
        """Take one record of the journal into memory. Kinds that this version does not know are passed over."""
        for told in record.get("say", ()):
            found = mapping.event_of(told)
            if found is not None:
                self._remember_event(*found)
        self._appliers.get(record["t"], _nothing)(record)

    def _apply_put(self, record: Record) -> None:
        workload = mapping.workload_of(record, self.workloads.get(record["key"]))
        if workload is not None:
            self._know(workload)

    def _know(self, workload: Workload) -> None:
        if workload.uid is not None and workload.key not in self.uids:
            self.last_uid = self.uids[workload.key] = workload.uid
        self.workloads[workload.key] = workload
        self._know_attempt(workload.order.job_id, workload.order.attempt)

    def _apply_end(self, record: Record) -> None:
        self.workloads.pop(record["key"], None)
        self.uids.pop(record["key"], None)
        self.past[record["key"]] = record["past"]
        self.past.move_to_end(record["key"])
        if len(self.past) > REMEMBERED:
            self.past.popitem(last=False)
        self._know_attempt(record["job"], record["attempt"])

    def _apply_said(self, record: Record) -> None:
        for event_id in record["ids"]:
            self._forget_event(event_id)

    def _apply_seen(self, record: Record) -> None:
        if record["boot"] == self.boot_id:
            self.observed = Observed(
                record["boot"], dict(record["counters"]), frozenset(record["lost"]), is_hung=record["hung"], log_sequence=record["log"]
            )

    def _apply_lease(self, record: Record) -> None:
        self.lease = Lease(self.lease.until_ms, datetime.fromisoformat(record["horizon"]))

    def _apply_tail(self, record: Record) -> None:
        self.tails[record["key"]] = {stream: Position(offset, line) for stream, (offset, line) in record["at"].items()}

    def _apply_boot(self, record: Record) -> None:
        self.known_boot = record["boot"]

    def _apply_uid(self, record: Record) -> None:
        self.last_uid = record["last"]

    def _know_attempt(self, job_id: str, attempt: int) -> None:
        self.attempts[job_id] = max(attempt, self.attempts.get(job_id, 0))
        self.attempts.move_to_end(job_id)
        if len(self.attempts) > REMEMBERED:
            self.attempts.popitem(last=False)

    def _remember_event(self, lane: str, event: Envelope[Any]) -> None:
        self.unsaid[event.id] = (lane, event)
        if isinstance(event.data, WorkloadEndedV1):
            self.unsaid_ends[event.id] = event.data.allocation_id

    def _forget_event(self, event_id: str) -> None:
        told = self.unsaid.pop(event_id, None)
        if self.unsaid_ends.pop(event_id, None) is not None and told is not None:
            end = told[1].data
            self.tails.pop(key_of(end.allocation_id, end.rank), None)

    def records(self) -> Iterator[Record]:
        """Everything that is known, as few records as can be. A reader of the whole file in order ends with this very knowledge."""
        yield {"t": "boot", "boot": self.boot_id}
        for key, past in self.past.items():
            job_id, _, attempt = key.partition(".")[0].rpartition("-")
            yield {"t": "end", "key": key, "job": job_id, "attempt": int(attempt), "past": past}
        for workload in self.workloads.values():
            yield mapping.workload_record(workload, is_first=True)
        if self.last_uid:
            yield {"t": "uid", "last": self.last_uid}
        for job_id, attempt in self.attempts.items():
            yield {"t": "attempt", "job": job_id, "attempt": attempt}
        for key, streams in self.tails.items():
            yield _tail_record(key, streams)
        if self.unsaid:
            yield {"t": "say", "say": [mapping.event_record(lane, event) for lane, event in self.unsaid.values()]}
        if self.lease.horizon is not None:
            yield {"t": "lease", "horizon": self.lease.horizon.isoformat()}
        yield _seen_record(self.observed)


def _seen_record(seen: Observed) -> Record:
    told = {"boot": seen.boot_id, "counters": dict(seen.counters), "lost": sorted(seen.lost)}
    return {"t": "seen", **told, "hung": seen.is_hung, "log": seen.log_sequence}


def _tail_record(key: str, streams: dict[str, Position]) -> Record:
    """Positions at the last whole line: a line that is not finished is read again."""
    return {"t": "tail", "key": key, "at": {stream: (at.offset - len(at.rest), at.line) for stream, at in streams.items()}}


def _nothing(record: Record) -> None:
    """A kind of record without effect of its own."""
