"""What scheduler says of jobs (``EVT_SCHEDULER``) and asks of placement (``CMD_PLACEMENT``)."""

from typing import ClassVar, Literal

from gpuyard_contracts.envelope import Payload, Shape
from gpuyard_contracts.spec import JobSpec
from gpuyard_contracts.types import (
    AllocationId,
    Attempt,
    Detail,
    GpuUuid,
    Instant,
    JobId,
    Mib,
    Milli,
    NodeId,
    Rank,
    RequestId,
    TenantId,
)

RejectReason = Literal[
    "malformed",
    "tenant-unknown",
    "tenant-suspended",
    "too-many-waiting",
    "too-many-requests",
    "never-fits",
    "over-quota-for-ever",
    "internal-error",
]
"""Why a request was not taken. Closed list."""

WaitReason = Literal[
    "not-considered-yet", "quota", "no-fit-model", "no-fit-memory", "no-fit-place", "no-free-gpus", "gang-incomplete", "behind-others",
    "preempting", "retry-pause", "fleet-empty", "fleet-blind", "tenant-unknown",
]  # fmt: skip
"""Why a job waits. Closed list; each waiting job is in exactly one class."""

EndReason = Literal[
    "completed", "exit-code", "killed-by-signal", "start-failed", "start-timeout", "time-limit", "cancelled-by-tenant",
    "cancelled-by-operator", "retries-exhausted", "refused-by-node", "lost",
]  # fmt: skip
"""Why a job has ended. Closed list."""

StopReason = EndReason | Literal["preempted"]
"""Why a live job was told to stop: what it will end with, or that it makes room for another and waits again."""

RequeueReason = Literal["gpu-fault", "node-lost", "node-drained", "node-restarted", "preempted", "retry", "start-failed", "plan-refused"]
"""Why a job went back to the queue. Closed list."""

EndState = Literal["succeeded", "failed", "cancelled", "expired"]


class SliceV1(Shape):
    """A part of one GPU: `milli` of its compute (1000 = all) and `memory_mib` of its memory."""

    gpu_uuid: GpuUuid
    milli: Milli
    memory_mib: Mib


class RankPlanV1(Shape):
    """Where one rank goes and what it takes there."""

    rank: Rank
    node_id: NodeId
    slices: tuple[SliceV1, ...]
    cpu_milli: Milli
    memory_mib: Mib


class JobQueuedV1(Payload):
    """A request was accepted: the job exists and waits."""

    SUBJECT: ClassVar[str] = "gpuyard.evt.scheduler.job.queued.v1.{tenant}.{job_id}"

    tenant: TenantId
    job_id: JobId
    request_id: RequestId
    spec: JobSpec
    submitted_at: Instant


class JobRejectedV1(Payload):
    """A request was not taken. For a request without a readable id, `request_id` is the message's."""

    SUBJECT: ClassVar[str] = "gpuyard.evt.scheduler.job.rejected.v1.{tenant}.{job_id}"

    tenant: TenantId
    job_id: JobId
    request_id: RequestId
    reason: RejectReason
    detail: Detail
    name: str = ""


class JobWaitingV1(Payload):
    """Why the job waits has changed."""

    SUBJECT: ClassVar[str] = "gpuyard.evt.scheduler.job.waiting.v1.{tenant}.{job_id}"

    tenant: TenantId
    job_id: JobId
    reason: WaitReason
    detail: Detail
    at: Instant


class CandidateV1(Shape):
    """One node that was looked at: the version of its state, its score (the smaller the better) and what each weighted term said of it.

    Terms are in micro-GPU; those of weight 0 are left out.
    """

    node_id: NodeId
    version: int
    score: int
    terms: dict[str, int] = {}


class TurnV1(Shape):
    """Why it was the job's turn: compared from the first to the last; `is_spare`: it runs only on what nobody else wants.

    `share_ppm`: the tenant's dominant share above its guarantee, as it counts for a tenant of weight 100.
    """

    is_spare: bool
    rank: int
    urgency: int
    share_ppm: int
    aged_at_us: int


class ReceiptV1(Shape):
    """Why the job was placed where it was. The same inputs give the same receipt, bit for bit.

    `fits` places found room for a rank, of which `chosen` (the first five nodes of the plan, `nodes` in all) were taken and `runners_up`
    were the next best of the same kind of card; `kept_nodes` were kept for jobs before this one. `fleet`, `policy` and `outlook` are
    digests of what was known and of the rules; `inputs` is the digest of all that the decision was made from.
    """

    fits: int
    nodes: int
    kept_nodes: int = 0
    chosen: tuple[CandidateV1, ...]
    runners_up: tuple[CandidateV1, ...] = ()
    turn: TurnV1
    weights: dict[str, int] = {}
    policy: str
    outlook: str
    fleet: str
    inputs: str


class JobPlacingV1(Payload):
    """A plan for the job went to placement. `receipt` says why there; in messages of older versions there is none."""

    SUBJECT: ClassVar[str] = "gpuyard.evt.scheduler.job.placing.v1.{tenant}.{job_id}"

    tenant: TenantId
    job_id: JobId
    attempt: Attempt
    ranks: tuple[RankPlanV1, ...]
    at: Instant
    receipt: ReceiptV1 | None = None


class JobStartingV1(Payload):
    """The plan was committed; the nodes have been told to start."""

    SUBJECT: ClassVar[str] = "gpuyard.evt.scheduler.job.starting.v1.{tenant}.{job_id}"

    tenant: TenantId
    job_id: JobId
    attempt: Attempt
    at: Instant


class JobRunningV1(Payload):
    """Every rank runs."""

    SUBJECT: ClassVar[str] = "gpuyard.evt.scheduler.job.running.v1.{tenant}.{job_id}"

    tenant: TenantId
    job_id: JobId
    attempt: Attempt
    started_at: Instant


class JobStoppingV1(Payload):
    """The job was told to stop."""

    SUBJECT: ClassVar[str] = "gpuyard.evt.scheduler.job.stopping.v1.{tenant}.{job_id}"

    tenant: TenantId
    job_id: JobId
    attempt: Attempt
    reason: StopReason
    detail: Detail = ""
    at: Instant


class JobUnknownV1(Payload):
    """The job's node is silent (`is_unknown`), or is heard again. The job itself goes on."""

    SUBJECT: ClassVar[str] = "gpuyard.evt.scheduler.job.unknown.v1.{tenant}.{job_id}"

    tenant: TenantId
    job_id: JobId
    attempt: Attempt
    is_unknown: bool
    at: Instant


class JobRequeuedV1(Payload):
    """An attempt is over, the job is not: it waits again. `attempt` is the one that ended."""

    SUBJECT: ClassVar[str] = "gpuyard.evt.scheduler.job.requeued.v1.{tenant}.{job_id}"

    tenant: TenantId
    job_id: JobId
    attempt: Attempt
    reason: RequeueReason
    detail: Detail
    at: Instant


class JobEndedV1(Payload):
    """The job is over, for good."""

    SUBJECT: ClassVar[str] = "gpuyard.evt.scheduler.job.ended.v1.{tenant}.{job_id}"

    tenant: TenantId
    job_id: JobId
    attempt: int
    """The last attempt; 0 if there was none."""
    state: EndState
    reason: EndReason
    detail: Detail
    exit_code: int | None = None
    at: Instant


class PlaceV1(Payload):
    """A plan: hold these slices for this attempt and start it. Whole or not at all."""

    SUBJECT: ClassVar[str] = "gpuyard.cmd.placement.place.v1.{job_id}"

    tenant: TenantId
    job_id: JobId
    allocation_id: AllocationId
    attempt: Attempt
    spec: JobSpec
    ranks: tuple[RankPlanV1, ...]
    seen: dict[NodeId, int]
    """The version of each planned node's state that the plan was made on."""


class ReleaseV1(Payload):
    """Give up what this attempt holds; its processes are told to stop first."""

    SUBJECT: ClassVar[str] = "gpuyard.cmd.placement.release.v1.{job_id}"

    tenant: TenantId
    job_id: JobId
    attempt: Attempt
    reason: StopReason
    detail: Detail = ""
