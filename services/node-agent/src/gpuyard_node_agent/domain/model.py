"""The agent's nouns: an order, the workload that it becomes, the cards that it runs on.

Instants of people are aware datetimes; everything that is measured runs on the machine's boot clock in milliseconds (`…_ms`), which
neither jumps nor stops, and is the same for an agent and the one after it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Literal

Reason = Literal["lower-attempt", "gpu-missing", "gpu-busy", "lease-over", "bad-command", "no-room", "order-too-old"]
Cause = Literal["exited", "stopped", "fenced", "vanished", "start-failed", "not-running"]

WHOLE_MILLI = 1000


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of one card: `milli` of its compute, `memory_mib` of its memory."""

    gpu_uuid: str
    milli: int
    memory_mib: int


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU as it was found. `links`: cards reached over NVLink. What the hardware does not tell is None."""

    uuid: str
    model: str
    memory_mib: int
    index: int
    vendor: str = "nvidia"
    sharing: Literal["exclusive", "shared", "mig"] = "shared"
    pci: str | None = None
    numa: int | None = None
    links: tuple[str, ...] = ()
    driver: str | None = None
    cuda: str | None = None
    compute_capability: str | None = None


@dataclass(frozen=True, slots=True)
class Machine:
    """What the node has besides cards, and its cards."""

    cards: tuple[Card, ...]
    cpu_milli: int
    memory_mib: int

    def card(self, uuid: str) -> Card | None:
        """The card of this UUID."""
        return next((card for card in self.cards if card.uuid == uuid), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Start this rank of this attempt. `order_id` and `traceparent` are the message's."""

    allocation_id: str
    tenant: str
    job_id: str
    attempt: int
    rank: int
    command: tuple[str, ...]
    env: Mapping[str, str]
    slices: tuple[Slice, ...]
    cpu_milli: int
    memory_mib: int
    world_size: int
    local_rank: int
    local_world_size: int
    master_addr: str
    master_port: int
    issued_at: datetime
    order_id: str
    traceparent: str | None = None

    @property
    def key(self) -> str:
        """Names the workload on this node: one rank of one attempt. Safe as a file name."""
        return key_of(self.allocation_id, self.rank)


def key_of(allocation_id: str, rank: int) -> str:
    """The name of one rank of one attempt."""
    return f"{allocation_id}.{rank}"


class State(StrEnum):
    """Where a workload stands; :mod:`gpuyard_node_agent.domain.states` says how it moves."""

    WAITING = "waiting"
    """Taken; something on the node is not ready for it yet."""
    LAUNCHED = "launched"
    """The keeper was told to start it; whether it has is not known."""
    RUNNING = "running"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One rank of one attempt that lives on this node. `ticks` is the process's start time, which tells it from a later one of that pid.

    `keeper` names the keeper that was told to launch it, `uid` the user that it runs as (None: the agent's own). `shares`: what part of
    each card it holds, as numerator and denominator.
    """

    order: Order
    state: State
    taken_ms: int
    keeper: str = ""
    uid: int | None = None
    pid: int = 0
    ticks: int = 0
    started_at: datetime | None = None
    started_ms: int = 0
    shares: tuple[tuple[int, int], ...] = ()

    @property
    def key(self) -> str:
        """The order's key."""
        return self.order.key

    @property
    def is_started(self) -> bool:
        """Its process is known to have run."""
        return self.started_at is not None


@dataclass(frozen=True, slots=True)
class Gone:
    """How a process ended: all of its group is gone. `code` and `signal` are None where nobody was there to see.

    `is_unseen`: it was found gone, so not even the instant is known; `ended_ms` is when it was looked for.
    """

    key: str
    ended_ms: int
    code: int | None = None
    signal: int | None = None
    is_stopped: bool = False
    is_fenced: bool = False
    is_unseen: bool = False


@dataclass(frozen=True, slots=True)
class Born:
    """A process that runs for a key."""

    key: str
    pid: int
    ticks: int
    started_ms: int
    started_at: datetime
