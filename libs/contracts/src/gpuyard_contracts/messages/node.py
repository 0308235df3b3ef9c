"""What a node says: workloads (``EVT_NODE_AGENT``), usage, health, telemetry, logs; and its heartbeat with placement's answer."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from gpuyard_contracts.envelope import Ask, Payload, Shape
from gpuyard_contracts.messages.placement import NodeFactsV1
from gpuyard_contracts.types import AllocationId, Attempt, Count, Detail, GpuUuid, Instant, JobId, Millis, NodeId, Rank, TenantId

StartRefusal = Literal["lower-attempt", "gpu-missing", "gpu-busy", "lease-over", "bad-command", "no-room", "order-too-old"]
EndCause = Literal["exited", "stopped", "fenced", "vanished", "start-failed", "not-running"]


class WorkloadStartedV1(Payload):
    """A rank's process runs."""

    SUBJECT: ClassVar[str] = "gpuyard.evt.node-agent.workload.started.v1.{tenant}.{job_id}.{node_id}"

    node_id: NodeId
    tenant: TenantId
    job_id: JobId
    allocation_id: AllocationId
    attempt: Attempt
    rank: Rank
    pid: int
    started_at: Instant


class WorkloadEndedV1(Payload):
    """A rank's process is gone, with all its children. `held_ms` is what it held its GPUs, by the node's monotonic clock."""

    SUBJECT: ClassVar[str] = "gpuyard.evt.node-agent.workload.ended.v1.{tenant}.{job_id}.{node_id}"

    node_id: NodeId
    tenant: TenantId
    job_id: JobId
    allocation_id: AllocationId
    attempt: Attempt
    rank: Rank
    cause: EndCause
    exit_code: int | None = None
    signal: int | None = None
    detail: Detail = ""
    """The last lines of stderr, where it failed."""
    started_at: Instant | None = None
    ended_at: Instant
    held_ms: Millis = 0


class WorkloadRefusedV1(Payload):
    """A start was refused; nothing runs of it. `is_permanent`: no node could ever start it."""

    SUBJECT: ClassVar[str] = "gpuyard.evt.node-agent.workload.refused.v1.{tenant}.{job_id}.{node_id}"

    node_id: NodeId
    tenant: TenantId
    job_id: JobId
    allocation_id: AllocationId
    attempt: Attempt
    rank: Rank
    reason: StartRefusal
    detail: Detail
    is_permanent: bool = False


class HeldV1(Shape):
    """How long one rank has held its GPUs so far, in GPU-milliseconds (wall × cards × share, rounded down): cumulative."""

    allocation_id: AllocationId
    tenant: TenantId
    rank: Rank
    gpu_ms: Millis
    held_ms: Millis


class UsageTickV1(Payload):
    """Evidence of use from one node. Cumulative, so lost, repeated and reordered ticks all come out at the same money."""

    SUBJECT: ClassVar[str] = "gpuyard.usage.v1.{node_id}"

    node_id: NodeId
    boot_id: str
    sequence: Count
    at: Instant
    held: tuple[HeldV1, ...]


class HealthEventV1(Payload):
    """Something happened to a card or to what watches it: an event with a count, never a gauge."""

    SUBJECT: ClassVar[str] = "gpuyard.health.v1.{node_id}"

    node_id: NodeId
    boot_id: str
    kind: Literal["xid", "ecc-uncorrectable", "ecc-corrected", "gpu-lost", "gpu-back", "observer-hung", "observer-back", "booted"]
    gpu_uuid: GpuUuid | None = None
    xid: int | None = None
    count: Count = 1
    detail: Detail = ""
    at: Instant


class GpuSampleV1(Shape):
    """One card's sample. What it did not tell is absent. Values out of any possible range never come this far."""

    gpu_uuid: GpuUuid
    temperature_c: Annotated[int, Field(ge=-50, le=250)] | None = None
    memory_temperature_c: Annotated[int, Field(ge=-50, le=250)] | None = None
    power_mw: Count | None = None
    energy_mj: Count | None = None
    utilization_percent: Annotated[int, Field(ge=0, le=100)] | None = None
    memory_utilization_percent: Annotated[int, Field(ge=0, le=100)] | None = None
    memory_used_mib: Count | None = None
    memory_free_mib: Count | None = None
    sm_clock_mhz: Count | None = None
    memory_clock_mhz: Count | None = None
    throttle_reasons: Count | None = None
    ecc_uncorrectable: Count | None = None
    ecc_corrected: Count | None = None
    is_lost: bool = False


class TelemetryV1(Payload):
    """All cards of one node at one instant. `bad_samples`: values dropped so far because they were out of range."""

    SUBJECT: ClassVar[str] = "gpuyard.tel.v1.{node_id}"

    node_id: NodeId
    boot_id: str
    sequence: Count
    at: Instant
    gpus: tuple[GpuSampleV1, ...]
    bad_samples: Count = 0


class LogLinesV1(Payload):
    """Output of one rank, in order. `first_line` numbers the lines of the attempt's rank and stream."""

    SUBJECT: ClassVar[str] = "gpuyard.log.v1.{tenant}.{job_id}.{rank}"

    node_id: NodeId
    tenant: TenantId
    job_id: JobId
    attempt: Attempt
    rank: Rank
    stream: Literal["stdout", "stderr"]
    first_line: Count
    lines: tuple[Detail, ...]
    at: Instant
    is_last: bool = False
    dropped_lines: Count = 0


class RunningV1(Shape):
    """A workload that lives on the node now."""

    allocation_id: AllocationId
    tenant: TenantId
    job_id: JobId
    attempt: Attempt
    rank: Rank
    pid: int
    started_at: Instant
    held_ms: Millis = 0
    is_stopping: bool = False


class HeartbeatReplyV1(Shape):
    """Placement's answer. `lease_ms` counts from when the node *sent* the heartbeat.

    `at` is placement's instant of answering: a node whose lease had ended takes no start order issued before the first answer.
    """

    is_accepted: bool
    lease_ms: Millis
    at: Instant
    detail: str = ""


class HeartbeatV1(Ask):
    """A node lives: what it has and everything that runs on it. Placement reconciles against it and renews the lease."""

    SUBJECT: ClassVar[str] = "gpuyard.hb.{node_id}"
    REPLY: ClassVar[type[Shape]] = HeartbeatReplyV1

    node_id: NodeId
    boot_id: str
    agent_id: str
    """New at each start of the agent."""
    sequence: Count
    at: Instant
    facts: NodeFactsV1
    lost_gpus: tuple[GpuUuid, ...] = ()
    running: tuple[RunningV1, ...] = ()
    unreported_ends: tuple[AllocationId, ...] = ()
    """Ends that are still on their way to the bus: placement must not take them for vanished."""
