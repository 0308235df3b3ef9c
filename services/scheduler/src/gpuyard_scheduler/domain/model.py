"""The nouns of scheduling: what is asked, what is held, what is planned, and why something waits.

All values are immutable. Capacity is counted in whole milli-GPU, MiB and milli-CPU; instants are aware datetimes, and in decisions
milliseconds since 1970 (:func:`millis`).
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple

from gpuyard_contracts.spec import JobSpec
from gpuyard_contracts.types import SlaClass

State = Literal["queued", "placing", "starting", "running", "stopping", "succeeded", "failed", "cancelled", "expired"]
LIVE: frozenset[State] = frozenset({"placing", "starting", "running", "stopping"})
"""States in which a job holds, or may hold, hardware."""
ENDED: frozenset[State] = frozenset({"succeeded", "failed", "cancelled", "expired"})

Waits = Literal[
    "not-considered-yet", "quota", "no-fit-model", "no-fit-memory", "no-fit-place", "no-free-gpus", "gang-incomplete", "behind-others",
    "preempting", "retry-pause", "fleet-empty", "fleet-blind", "tenant-unknown",
]  # fmt: skip
Ends = Literal[
    "completed", "exit-code", "killed-by-signal", "start-failed", "start-timeout", "time-limit", "cancelled-by-tenant",
    "cancelled-by-operator", "retries-exhausted", "refused-by-node", "lost",
]  # fmt: skip
Intent = Ends | Literal["preempted"]
"""Why a live job was told to stop: what it will end with, or that it yields and waits again."""
Requeues = Literal["gpu-fault", "node-lost", "node-drained", "node-restarted", "preempted", "retry", "start-failed", "plan-refused"]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_MICROSECOND = timedelta(microseconds=1)


def millis(at: datetime) -> int:
    """Milliseconds since 1970, rounded down."""
    return (at - EPOCH) // _MILLISECOND


def micros(at: datetime) -> int:
    """Microseconds since 1970: what jobs are ordered by, so that those of one unit stay in the order they came in."""
    return (at - EPOCH) // _MICROSECOND


class Kind(NamedTuple):
    """Cards that are alike: model (as :func:`gpuyard_contracts.models.plain_model` writes it) and memory of a whole card."""

    model: str
    memory_mib: int


class Ask(NamedTuple):
    """What a job needs to be placed; two jobs with equal asks fit in exactly the same places.

    Each of `ranks` equal processes takes `cards` cards on one node, whole ones or shares (`milli` of 1000, or `share_mib`).
    """

    ranks: int = 1
    cards: int = 1
    milli: int = 1000
    share_mib: int | None = None
    models: tuple[str, ...] = ()
    memory_min_mib: int = 0
    memory_max_mib: int | None = None
    mig_profile: str | None = None
    cpu_milli: int = 1000
    memory_mib: int = 1024
    zone: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    max_seconds: int | None = None
    avoid_nodes: frozenset[str] = frozenset()
    avoid_gpus: frozenset[str] = frozenset()
    is_spot: bool = False

    @property
    def is_share(self) -> bool:
        """Less than whole cards are asked for."""
        return self.milli < 1000 or self.share_mib is not None


class Slice(NamedTuple):
    """A part of one card."""

    gpu_uuid: str
    milli: int
    memory_mib: int


class RankPlan(NamedTuple):
    """Where one rank goes and what it takes there."""

    rank: int
    node_id: str
    slices: tuple[Slice, ...]
    cpu_milli: int
    memory_mib: int


class CardFacts(NamedTuple):
    """One card as its node describes it."""

    uuid: str
    model: str
    memory_mib: int
    sharing: str = "shared"
    links: frozenset[str] = frozenset()
    numa: int | None = None


class HoldFacts(NamedTuple):
    """What one rank of a live allocation holds on a node."""

    allocation_id: str
    rank: int
    slices: tuple[Slice, ...]
    cpu_milli: int
    memory_mib: int


class NodeFacts(NamedTuple):
    """The full state of one node, as placement last told it."""

    node_id: str
    version: int
    cards: tuple[CardFacts, ...]
    cpu_milli: int
    memory_mib: int
    zone: str = "default"
    labels: tuple[tuple[str, str], ...] = ()
    status: str = "ready"
    cordons: tuple[tuple[str, str | None], ...] = ()
    """Holder and, where only a card is meant, its UUID."""
    lost_gpus: frozenset[str] = frozenset()
    is_removed: bool = False
    holds: tuple[HoldFacts, ...] = ()


@dataclass(frozen=True, slots=True)
class Tenant:
    """What a tenant may use. A quota of None is no limit; what is held above the guarantee is borrowed and may be taken back."""

    tenant: str
    version: int = 1
    sla: SlaClass = "bronze"
    weight: int = 100
    quota_milli: int | None = None
    quota_mib: int | None = None
    guarantee_milli: int = 0
    max_waiting: int = 10_000
    max_requests_per_minute: int = 60_000
    is_suspended: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job and the attempt it is at.

    `aged_at` is where its waiting counts from; `not_before` the end of a pause; `ranks` the plan of the present attempt (none while it
    waits); `ordered_at` when placement was last told something that it has not answered; `intent` why it was told to stop; `told` the
    waiting reason that was last said.
    """

    job_id: str
    tenant: str
    request_id: str
    spec: JobSpec
    ask: Ask
    submitted_at: datetime
    traceparent: str | None = None
    state: State = "queued"
    attempt: int = 0
    aged_at: datetime
    not_before: datetime | None = None
    ranks: tuple[RankPlan, ...] = ()
    ordered_at: datetime | None = None
    started_at: datetime | None = None
    intent: Intent | None = None
    intent_detail: str = ""
    failures: int = 0
    moves: int = 0
    evictions: int = 0
    start_failures: int = 0
    refusals: int = 0
    is_unknown: bool = False
    told: Waits | None = None
    ended_at: datetime | None = None
    end_reason: Ends | None = None
    end_detail: str = ""
    exit_code: int | None = None

    @property
    def is_live(self) -> bool:
        """Whether it holds, or may hold, hardware."""
        return self.state in LIVE

    @property
    def is_ended(self) -> bool:
        """Whether it is over for good."""
        return self.state in ENDED


class Verdict(NamedTuple):
    """Why jobs wait. `look_at_ms`: the instant from which the same facts may give another answer."""

    reason: Waits
    detail: str
    look_at_ms: int | None = None


class Reservation(NamedTuple):
    """Nodes kept for a job that has waited long. `start_ms` None: nobody knows when what holds them will end.

    Without a `job_id` it only remembers that its kind was planned at `planned_ms`. `evicting`: who was told to make room for it.
    """

    kind: Kind
    job_id: str
    nodes: frozenset[str]
    start_ms: int | None
    planned_ms: int
    evicting: frozenset[str] = frozenset()


class Why(NamedTuple):
    """What a start was decided from, beside the fleet: the job's place in the order, its ask as it was searched for, and where it might go.

    `kinds` are those within the tenant's quota; `barred` are nodes that were kept for jobs before it.
    """

    place: tuple[bool, int, int, int, int, str]
    ask: Ask
    kinds: tuple[Kind, ...]
    barred: frozenset[str]


Slot = tuple[Kind, str]
"""Where a reservation is filed: its kind, and the job where others make room for it; empty for the one job that a kind is planned for."""


class Start(NamedTuple):
    """One job to be started. `seen`: the version of each planned node's state."""

    job_id: str
    ranks: tuple[RankPlan, ...]
    seen: dict[str, int]
    why: Why
