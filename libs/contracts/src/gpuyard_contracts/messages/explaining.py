"""Questions to scheduler about one job: why it waits, what would start it, and what would become of a job that is only thought of."""

from typing import ClassVar

from gpuyard_contracts.envelope import Ask, Shape
from gpuyard_contracts.messages.scheduler import RankPlanV1, ReceiptV1, RejectReason, WaitReason
from gpuyard_contracts.spec import JobSpec
from gpuyard_contracts.types import Instant, JobId, NodeId, TenantId


class VerdictV1(Shape):
    """Why one node cannot take one rank of the job now: the first constraint that fails, with numbers. `is_fit`: it could."""

    node_id: NodeId
    is_fit: bool
    constraint: str
    detail: str


class VerdictGroupV1(Shape):
    """All nodes of which the same can be said: how many they are, and the first of them by id (at most five)."""

    nodes: int
    node_ids: tuple[NodeId, ...]
    is_fit: bool
    constraint: str
    detail: str


class BindingV1(Shape):
    """The constraint that most of those nodes fail on which are of a kind that the job takes: `nodes` of the fleet's `of`."""

    constraint: str
    nodes: int
    of: int


class SuggestionV1(Shape):
    """A change that was tried by a real decision on the present state, and with which the job starts now.

    `field` is the job file's (or ``quota``, ``stop``), `was` and `to` as one writes them there; an empty `to`: leave it out.
    """

    field: str
    was: str
    to: str
    effect: str


class AccuracyV1(Shape):
    """How far past estimates were from what came: over the last `number` of them. Without any it is not measured yet."""

    number: int = 0
    median_ms: int = 0
    p90_ms: int = 0


class EstimateV1(Shape):
    """When the job starts: between `earliest` (nobody goes before it) and `latest` (all ahead go first), as far as can be said.

    None is not known, and `assumption` says why; else it says what was assumed.
    """

    earliest: Instant | None = None
    latest: Instant | None = None
    assumption: str = ""
    accuracy: AccuracyV1 = AccuracyV1()


class WaitingV1(Shape):
    """Why a job waits, and what would start it. `position` counts from 1 among all that wait; None where it stands in no line."""

    reason: WaitReason | None = None
    detail: str = ""
    position: int | None = None
    waiting: int = 0
    ahead: tuple[JobId, ...] = ()
    """The first jobs ahead, at most ten."""
    verdicts: tuple[VerdictV1, ...] = ()
    """Of single nodes, the nearest to a fit first, at most two hundred."""
    groups: tuple[VerdictGroupV1, ...] = ()
    binding: BindingV1 | None = None
    suggestions: tuple[SuggestionV1, ...] = ()
    estimate: EstimateV1 | None = None
    fleet_versions: dict[NodeId, int] = {}


class ExplainReplyV1(WaitingV1):
    """What scheduler knows of one job."""

    job_id: JobId
    state: str
    is_found: bool = True


class ExplainAskV1(Ask):
    """Why is this job waiting?"""

    SUBJECT: ClassVar[str] = "gpuyard.ask.scheduler.explain"
    REPLY: ClassVar[type[Shape]] = ExplainReplyV1

    job_id: JobId
    tenant: TenantId | None = None


class PlanReplyV1(WaitingV1):
    """What would become of the job. `rejected`: it would not be taken, for this reason; `ranks`: where it would start at once."""

    rejected: RejectReason | None = None
    ranks: tuple[RankPlanV1, ...] = ()
    receipt: ReceiptV1 | None = None


class PlanAskV1(Ask):
    """What would become of this job, were it submitted now? Nothing is kept of it."""

    SUBJECT: ClassVar[str] = "gpuyard.ask.scheduler.plan"
    REPLY: ClassVar[type[Shape]] = PlanReplyV1

    tenant: TenantId
    spec: JobSpec
