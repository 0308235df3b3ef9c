"""Questions between processes, on core NATS: none of them lies on the way of a job. An answer may be late or missing; the asker says so."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from gpuyard_contracts.envelope import Ask, Shape
from gpuyard_contracts.messages.monitor import IncidentAction, IncidentKind
from gpuyard_contracts.messages.node import GpuSampleV1
from gpuyard_contracts.messages.scheduler import WaitReason
from gpuyard_contracts.types import (
    AllocationId,
    Count,
    Detail,
    GpuUuid,
    IncidentId,
    Instant,
    JobId,
    Line,
    Micros,
    Milli,
    Millis,
    NodeId,
    TenantId,
)

Limit = Annotated[int, Field(ge=1, le=1000)]


class ProblemV1(Shape):
    """The answer to a question that could not be answered."""

    problem: str
    detail: str = ""


# scheduler


class TenantQueueV1(Shape):
    """One tenant's place in the fleet now."""

    tenant: TenantId
    waiting: int
    running: int
    used_gpu_milli: Milli
    used_gpu_memory_mib: int
    dominant_share_ppm: int


class QueueReplyV1(Shape):
    """The queue now: how many wait for which reason (the classes sum to `waiting`), positions of the first thousand, tenants' shares."""

    waiting: int
    reasons: dict[WaitReason, int]
    positions: dict[JobId, int]
    tenants: tuple[TenantQueueV1, ...]
    is_blind: bool = False


class QueueAskV1(Ask):
    """What does the queue look like?"""

    SUBJECT: ClassVar[str] = "gpuyard.ask.scheduler.queue"
    REPLY: ClassVar[type[Shape]] = QueueReplyV1

    tenant: TenantId | None = None


# monitor


class WatchedGpuV1(Shape):
    """The last sample of one card. `is_stale`: too old to be believed; its values are absent then."""

    node_id: NodeId
    sample: GpuSampleV1
    at: Instant
    is_stale: bool


class GpusReplyV1(Shape):
    """Every card that monitor has heard of."""

    gpus: tuple[WatchedGpuV1, ...]


class GpusAskV1(Ask):
    """How are the cards?"""

    SUBJECT: ClassVar[str] = "gpuyard.ask.monitor.gpus"
    REPLY: ClassVar[type[Shape]] = GpusReplyV1

    node_id: NodeId | None = None


class IncidentV1(Shape):
    """One fault, open or over."""

    incident_id: IncidentId
    kind: IncidentKind
    node_id: NodeId
    gpu_uuid: GpuUuid | None = None
    action: IncidentAction
    evidence: Detail
    opened_at: Instant
    closed_at: Instant | None = None
    closing_evidence: Detail = ""


class IncidentsReplyV1(Shape):
    """Incidents, the youngest first."""

    incidents: tuple[IncidentV1, ...]


class IncidentsAskV1(Ask):
    """Which faults are open, or were?"""

    SUBJECT: ClassVar[str] = "gpuyard.ask.monitor.incidents"
    REPLY: ClassVar[type[Shape]] = IncidentsReplyV1

    node_id: NodeId | None = None
    open_only: bool = True
    limit: Limit = 100


# billing


class PriceV1(Shape):
    """Micro-units for one whole card of a model for one hour. Model ``*`` is any other."""

    model: str
    micros_per_gpu_hour: Annotated[int, Field(ge=0, le=10**15)]


class PriceBookV1(Shape):
    """Prices that hold from `valid_from` until a younger version does."""

    version: int
    currency: Annotated[str, Field(pattern=r"^[A-Z]{3}$")]
    valid_from: Instant
    prices: tuple[PriceV1, ...]


class PriceBookReplyV1(Shape):
    """All versions, the oldest first. `problem` says why a new one was not taken."""

    versions: tuple[PriceBookV1, ...]
    problem: str = ""


class PriceBookAskV1(Ask):
    """What do cards cost?"""

    SUBJECT: ClassVar[str] = "gpuyard.ask.billing.prices"
    REPLY: ClassVar[type[Shape]] = PriceBookReplyV1


class SetPricesAskV1(Ask):
    """A new version of the price book. It may not begin before the present one's last priced instant."""

    SUBJECT: ClassVar[str] = "gpuyard.ask.billing.set-prices"
    REPLY: ClassVar[type[Shape]] = PriceBookReplyV1

    request_id: str
    valid_from: Instant | None = None
    prices: Annotated[tuple[PriceV1, ...], Field(min_length=1, max_length=1000)]


class BalanceReplyV1(Shape):
    """What a tenant was granted, has used and has left, in micro-units."""

    tenant: TenantId
    currency: str
    credit_micros: Micros
    used_micros: Micros
    balance_micros: Micros


class BalanceAskV1(Ask):
    """What has a tenant left?"""

    SUBJECT: ClassVar[str] = "gpuyard.ask.billing.balance"
    REPLY: ClassVar[type[Shape]] = BalanceReplyV1

    tenant: TenantId


class GrantCreditAskV1(Ask):
    """Credit for a tenant. The same `request_id` again grants nothing more."""

    SUBJECT: ClassVar[str] = "gpuyard.ask.billing.grant-credit"
    REPLY: ClassVar[type[Shape]] = BalanceReplyV1

    tenant: TenantId
    request_id: str
    amount_micros: Annotated[int, Field(ge=1, le=10**15)]
    reason: Line


class UsageRowV1(Shape):
    """What one attempt of a job used and costs so far. `held_ms` is the billed wall time; `gpu_ms` that times cards and share."""

    tenant: TenantId
    job_id: JobId
    allocation_id: AllocationId
    models: tuple[str, ...]
    started_at: Instant
    billed_until: Instant
    is_final: bool
    held_ms: Millis
    gpu_ms: Millis
    evidence_gpu_ms: Millis = 0
    """What the nodes' own clocks counted: evidence to hold the bill against."""
    amount_micros: Micros


class UsageReplyV1(Shape):
    """Rows by start, with their sum. `next_cursor`: ask again with it for more."""

    rows: tuple[UsageRowV1, ...]
    currency: str
    total_micros: Micros
    total_gpu_ms: Millis
    next_cursor: str | None = None


class UsageAskV1(Ask):
    """What was used?"""

    SUBJECT: ClassVar[str] = "gpuyard.ask.billing.usage"
    REPLY: ClassVar[type[Shape]] = UsageReplyV1

    tenant: TenantId | None = None
    job_id: JobId | None = None
    since: Instant | None = None
    until: Instant | None = None
    cursor: str | None = None
    limit: Limit = 100


class EntryV1(Shape):
    """One line of the ledger. A transaction's entries sum to zero."""

    entry_id: Count
    transaction_id: str
    kind: str
    tenant: TenantId
    account: str
    amount_micros: Micros
    currency: str
    job_id: JobId | None = None
    allocation_id: AllocationId | None = None
    price_version: int | None = None
    period_start: Instant | None = None
    period_end: Instant | None = None
    booked_at: Instant
    memo: Detail = ""


class EntriesReplyV1(Shape):
    """Entries in the order they were booked."""

    entries: tuple[EntryV1, ...]
    next_cursor: str | None = None


class EntriesAskV1(Ask):
    """What stands in the ledger?"""

    SUBJECT: ClassVar[str] = "gpuyard.ask.billing.entries"
    REPLY: ClassVar[type[Shape]] = EntriesReplyV1

    tenant: TenantId | None = None
    job_id: JobId | None = None
    cursor: str | None = None
    limit: Limit = 100


class DifferenceV1(Shape):
    """One place where the ledger is not what the events say."""

    where: str
    expected: str
    found: str


class VerifyReplyV1(Shape):
    """The money, rebuilt from the events and compared to the unit."""

    is_right: bool
    transactions: int
    entries: int
    allocations: int
    events: int
    differences: tuple[DifferenceV1, ...] = ()
    expected_micros: Micros
    ledger_micros: Micros
    detail: str = ""


class VerifyAskV1(Ask):
    """Does the ledger say what the events say?"""

    SUBJECT: ClassVar[str] = "gpuyard.ask.billing.verify"
    REPLY: ClassVar[type[Shape]] = VerifyReplyV1


# node agent (simulated cards only)


class InjectReplyV1(Shape):
    """Whether the fault was taken."""

    is_done: bool
    detail: str = ""


class InjectFaultAskV1(Ask):
    """Make a simulated card or node misbehave. `value`: degrees, errors, the XID, or seconds; `gpu` is an index or a UUID."""

    SUBJECT: ClassVar[str] = "gpuyard.ask.node-agent.{node_id}.inject"
    REPLY: ClassVar[type[Shape]] = InjectReplyV1

    node_id: NodeId
    fault: Literal["temperature", "ecc", "xid", "lost", "hang", "silence", "recover"]
    gpu: str | None = None
    value: Count | None = None
