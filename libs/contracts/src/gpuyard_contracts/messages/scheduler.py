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
    "retry-pause", "fleet-empty", "fleet-blind", "tenant-unknown",
]  # fmt: skip
"""Why a job waits. Closed list; each waiting job is in exactly one class."""

EndReason = Literal[
    "completed", "exit-code", "killed-by-signal", "start-failed", "start-timeout", "time-limit", "cancelled-by-tenant",
    "cancelled-by-operator", "retries-exhausted", "refused-by-node", "lost",
]  # fmt: skip
"""Why a job has ended. Closed list."""

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


class JobPlacingV1(Payload):
    """A plan for the job went to placement."""

    SUBJECT: ClassVar[str] = "gpuyard.evt.scheduler.job.placing.v1.{tenant}.{job_id}"

    tenant: TenantId
    job_id: JobId
    attempt: Attempt
    ranks: tuple[RankPlanV1, ...]
    at: Instant


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
    reason: EndReason
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
    reason: EndReason
    detail: Detail = ""
