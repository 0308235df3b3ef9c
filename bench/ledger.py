"""Usage ticks into billing: the real service as a process of its own, a real durable, a real database.

A tick is one message of one node with eight cards in use, so it states the use of eight allocations. All of them are live: their rows
are in billing's memory and each tick changes eight rows in the database.
"""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

from gpuyard_contracts.envelope import Envelope, Payload
from gpuyard_contracts.messages.node import HeldV1, UsageTickV1
from gpuyard_contracts.messages.placement import AllocationCommittedV1, AllocationStartedV1
from gpuyard_contracts.messages.scheduler import RankPlanV1, SliceV1
from gpuyard_contracts.topology import Durable, durables_of
from gpuyard_contracts.types import allocation_id_of, job_id_of
from gpuyard_runtime.saying import enveloped

from bench.cpu import spent_ms
from bench.figures import Figures, median
from bench.lab import Lab, sustained
from bench.scale import Scale

NODES = 250
CARDS = 8
TICK_SECONDS = 5
TENANT = "bench"


def measure(figures: Figures, lab: Lab, scale: Scale) -> None:
    """Put `ledger.ticks_per_s`, `ledger.statements_per_s` and what a tick costs billing in CPU."""
    durables = durables_of("billing")
    lab.operator.make(durables)
    usage, placement = _of(durables, "USAGE"), _of(durables, "EVT_PLACEMENT")
    rounds = max(1, scale.ledger_ticks // NODES)
    begun = datetime.now(UTC) - timedelta(days=1)
    rates: list[float] = []
    costs: list[float] = []
    with lab.service("billing", "gpuyard_billing") as process:
        lab.operator.publish(_allocations(begun))
        lab.operator.wait_until_done(placement)
        for number in range(scale.rounds):
            ticks = [tick for beat in range(rounds) for tick in _beat(begun, number * rounds + beat + 1)]
            before = spent_ms({"billing": process.pid})["billing"]
            rates.append(sustained(lab, process, usage, ticks))
            costs.append((spent_ms({"billing": process.pid})["billing"] - before) / len(ticks))
    figures.put("ledger.ticks_per_s", median(rates))
    figures.put("ledger.statements_per_s", median(rates) * CARDS)
    figures.put("ledger.ticks_per_cpu_s", 1000 / median(costs))


def _of(durables: tuple[Durable, ...], stream: str) -> Durable:
    return next(durable for durable in durables if durable.stream == stream)


def _said(data: Payload, at: datetime) -> Envelope[Payload]:
    return enveloped(data, source="bench", at=at, event_id=str(uuid4()))


def _allocation(node: int, card: int) -> str:
    return allocation_id_of(job_id_of(TENANT, f"{node}-{card}"), 1)


def _allocations(at: datetime) -> list[Envelope[Payload]]:
    """Every card of every node is held since `at`."""
    found: list[Envelope[Payload]] = []
    for node in range(NODES):
        for card in range(CARDS):
            allocation_id, gpu = _allocation(node, card), f"GPU-{node}-{card}"
            known = {"tenant": TENANT, "allocation_id": allocation_id, "job_id": allocation_id.removesuffix("-1"), "attempt": 1}
            part = SliceV1(gpu_uuid=gpu, milli=1000, memory_mib=81_920)
            plan = RankPlanV1(rank=0, node_id=f"n{node}", slices=(part,), cpu_milli=1000, memory_mib=1024)
            held = {"ranks": (plan,), "models": {gpu: "A100-80GB"}, "gpu_memory_mib": {gpu: 81_920}, "at": at}
            found.append(_said(AllocationCommittedV1.model_validate(known | held), at))
            found.append(_said(AllocationStartedV1.model_validate(known | {"started_at": at}), at))
    return found


def _beat(begun: datetime, beat: int) -> list[Envelope[Payload]]:
    """One tick of every node."""
    held_ms = beat * TICK_SECONDS * 1000
    at = begun + timedelta(milliseconds=held_ms)
    return [
        _said(
            UsageTickV1(
                node_id=f"n{node}",
                boot_id=f"boot-{node}",
                sequence=beat,
                at=at,
                held=tuple(
                    HeldV1(allocation_id=_allocation(node, card), tenant=TENANT, rank=0, gpu_ms=held_ms, held_ms=held_ms)
                    for card in range(CARDS)
                ),
            ),
            at,
        )
        for node in range(NODES)
    ]
