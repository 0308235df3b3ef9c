"""May this order start now? Pure; read :func:`admit`.

Placement has committed the order against the truth, so a refusal is rare. It protects the tenant next door all the same: an order from a
world that is gone, or cards that are not what placement thinks, never start a process.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from gpuyard_node_agent.domain.lease import Lease
from gpuyard_node_agent.domain.model import WHOLE_MILLI, Machine, Order, Reason, Workload


@dataclass(frozen=True, slots=True)
class Admitted:
    """Start it."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Nothing is started. `is_permanent`: no node could ever start it."""

    reason: Reason
    detail: str
    is_permanent: bool = False


@dataclass(frozen=True, slots=True)
class Deferred:
    """Not yet: `refusal` is what to say if it does not come right in a few seconds. `supersedes`: older attempts to kill first."""

    refusal: Refused
    supersedes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Repeated:
    """The order is known: its workload lives, or has had its end."""


Verdict = Admitted | Refused | Deferred | Repeated
Past = Literal["ended", "barred"]
"""What became of a key: it had its end (or refusal), or was told to stop before it was started."""


@dataclass(frozen=True, slots=True)
class Scene:
    """The node as admission sees it. `machine` is None until its cards have been found; `lost`: cards that are known and not there."""

    live: Mapping[str, Workload]
    past: Mapping[str, Past]
    attempts: Mapping[str, int]
    """The highest attempt known of each job."""
    machine: Machine | None
    lost: frozenset[str]
    lease: Lease
    now_ms: int


def admit(order: Order, scene: Scene) -> Verdict:
    """The order's fate now. The order of the checks is from what can never change to what may come right by waiting."""
    key = order.key
    waits = scene.live.get(key)
    if waits is not None and waits.state != "waiting":
        return Repeated()
    if waits is None and (known := _known(order, scene)) is not None:
        return known
    if scene.attempts.get(order.job_id, 0) > order.attempt:
        newest = scene.attempts[order.job_id]
        return Refused("lower-attempt", f"attempt {order.attempt} of {order.job_id} is over: attempt {newest} is known here")
    if not scene.lease.is_held(scene.now_ms):
        return Refused("lease-over", "the node has lost its lease and starts nothing until placement answers")
    if scene.lease.is_too_old(order.issued_at):
        return Refused("order-too-old", f"issued at {order.issued_at.isoformat()}, before this node's lease began")
    others = [other.order for name, other in scene.live.items() if name != key]
    older = tuple(other.key for other in others if other.job_id == order.job_id and other.attempt < order.attempt)
    if older:
        return Deferred(Refused("gpu-busy", f"an older attempt of {order.job_id} is still there"), older)
    return _fit(order, others, scene)


def _known(order: Order, scene: Scene) -> Verdict | None:
    past = scene.past.get(order.key)
    if past == "ended":
        return Repeated()
    if past == "barred":
        return Refused("order-too-old", "it was told to stop before it was started")
    return None


def _fit(order: Order, holders: list[Order], scene: Scene) -> Verdict:
    """Cards there, free enough, and room on the machine."""
    machine = scene.machine
    if machine is None:
        return Deferred(Refused("gpu-missing", "the node's cards have not been found yet"))
    missing = [part.gpu_uuid for part in order.slices if part.gpu_uuid in scene.lost or machine.card(part.gpu_uuid) is None]
    if missing:
        return Deferred(Refused("gpu-missing", f"the node does not see {', '.join(missing[:8])}"))
    return _cards_fit(order, holders, machine) or _room_fits(order, holders, machine) or Admitted()


def _cards_fit(order: Order, holders: list[Order], machine: Machine) -> Verdict | None:
    for part in order.slices:
        card = machine.card(part.gpu_uuid)
        if card is None:
            continue
        held = [(other.allocation_id, theirs) for other in holders for theirs in other.slices if theirs.gpu_uuid == part.gpu_uuid]
        milli = sum(theirs.milli for _, theirs in held)
        memory_mib = sum(theirs.memory_mib for _, theirs in held)
        if milli + part.milli > WHOLE_MILLI:
            names = ", ".join(sorted({name for name, _ in held})[:4]) or "nobody"
            return Deferred(Refused("gpu-busy", f"{part.gpu_uuid}: {part.milli} milli asked, {milli} held by {names}"))
        if memory_mib + part.memory_mib > card.memory_mib:
            return Deferred(
                Refused("no-room", f"{part.gpu_uuid}: {part.memory_mib} MiB asked, {memory_mib} of {card.memory_mib} MiB are held")
            )
    return None


def _room_fits(order: Order, holders: list[Order], machine: Machine) -> Verdict | None:
    cpu_milli = sum(other.cpu_milli for other in holders)
    if cpu_milli + order.cpu_milli > machine.cpu_milli:
        return Deferred(Refused("no-room", f"CPU: {order.cpu_milli} milli asked, {cpu_milli} of {machine.cpu_milli} are held"))
    memory_mib = sum(other.memory_mib for other in holders)
    if memory_mib + order.memory_mib > machine.memory_mib:
        return Deferred(Refused("no-room", f"memory: {order.memory_mib} MiB asked, {memory_mib} of {machine.memory_mib} MiB are held"))
    return None


def shares_of(order: Order, machine: Machine | None) -> tuple[tuple[int, int], ...]:
    """What part of each card is held: the greater of its share of compute and of memory, as billing prices it."""
    found: list[tuple[int, int]] = []
    for part in order.slices:
        card = None if machine is None else machine.card(part.gpu_uuid)
        share = Fraction(part.milli, WHOLE_MILLI)
        if card is not None and card.memory_mib > 0:
            share = max(share, Fraction(part.memory_mib, card.memory_mib))
        found.append((share.numerator, share.denominator))
    return tuple(found)


def gpu_ms(shares: tuple[tuple[int, int], ...], held_ms: int) -> int:
    """GPU-milliseconds: wall time times shares, rounded down once."""
    return int(sum((Fraction(above, below) for above, below in shares), Fraction(0)) * held_ms)
