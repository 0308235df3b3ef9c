"""Messages ↔ domain ↔ journal: the only file that knows two of them."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from gpuyard_contracts import catalog
from gpuyard_contracts.envelope import Envelope, Payload
from gpuyard_contracts.messages.node import (
    GpuSampleV1,
    HealthEventV1,
    HeldV1,
    LogLinesV1,
    RunningV1,
    TelemetryV1,
    UsageTickV1,
    WorkloadEndedV1,
    WorkloadRefusedV1,
    WorkloadStartedV1,
)
from gpuyard_contracts.messages.placement import GpuV1, NodeFactsV1, StartV1, StopV1
from gpuyard_runtime.ids import derive
from gpuyard_runtime.saying import enveloped
from pydantic import TypeAdapter

from gpuyard_node_agent.domain.admission import Refused, gpu_ms
from gpuyard_node_agent.domain.faults import Fault
from gpuyard_node_agent.domain.model import Card, Cause, Gone, Machine, Order, Slice, State, Workload, key_of
from gpuyard_node_agent.domain.samples import Sample
from gpuyard_node_agent.domain.states import held_ms

_ORDER = TypeAdapter(Order)
_CARDS = TypeAdapter(tuple[Card, ...])


def order_of(start: StartV1, event: Envelope[Any]) -> Order:
    """A start order as the agent keeps it; `event` is the message that brought it."""
    return Order(
        allocation_id=start.allocation_id,
        tenant=start.tenant,
        job_id=start.job_id,
        attempt=start.attempt,
        rank=start.rendezvous.rank,
        command=start.spec.command,
        env=dict(start.spec.env),
        slices=tuple(Slice(part.gpu_uuid, part.milli, part.memory_mib) for part in start.slices),
        cpu_milli=start.spec.cpu_milli,
        memory_mib=start.spec.memory_mib,
        world_size=start.rendezvous.world_size,
        local_rank=start.rendezvous.local_rank,
        local_world_size=start.rendezvous.local_world_size,
        master_addr=start.rendezvous.master_addr,
        master_port=start.rendezvous.master_port,
        issued_at=start.issued_at,
        order_id=event.id,
        traceparent=event.traceparent,
    )


def order_of_end(end: WorkloadEndedV1, event: Envelope[Any]) -> Order:
    """As much of an order as its end still tells: enough to publish the last lines of its output."""
    return Order(
        allocation_id=end.allocation_id,
        tenant=end.tenant,
        job_id=end.job_id,
        attempt=end.attempt,
        rank=end.rank,
        command=(),
        env={},
        slices=(),
        cpu_milli=0,
        memory_mib=0,
        world_size=1,
        local_rank=0,
        local_world_size=1,
        master_addr="",
        master_port=0,
        issued_at=event.time,
        order_id=event.causation_id or "",
        traceparent=event.traceparent,
    )


# -- events


def source_of(node_id: str) -> str:
    """What the agent calls itself in envelopes."""
    return f"node-agent/{node_id}"


def event_id(node_id: str, key: str, kind: type[Payload]) -> str:
    """The id of what a node says of a workload's key once in its life: the same after every restart."""
    return derive(f"{node_id}/{key}", kind.TYPE, "once")


def _said(payload: Payload, order: Order, node_id: str, at: datetime) -> Envelope[Any]:
    return enveloped(
        payload,
        source=source_of(node_id),
        at=at,
        event_id=event_id(node_id, order.key, type(payload)),
        traceparent=order.traceparent,
        causation_id=order.order_id,
    )


def started(workload: Workload, node_id: str) -> Envelope[Any]:
    """The process runs. Raises ValueError for a workload that has not started."""
    order, at = workload.order, workload.started_at
    if at is None:
        raise ValueError(f"{workload.key} has not started")
    payload = WorkloadStartedV1(
        node_id=node_id,
        tenant=order.tenant,
        job_id=order.job_id,
        allocation_id=order.allocation_id,
        attempt=order.attempt,
        rank=order.rank,
        pid=workload.pid,
        started_at=at,
    )
    return _said(payload, order, node_id, at)


def ended(workload: Workload, gone: Gone, cause: Cause, detail: str, ended_at: datetime, node_id: str) -> Envelope[Any]:
    """The process is gone."""
    order = workload.order
    payload = WorkloadEndedV1(
        node_id=node_id,
        tenant=order.tenant,
        job_id=order.job_id,
        allocation_id=order.allocation_id,
        attempt=order.attempt,
        rank=order.rank,
        cause=cause,
        exit_code=gone.code,
        signal=gone.signal,
        detail=detail,
        started_at=workload.started_at,
        ended_at=ended_at,
        held_ms=held_ms(workload, gone.ended_ms),
    )
    return _said(payload, order, node_id, ended_at)


def not_running(told: StopV1, stop: Envelope[Any], now: datetime) -> Envelope[Any]:
    """The answer to a stop of what does not run here."""
    payload = WorkloadEndedV1(
        node_id=told.node_id,
        tenant=told.tenant,
        job_id=told.job_id,
        allocation_id=told.allocation_id,
        attempt=told.attempt,
        rank=told.rank,
        cause="not-running",
        ended_at=now,
    )
    return enveloped(
        payload,
        source=source_of(told.node_id),
        at=now,
        event_id=event_id(told.node_id, key_of(told.allocation_id, told.rank), WorkloadEndedV1),
        traceparent=stop.traceparent,
        causation_id=stop.id,
    )


def refused(order: Order, refusal: Refused, node_id: str, now: datetime) -> Envelope[Any]:
    """The order was not carried out."""
    payload = WorkloadRefusedV1(
        node_id=node_id,
        tenant=order.tenant,
        job_id=order.job_id,
        allocation_id=order.allocation_id,
        attempt=order.attempt,
        rank=order.rank,
        reason=refusal.reason,
        detail=refusal.detail,
        is_permanent=refusal.is_permanent,
    )
    return _said(payload, order, node_id, now)


def health(fault: Fault, node_id: str, boot_id: str, now: datetime) -> Envelope[Any]:
    """A fault of a card or of what watches it."""
    payload = HealthEventV1(
        node_id=node_id,
        boot_id=boot_id,
        kind=fault.kind,
        gpu_uuid=fault.gpu_uuid,
        xid=fault.xid,
        count=fault.count,
        detail=fault.detail,
        at=now,
    )
    said_id = derive(f"{node_id}/{boot_id}", fault.kind, fault.key)
    return enveloped(payload, source=source_of(node_id), at=now, event_id=said_id)


def telemetry(samples: Iterable[Sample], node_id: str, boot_id: str, *, sequence: int, bad: int, now: datetime) -> Envelope[Any]:
    """All cards of the node at one instant."""
    gpus = tuple(GpuSampleV1(gpu_uuid=sample.gpu_uuid, is_lost=sample.is_lost, **sample.values) for sample in samples)
    payload = TelemetryV1(node_id=node_id, boot_id=boot_id, sequence=sequence, at=now, gpus=gpus, bad_samples=bad)
    return enveloped(payload, source=source_of(node_id), at=now, event_id=derive(f"{node_id}/{boot_id}", payload.TYPE, str(sequence)))


def held_of(workload: Workload, until_ms: int) -> HeldV1:
    """What one workload has held so far."""
    held = held_ms(workload, until_ms)
    order = workload.order
    return HeldV1(
        allocation_id=order.allocation_id, tenant=order.tenant, rank=order.rank, gpu_ms=gpu_ms(workload.shares, held), held_ms=held
    )


def usage(held: tuple[HeldV1, ...], node_id: str, boot_id: str, *, sequence: int, now: datetime) -> Envelope[Any]:
    """A statement of use."""
    payload = UsageTickV1(node_id=node_id, boot_id=boot_id, sequence=sequence, at=now, held=held)
    return enveloped(payload, source=source_of(node_id), at=now, event_id=derive(f"{node_id}/{boot_id}", payload.TYPE, str(sequence)))


def log_lines(payload: LogLinesV1, order: Order, offset: int) -> Envelope[Any]:
    """A portion of output. The id says which bytes it holds: another portion that begins alike is another message."""
    which = f"{payload.first_line}+{len(payload.lines)}@{offset}{'.' if payload.is_last else ''}"
    return enveloped(
        payload,
        source=source_of(payload.node_id),
        at=payload.at,
        event_id=derive(f"{payload.node_id}/{order.key}/{payload.stream}", payload.TYPE, which),
        traceparent=order.traceparent,
        causation_id=order.order_id,
    )


def running(workload: Workload, now_ms: int) -> RunningV1:
    """A living workload for the heartbeat. Raises ValueError for one that has not started."""
    order = workload.order
    if workload.started_at is None:
        raise ValueError(f"{workload.key} has not started")
    return RunningV1(
        allocation_id=order.allocation_id,
        tenant=order.tenant,
        job_id=order.job_id,
        attempt=order.attempt,
        rank=order.rank,
        pid=workload.pid,
        started_at=workload.started_at,
        held_ms=held_ms(workload, now_ms),
        is_stopping=workload.state is State.STOPPING,
    )


def facts(machine: Machine | None, lost: frozenset[str], said: Mapping[str, Any]) -> NodeFactsV1:
    """The node for the heartbeat; `said` are the settings' fields. Cards that are lost are not among the cards."""
    cards = () if machine is None else machine.cards
    gpus = tuple(_gpu(card, lost) for card in cards if card.uuid not in lost)
    return NodeFactsV1(
        gpus=gpus,
        cpu_milli=0 if machine is None else machine.cpu_milli,
        memory_mib=0 if machine is None else machine.memory_mib,
        **said,
    )


def _gpu(card: Card, lost: frozenset[str]) -> GpuV1:
    return GpuV1(
        uuid=card.uuid,
        vendor=card.vendor,
        model=card.model,
        memory_mib=card.memory_mib,
        sharing=card.sharing,
        index=card.index,
        pci=card.pci,
        numa=card.numa,
        links=tuple(other for other in card.links if other not in lost),
        driver=card.driver,
        cuda=card.cuda,
        compute_capability=card.compute_capability,
    )


# -- journal


def workload_record(workload: Workload, *, is_first: bool) -> dict[str, Any]:
    """A workload's line: with its order the first time, then only what moves."""
    found: dict[str, Any] = {"t": "put", "key": workload.key, "order": workload.order} if is_first else {"t": "put", "key": workload.key}
    found |= {"state": workload.state.value, "taken_ms": workload.taken_ms, "keeper": workload.keeper}
    if workload.uid is not None:
        found["uid"] = workload.uid
    if workload.started_at is not None:
        found |= {"pid": workload.pid, "ticks": workload.ticks, "started_ms": workload.started_ms, "shares": workload.shares}
        found["started_at"] = workload.started_at.isoformat()
    return found


def workload_of(record: Mapping[str, Any], known: Workload | None) -> Workload | None:
    """A workload from its line; None where the line with its order is missing."""
    if "order" not in record and known is None:
        return None
    order = _ORDER.validate_python(record["order"]) if "order" in record else known.order if known is not None else None
    if order is None:
        return None
    at = record.get("started_at")
    return Workload(
        order=order,
        state=State(record["state"]),
        taken_ms=record["taken_ms"],
        keeper=record["keeper"],
        uid=record.get("uid"),
        pid=record.get("pid", 0),
        ticks=record.get("ticks", 0),
        started_at=None if at is None else datetime.fromisoformat(at),
        started_ms=record.get("started_ms", 0),
        shares=tuple((above, below) for above, below in record.get("shares", ())),
    )


def event_record(lane: str, event: Envelope[Any]) -> dict[str, Any]:
    """What waits to be published, as part of a line."""
    return {
        "lane": lane,
        "id": event.id,
        "type": event.type,
        "source": event.source,
        "time": event.time.isoformat(),
        "correlation_id": event.correlation_id,
        "causation_id": event.causation_id,
        "traceparent": event.traceparent,
        "data": event.data.model_dump(mode="json", exclude_none=True),
    }


def event_of(record: Mapping[str, Any]) -> tuple[str, Envelope[Any]] | None:
    """Lane and event; None for a type that this version does not know."""
    kind = catalog.BY_TYPE.get(record["type"])
    if kind is None:
        return None
    data = kind.model_validate(record["data"])
    made = Envelope(
        id=record["id"],
        source=record["source"],
        time=datetime.fromisoformat(record["time"]),
        data=data,
        subject=data.subject(),
        correlation_id=record["correlation_id"],
        causation_id=record["causation_id"],
        traceparent=record["traceparent"],
    )
    return record["lane"], made


def cards_of(told: Any) -> tuple[Card, ...]:
    """Cards from JSON. Raises ValueError for what are none."""
    return _CARDS.validate_python(told)


def cards_json(cards: tuple[Card, ...]) -> Any:
    """Cards as JSON."""
    return _CARDS.dump_python(cards, mode="json")
