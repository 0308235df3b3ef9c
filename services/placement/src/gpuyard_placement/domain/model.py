"""The nouns of placement: nodes, what is held on them, and who may not place there.

Pure and frozen: a change is a new row. Amounts are integers (milli-GPU, milli-CPU, MiB), instants are aware and in UTC.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

NodeStatus = Literal["ready", "unknown", "lost"]
AllocationState = Literal["committed", "starting", "running", "stopping", "released"]
RankStatus = Literal["ordered", "started", "ended", "refused", "lost"]

ReleaseReason = Literal[
    "exited", "stopped", "start-failed", "start-refused", "start-timeout", "gpu-fault", "node-lost", "node-drained", "node-restarted",
    "process-vanished",
]  # fmt: skip

RankKey = tuple[str, int]
"""One rank of one allocation: allocation id and rank."""

WHOLE_MILLI = 1000
"""A whole card in milli-GPU."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """A card as its node sees it now."""

    uuid: str
    model: str
    memory_mib: int
    is_shareable: bool = True


@dataclass(frozen=True, slots=True)
class Facts:
    """What a node has. `text` is the whole description as canonical JSON: two nodes with the same text are alike in everything."""

    text: str
    address: str
    cpu_milli: int
    memory_mib: int
    gpus: tuple[Gpu, ...]


@dataclass(frozen=True, slots=True)
class Node:
    """A node that was enrolled, as it is published. `lost_gpus`: cards that it once had and does not see now."""

    node_id: str
    status: NodeStatus
    boot_id: str
    facts: Facts
    lost_gpus: tuple[str, ...] = ()

    def gpu(self, uuid: str) -> Gpu | None:
        """The card of this UUID, if the node sees it now."""
        for found in self.facts.gpus:
            if found.uuid == uuid:
                return found
        return None


@dataclass(frozen=True, slots=True)
class Mark:
    """What is known of a node and not published: the version of its state, when it was last heard (written every few seconds), its agent.

    `past_agents`: the agents that were replaced, the youngest last.
    """

    node_id: str
    version: int
    heard_at: datetime
    agent_id: str
    past_agents: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Cordon:
    """Nothing new is placed on the node (or on its card `gpu_uuid`; empty: the whole node) while this holder holds."""

    node_id: str
    holder: str
    gpu_uuid: str
    reason: str
    is_drain: bool
    at: datetime


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of one card: `milli` of its compute and `memory_mib` of its memory; 1000 milli is the card alone."""

    gpu_uuid: str
    milli: int
    memory_mib: int


@dataclass(frozen=True, slots=True)
class RankPlan:
    """Where one rank goes and what it takes there."""

    rank: int
    node_id: str
    slices: tuple[Slice, ...]
    cpu_milli: int
    memory_mib: int


@dataclass(frozen=True, slots=True)
class Plan:
    """A proposal: hold all of it for this attempt, or nothing."""

    tenant: str
    job_id: str
    allocation_id: str
    attempt: int
    ranks: tuple[RankPlan, ...]
    world_size: int
    gpus_per_rank: int


@dataclass(frozen=True, slots=True)
class Held:
    """One slice that is held: the row behind the rule that a card is never given away twice. `capacity_mib` is the card's memory."""

    gpu_uuid: str
    allocation_id: str
    rank: int
    node_id: str
    milli: int
    memory_mib: int
    capacity_mib: int


@dataclass(frozen=True, slots=True)
class RankState:
    """What is known of one rank. `seen_at`: when placement learnt of its start. `is_clean`: it exited by itself with 0."""

    status: RankStatus = "ordered"
    started_at: datetime | None = None
    seen_at: datetime | None = None
    ended_at: datetime | None = None
    is_clean: bool = False

    @property
    def is_gone(self) -> bool:
        """Nothing of it runs any more, or ever will."""
        return self.status in ("ended", "refused", "lost")


@dataclass(frozen=True, slots=True)
class Stop:
    """Why an allocation goes, decided once: the first reason stays. `rank` is the one that failed, if one did."""

    reason: ReleaseReason
    detail: str
    sent_at: datetime
    rank: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    is_permanent: bool = False
    avoid_gpus: tuple[str, ...] = ()
    avoid_nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Terms:
    """What never changes of an allocation. `plan[n]` is rank n; `cards` says model and whole memory of every card held."""

    plan: tuple[RankPlan, ...]
    cards: tuple[Gpu, ...]
    port: int
    grace_ms: int
    start_by: datetime
    traceparent: str | None = None


@dataclass(frozen=True, slots=True)
class Allocation:
    """One attempt's committed hold. `ranks[n]` is the state of rank n."""

    allocation_id: str
    tenant: str
    job_id: str
    attempt: int
    state: AllocationState
    terms: Terms
    ranks: tuple[RankState, ...]
    committed_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    stop: Stop | None = None

    @property
    def is_live(self) -> bool:
        """It holds its slices."""
        return self.state != "released"

    def nodes(self) -> tuple[str, ...]:
        """The nodes it is on, each once, in order of rank."""
        plan = self.terms.plan
        return (plan[0].node_id,) if len(plan) == 1 else tuple(dict.fromkeys(found.node_id for found in plan))

    def holds_gpu(self, node_id: str, gpu_uuid: str) -> bool:
        """Whether it holds something of this card on this node."""
        return any(found.node_id == node_id and any(part.gpu_uuid == gpu_uuid for part in found.slices) for found in self.terms.plan)


@dataclass(frozen=True, slots=True)
class Tombstone:
    """Something that may not come back: a job's attempts up to `attempt`, or an incident that was closed before it was opened here."""

    key: str
    attempt: int
    at: datetime


@dataclass(frozen=True, slots=True)
class Sight:
    """Whether so much of the fleet is silent that it is we who are blind."""

    is_blind: bool
    at: datetime


@dataclass(frozen=True, slots=True)
class Policy:
    """The periods and limits by which placement judges.

    - `lease`: how long a node may go on after an answered heartbeat; `lost_margin` after it the node is given up
    - `settle_after_start`: a start that is recorded since less than this may not be in the node's list yet
    - `stray_after_release`: a list may be older than an end that is younger than this
    - `ask_again`: a stop that is not answered is sent again after the job's grace and this
    - `vanish_after`: a process that its node neither lists nor says to have ended is given up this long after the node was asked
    - `gap_is_deafness`: longer than this between two of our own looks, and it is we who did not listen
    - `keep_tombstones`, `keep_released`: then they are forgotten
    """

    lease: timedelta = timedelta(seconds=15)
    unknown_after: timedelta = timedelta(seconds=5)
    lost_margin: timedelta = timedelta(seconds=2)
    settle_after_start: timedelta = timedelta(seconds=2)
    stray_after_release: timedelta = timedelta(seconds=2)
    ask_again: timedelta = timedelta(seconds=10)
    vanish_after: timedelta = timedelta(seconds=30)
    gap_is_deafness: timedelta = timedelta(seconds=5)
    keep_tombstones: timedelta = timedelta(minutes=10)
    keep_released: timedelta = timedelta(days=30)
    drain_at_once: int = 8
    first_port: int = 20_000
    last_port: int = 29_999
