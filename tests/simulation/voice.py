"""What a simulated node says, and what it must not forget: the journal on its disk, with every event that the bus does not have yet.

Events of one workload keep their order and have ids that are computed from the workload, so that saying one again is saying the same.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from gpuyard_contracts.envelope import Envelope, Payload
from gpuyard_contracts.messages.node import (
    GpuSampleV1,
    HealthEventV1,
    HeldV1,
    RunningV1,
    TelemetryV1,
    UsageTickV1,
    WorkloadEndedV1,
    WorkloadRefusedV1,
    WorkloadStartedV1,
)
from gpuyard_contracts.messages.placement import StartV1, StopV1
from gpuyard_runtime.clock import Clock
from gpuyard_runtime.ids import derive
from gpuyard_runtime.saying import enveloped

from tests.simulation.machine import Machine, Process, after

Refusal = tuple[str, str, bool]
"""Reason, detail, whether no node could ever start it."""


@dataclass
class Journal:
    """What is on the agent's disk: live orders by key, how far each is, what has had its end, the highest attempts, what is to be said."""

    orders: dict[str, StartV1] = field(default_factory=dict[str, StartV1])
    causes: dict[str, Envelope[Any]] = field(default_factory=dict[str, Envelope[Any]])
    launched: set[str] = field(default_factory=set[str])
    said_start: set[str] = field(default_factory=set[str])
    stopping: set[str] = field(default_factory=set[str])
    past: dict[str, str] = field(default_factory=dict[str, str])
    attempts: dict[str, int] = field(default_factory=dict[str, int])
    unsaid: dict[str, tuple[str, Envelope[Any]]] = field(default_factory=dict[str, tuple[str, Envelope[Any]]])
    """By event id: lane and event, the oldest first."""
    horizon: datetime | None = None
    """Orders issued up to here are from before the present lease."""
    known_boot: str = ""

    def know(self, job_id: str, attempt: int) -> None:
        """Remember the attempt."""
        self.attempts[job_id] = max(attempt, self.attempts.get(job_id, 0))

    def forget(self, key: str, past: str) -> None:
        """The key has had its end, or may never begin."""
        self.orders.pop(key, None)
        for marks in (self.launched, self.said_start, self.stopping):
            marks.discard(key)
        self.past[key] = past

    def heads(self) -> Iterator[str]:
        """The oldest event of each lane, by id."""
        lanes: set[str] = set()
        for event_id, (lane, _) in self.unsaid.items():
            if lane not in lanes:
                lanes.add(lane)
                yield event_id

    def ends(self) -> list[str]:
        """Allocations whose end is still to be said."""
        return [event.data.allocation_id for _, event in self.unsaid.values() if isinstance(event.data, WorkloadEndedV1)]


def _named(order: StartV1 | StopV1) -> dict[str, Any]:
    rank = order.rank if isinstance(order, StopV1) else order.rendezvous.rank
    names = ("node_id", "tenant", "job_id", "allocation_id", "attempt")
    return {name: getattr(order, name) for name in names} | {"rank": rank}


class Voice:
    """Puts what is to be said into the journal. `skew` is how wrong the machine's wall clock is, in seconds."""

    def __init__(self, machine: Machine, clock: Clock, skew: float) -> None:
        self.machine = machine
        self.journal = Journal()
        self.skew = skew
        self._clock = clock
        self._source = f"node-agent/{machine.node_id}"

    def wall(self, at: datetime | None = None) -> datetime:
        """An instant (default: now) as the machine's clock shows it."""
        return after(self._clock.now() if at is None else at, self.skew)

    def started(self, key: str, order: StartV1, process: Process) -> None:
        """A process runs."""
        self.journal.said_start.add(key)
        self._put(key, WorkloadStartedV1(**_named(order), pid=process.pid, started_at=self.wall(process.started_at)))

    def ended(self, key: str, order: StartV1, cause: Any, at: datetime, process: Process | None) -> None:
        """A process is gone."""
        code = process.code if process is not None and cause == "exited" else None
        signal = 9 if cause in ("stopped", "fenced") else None
        began = None if process is None else self.wall(process.started_at)
        made = WorkloadEndedV1(**_named(order), cause=cause, exit_code=code, signal=signal, started_at=began, ended_at=self.wall(at))
        self._put(key, made)
        self.journal.forget(key, "ended")

    def not_running(self, key: str, order: StopV1, cause: Envelope[Any]) -> None:
        """The answer to a stop of what does not run; it never will."""
        self.journal.causes[key] = cause
        self.journal.forget(key, self.journal.past.get(key, "barred"))
        self.journal.know(order.job_id, order.attempt)
        self._put(key, WorkloadEndedV1(**_named(order), cause="not-running", ended_at=self.wall()))

    def refused(self, key: str, order: StartV1, refusal: Refusal) -> None:
        """An order was not carried out."""
        reason, detail, is_permanent = refusal
        self.journal.know(order.job_id, order.attempt)
        told = {"reason": reason, "detail": detail, "is_permanent": is_permanent}
        self._put(key, WorkloadRefusedV1.model_validate(_named(order) | told))
        self.journal.forget(key, self.journal.past.get(key, "ended"))

    def running(self, key: str, process: Process | None) -> RunningV1:
        """One workload in a heartbeat."""
        began = self.wall(None if process is None else process.started_at)
        pid = 1 if process is None else process.pid
        return RunningV1(**_named(self.journal.orders[key]), pid=pid, started_at=began, is_stopping=key in self.journal.stopping)

    def held(self, process: Process, until: datetime) -> HeldV1:
        """What one process has held so far."""
        order = process.order
        held_ms = max(0, round((until - process.started_at).total_seconds() * 1000))
        gpu_ms = held_ms * sum(part.milli for part in order.slices) // 1000
        return HeldV1(allocation_id=order.allocation_id, tenant=order.tenant, rank=process.rank, gpu_ms=gpu_ms, held_ms=held_ms)

    def usage(self, held: list[HeldV1], agent_id: str) -> None:
        """A statement of use."""
        node_id, boot_id, sequence = self.machine.node_id, self.machine.boot_id, self._sequence()
        made = UsageTickV1(node_id=node_id, boot_id=boot_id, sequence=sequence, at=self.wall(), held=tuple(held))
        self._once("usage", made, f"{boot_id}/{agent_id}/{sequence}")

    def telemetry(self) -> Envelope[Any]:
        """How the cards are now; not kept."""
        machine = self.machine
        samples = tuple(
            GpuSampleV1(gpu_uuid=card.uuid, temperature_c=None if card.is_lost else card.temperature_c, is_lost=card.is_lost)
            for card in machine.cards
        )
        sequence = self._sequence()
        made = TelemetryV1(node_id=machine.node_id, boot_id=machine.boot_id, sequence=sequence, at=self.wall(), gpus=samples)
        event_id = derive(f"{machine.node_id}/{machine.boot_id}", made.TYPE, str(sequence))
        return enveloped(made, source=self._source, at=self.wall(), event_id=event_id)

    def health(self, kind: Any, uuid: str | None = None, xid: int | None = None) -> None:
        """Something happened to a card or the machine."""
        node_id, boot_id = self.machine.node_id, self.machine.boot_id
        made = HealthEventV1(node_id=node_id, boot_id=boot_id, kind=kind, gpu_uuid=uuid, xid=xid, at=self.wall())
        self._once("health", made, f"{boot_id}/{kind}/{uuid}/{self._sequence()}")

    def _sequence(self) -> int:
        return round(self._clock.now().timestamp() * 1000)

    def _put(self, lane: str, payload: Payload) -> None:
        cause = self.journal.causes[lane]
        made = enveloped(
            payload,
            source=self._source,
            at=self.wall(),
            event_id=derive(lane, payload.TYPE, "once"),
            traceparent=cause.traceparent,
            causation_id=cause.id,
        )
        self.journal.unsaid.setdefault(made.id, (lane, made))

    def _once(self, lane: str, payload: Payload, key: str) -> None:
        made = enveloped(payload, source=self._source, at=self.wall(), event_id=derive(f"{self._source}/{lane}", payload.TYPE, key))
        self.journal.unsaid.setdefault(made.id, (lane, made))
