"""What of a job might be asked for differently, so that it starts sooner: for each field of a job file the changes worth trying.

Nothing here says that a change helps; :mod:`gpuyard_scheduler.domain.suggest` tries them. A new family is a function in :data:`FAMILIES`.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from gpuyard_contracts.gpu import memory_text, write
from gpuyard_contracts.spec import JobSpec

from gpuyard_scheduler.domain import words
from gpuyard_scheduler.domain.ask import ask_of
from gpuyard_scheduler.domain.model import Kind
from gpuyard_scheduler.domain.policy import Policy
from gpuyard_scheduler.domain.snapshot import Snapshot

MOST_VALUES = 8
LEAST_SECONDS = 60
_SHARES = (900, 750, 500, 333, 250, 200, 100, 50)


class Change(NamedTuple):
    """One field with another value, both as a job file has them (empty: left out), and the spec that this makes."""

    field: str
    was: str
    to: str
    spec: JobSpec


class Family(NamedTuple):
    """Changes of one kind, the smallest first. `is_ordered`: where one helps, every larger one helps too. `most`: so many are told."""

    changes: tuple[Change, ...]
    is_ordered: bool = False
    most: int = 1


def limits(spec: JobSpec, snapshot: Snapshot, policy: Policy) -> Family:
    """A time limit, or a shorter one: who is gone before room is needed that is kept for others may use it until then."""
    starts = {kept.start_ms for kept in snapshot.reservations.values() if kept.job_id and kept.start_ms is not None}
    seconds = sorted({_round_time((start - snapshot.now_ms) // 1000 - policy.start_slack) for start in starts}, reverse=True)
    shorter = [value for value in seconds if value >= LEAST_SECONDS and (spec.max_seconds is None or value < spec.max_seconds)]
    was = "" if spec.max_seconds is None else words.duration(spec.max_seconds)
    return Family(_with(spec, "max_time", was, "max_seconds", ((words.duration(value), value) for value in shorter[:MOST_VALUES])), True)


def zones(spec: JobSpec, snapshot: Snapshot, policy: Policy) -> Family:
    """Another zone, or any."""
    if spec.zone is None:
        return Family(())
    others = sorted({pool.zone for pool in snapshot.fleet.pools.values()} - {spec.zone})[:MOST_VALUES]
    return Family(_with(spec, "zone", spec.zone, "zone", [*((zone, zone) for zone in others), ("", None)]))


def labels(spec: JobSpec, snapshot: Snapshot, policy: Policy) -> Family:
    """Without one of the labels that a node must have, or without all."""
    asked = sorted(spec.node_labels.items())
    fewer = [tuple(pair for pair in asked if pair is not left) for left in asked[:MOST_VALUES]] if len(asked) > 1 else []
    values = [*fewer, ()] if asked else []
    return Family(_with(spec, "node_labels", _pairs(asked), "node_labels", ((_pairs(value), dict(value)) for value in values)))


def cpus(spec: JobSpec, snapshot: Snapshot, policy: Policy) -> Family:
    """As much CPU as some node has free; not less than a quarter of what was asked for."""
    free = [bank.node.cpu_free // 100 * 100 for bank in snapshot.fleet.board.banks if bank.node.is_open]
    values = _below(free, spec.cpu_milli)
    return Family(_with(spec, "cpus", words.number(spec.cpu_milli), "cpu_milli", ((words.number(value), value) for value in values)), True)


def memory(spec: JobSpec, snapshot: Snapshot, policy: Policy) -> Family:
    """As much memory as some node has free; not less than a quarter of what was asked for."""
    banks = snapshot.fleet.board.banks
    free = [bank.node.memory_free if bank.node.memory_free < 1024 else bank.node.memory_free // 1024 * 1024 for bank in banks]
    values = _below(free, spec.memory_mib)
    return Family(
        _with(spec, "memory", memory_text(spec.memory_mib), "memory_mib", ((memory_text(value), value) for value in values)), True
    )


def spot(spec: JobSpec, snapshot: Snapshot, policy: Policy) -> Family:
    """Not to yield to all others."""
    return Family(_with(spec, "spot", "true", "spot", [("", False)]) if spec.spot else ())


def priority(spec: JobSpec, snapshot: Snapshot, policy: Policy) -> Family:
    """Before others: the next higher class first."""
    classes = ("low", "normal", "high")
    above = classes[classes.index(spec.priority) + 1 :]
    return Family(_with(spec, "priority", spec.priority, "priority", ((name, name) for name in above)))


def models(spec: JobSpec, snapshot: Snapshot, policy: Policy) -> Family:
    """Cards of another kind, those first of which most is idle."""
    mine = {kind for kind, _ in snapshot.fleet.kinds(ask_of(spec))}
    idle: dict[Kind, tuple[int, str]] = {}
    for pool in snapshot.fleet.pools.values():
        bank = next(iter(pool.banks.values()))
        before = idle.get(pool.kind, (0, ""))[0]
        idle[pool.kind] = (before + pool.idle_milli, bank.cards[0].facts.model)
    others = sorted(((-milli, name) for kind, (milli, name) in idle.items() if kind not in mine and milli), key=lambda item: item)
    values = [{"models": (name,), "memory_mib": None, "memory_max_mib": None} for _, name in others[:MOST_VALUES]]
    return Family(_gpus(spec, values) if spec.gpu.mig_profile is None else (), most=3)


def ranks(spec: JobSpec, snapshot: Snapshot, policy: Policy) -> Family:
    """Fewer processes."""
    fewer = range(spec.ranks - 1, 0, -1)
    return Family(_with(spec, "ranks", str(spec.ranks), "ranks", ((str(value), value) for value in fewer)), True)


def cards(spec: JobSpec, snapshot: Snapshot, policy: Policy) -> Family:
    """Fewer cards for each process."""
    return Family(_gpus(spec, [{"count": value} for value in range(spec.gpu.count - 1, 0, -1)]), True)


def shares(spec: JobSpec, snapshot: Snapshot, policy: Policy) -> Family:
    """A smaller part of a card, or a part instead of a whole one."""
    gpu = spec.gpu
    if gpu.mig_profile is not None or (gpu.count > 1 and not gpu.is_share):
        return Family(())
    if gpu.share_memory_mib is not None:
        sizes = [gpu.share_memory_mib * part // 4 for part in (3, 2, 1)]
        return Family(_gpus(spec, [{"share_memory_mib": value} for value in sizes if value]), True)
    return Family(_gpus(spec, [{"milli": value} for value in _SHARES if value < gpu.milli]), True)


FAMILIES: tuple[Callable[[JobSpec, Snapshot, Policy], Family], ...] = (
    limits,
    zones,
    labels,
    cpus,
    memory,
    spot,
    priority,
    models,
    ranks,
    cards,
    shares,
)
"""The smallest changes first."""


def _with(spec: JobSpec, field: str, was: str, name: str, values: Iterable[tuple[str, Any]]) -> tuple[Change, ...]:
    return tuple(Change(field, was, to, spec.model_copy(update={name: value})) for to, value in values)


def _gpus(spec: JobSpec, values: Iterable[dict[str, Any]]) -> tuple[Change, ...]:
    was = write(spec.gpu.model_dump(exclude_defaults=True))
    made = [spec.gpu.model_copy(update=value) for value in values]
    return tuple(Change("gpu", was, write(gpu.model_dump(exclude_defaults=True)), spec.model_copy(update={"gpu": gpu})) for gpu in made)


def _below(free: Iterable[int], asked: int) -> list[int]:
    return sorted({value for value in free if max(1, asked // 4) <= value < asked}, reverse=True)[:MOST_VALUES]


def _pairs(labels: Iterable[tuple[str, str]]) -> str:
    text = ", ".join(f"{key}: {value}" for key, value in labels)
    return f"{{{text}}}" if text else ""


def _round_time(seconds: int) -> int:
    return seconds // 60 * 60
