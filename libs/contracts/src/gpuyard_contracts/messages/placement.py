"""What placement says of allocations and nodes (``EVT_PLACEMENT``, ``FLEET``) and orders of nodes (``CMD_NODE``); acts on nodes."""

from typing import ClassVar, Literal

from gpuyard_contracts.envelope import Payload, Shape
from gpuyard_contracts.messages.scheduler import RankPlanV1, SliceV1
from gpuyard_contracts.spec import JobSpec
from gpuyard_contracts.types import (
    AllocationId,
    Attempt,
    Detail,
    GpuUuid,
    Instant,
    JobId,
    Labels,
    Line,
    Mib,
    Milli,
    Millis,
    NodeId,
    Rank,
    Reason,
    TenantId,
    Token,
)

NodeStatus = Literal["ready", "unknown", "lost"]
GpuHealth = Literal["healthy", "sick", "lost"]

RefuseReason = Literal[
    "slice-taken",
    "node-cordoned",
    "node-not-ready",
    "node-unknown",
    "gpu-cordoned",
    "gpu-missing",
    "capacity",
    "stale-attempt",
    "malformed-plan",
]
"""Why a plan was not committed. Closed list; a refusal is ordinary."""

ReleaseReason = Literal[
    "exited", "stopped", "start-failed", "start-refused", "start-timeout", "gpu-fault", "node-lost", "node-drained", "node-restarted",
    "process-vanished",
]  # fmt: skip
"""Why an allocation was released. Closed list. `stopped`: on the scheduler's order."""


class GpuV1(Shape):
    """One GPU as its node describes it. What the hardware does not tell is absent, never zero."""

    uuid: GpuUuid
    vendor: str = "nvidia"
    model: str
    memory_mib: Mib
    sharing: Literal["exclusive", "shared", "mig"] = "shared"
    index: int | None = None
    pci: str | None = None
    numa: int | None = None
    links: tuple[GpuUuid, ...] = ()
    """GPUs of the node that this one reaches over NVLink or xGMI."""
    driver: str | None = None
    cuda: str | None = None
    compute_capability: str | None = None


class NodeFactsV1(Shape):
    """What a node has. `display_name` keeps whatever the machine is called; the id is ASCII."""

    display_name: str
    address: str
    gpus: tuple[GpuV1, ...]
    cpu_milli: Milli
    memory_mib: Mib
    zone: Token = "default"
    labels: Labels = {}
    agent_version: str = ""
    backend: str = "simulated"
    rdma: bool = False


class HoldV1(Shape):
    """What one rank of a live allocation holds on a node."""

    allocation_id: AllocationId
    tenant: TenantId
    job_id: JobId
    rank: Rank
    slices: tuple[SliceV1, ...]
    cpu_milli: Milli
    memory_mib: Mib


class CordonV1(Shape):
    """Why nothing new is placed: one per holder. `gpu_uuid` narrows it to one card."""

    holder: Line
    reason: Detail
    gpu_uuid: GpuUuid | None = None
    is_drain: bool = False
    at: Instant


class NodeStateV1(Payload):
    """The full state of one node (``FLEET``, last per subject). Free capacity is what the holds leave."""

    SUBJECT: ClassVar[str] = "gpuyard.state.node.v1.{node_id}"

    node_id: NodeId
    version: int
    status: NodeStatus
    facts: NodeFactsV1
    holds: tuple[HoldV1, ...] = ()
    cordons: tuple[CordonV1, ...] = ()
    lost_gpus: tuple[GpuUuid, ...] = ()
    """GPUs that the node once had and does not see now."""
    is_removed: bool = False
    last_heard_at: Instant
    boot_id: str = ""


class AllocationCommittedV1(Payload):
    """The plan was committed: the slices are held by this attempt."""

    SUBJECT: ClassVar[str] = "gpuyard.evt.placement.allocation.committed.v1.{tenant}.{allocation_id}"

    tenant: TenantId
    allocation_id: AllocationId
    job_id: JobId
    attempt: Attempt
    ranks: tuple[RankPlanV1, ...]
    models: dict[GpuUuid, str]
    """The model of every GPU held: what is priced."""
    gpu_memory_mib: dict[GpuUuid, Mib] = {}
    """The whole memory of every GPU held, by which a share by memory is priced."""
    at: Instant


class AllocationRefusedV1(Payload):
    """The plan was not committed; nothing is held by it."""

    SUBJECT: ClassVar[str] = "gpuyard.evt.placement.allocation.refused.v1.{tenant}.{allocation_id}"

    tenant: TenantId
    allocation_id: AllocationId
    job_id: JobId
    attempt: Attempt
    reason: RefuseReason
    detail: Detail


class AllocationStartedV1(Payload):
    """Every rank's process runs: what is held is billed from `started_at`."""

    SUBJECT: ClassVar[str] = "gpuyard.evt.placement.allocation.started.v1.{tenant}.{allocation_id}"

    tenant: TenantId
    allocation_id: AllocationId
    job_id: JobId
    attempt: Attempt
    started_at: Instant


class AllocationReleasedV1(Payload):
    """The slices are free again. `ended_at` is the last instant for which the work is known to have run; never before `started_at`."""

    SUBJECT: ClassVar[str] = "gpuyard.evt.placement.allocation.released.v1.{tenant}.{allocation_id}"

    tenant: TenantId
    allocation_id: AllocationId
    job_id: JobId
    attempt: Attempt
    started_at: Instant | None = None
    """None: it never ran, so it costs nothing."""
    ended_at: Instant
    reason: ReleaseReason
    detail: Detail = ""
    exit_code: int | None = None
    signal: int | None = None
    is_permanent: bool = False
    """A start that can never succeed (no such program): trying again is useless."""
    avoid_gpus: tuple[GpuUuid, ...] = ()
    avoid_nodes: tuple[NodeId, ...] = ()


class NodeEnrolledV1(Payload):
    """A node was seen for the first time, or came back with other hardware."""

    SUBJECT: ClassVar[str] = "gpuyard.evt.placement.node.enrolled.v1._.{node_id}"

    node_id: NodeId
    facts: NodeFactsV1
    at: Instant


class NodeStatusChangedV1(Payload):
    """A node is heard, silent, or given up."""

    SUBJECT: ClassVar[str] = "gpuyard.evt.placement.node.status-changed.v1._.{node_id}"

    node_id: NodeId
    status: NodeStatus
    was: NodeStatus
    detail: Detail = ""
    at: Instant


class NodeCordonedV1(Payload):
    """Nothing new goes to the node (or the card) while this holder holds."""

    SUBJECT: ClassVar[str] = "gpuyard.evt.placement.node.cordoned.v1._.{node_id}"

    node_id: NodeId
    cordon: CordonV1


class NodeUncordonedV1(Payload):
    """A holder has let go; others may still hold."""

    SUBJECT: ClassVar[str] = "gpuyard.evt.placement.node.uncordoned.v1._.{node_id}"

    node_id: NodeId
    holder: Line
    gpu_uuid: GpuUuid | None = None
    still_held_by: tuple[str, ...] = ()
    at: Instant


class FleetSightChangedV1(Payload):
    """So many nodes fell silent at once that it is we who are blind (`is_blind`), or we see again. Nothing is moved while blind."""

    SUBJECT: ClassVar[str] = "gpuyard.evt.placement.fleet.sight-changed.v1._.fleet"

    is_blind: bool
    silent_nodes: int
    nodes: int
    at: Instant


class NodeCordonV1(Payload):
    """An operator, or monitor's incident through placement itself, takes a node or a card out of service."""

    SUBJECT: ClassVar[str] = "gpuyard.cmd.placement.cordon.v1.{node_id}"

    node_id: NodeId
    holder: Line
    reason: Reason = ""
    gpu_uuid: GpuUuid | None = None
    is_drain: bool = False
    """What runs there is moved away too."""


class NodeUncordonV1(Payload):
    """A holder lets go. A drain that is still going on ends as cancelled."""

    SUBJECT: ClassVar[str] = "gpuyard.cmd.placement.uncordon.v1.{node_id}"

    node_id: NodeId
    holder: Line
    gpu_uuid: GpuUuid | None = None


class RendezvousV1(Shape):
    """How the ranks of a gang find each other."""

    rank: Rank
    world_size: int
    local_rank: int
    local_world_size: int
    master_addr: str
    master_port: int


class StartV1(Payload):
    """Start one rank. A repeated order finds the process that it started before; a lower attempt than one known is refused."""

    SUBJECT: ClassVar[str] = "gpuyard.cmd.node-agent.{node_id}.start.v1"

    node_id: NodeId
    tenant: TenantId
    job_id: JobId
    allocation_id: AllocationId
    attempt: Attempt
    spec: JobSpec
    slices: tuple[SliceV1, ...]
    rendezvous: RendezvousV1
    issued_at: Instant


class StopV1(Payload):
    """Stop one rank: SIGTERM, then SIGKILL of the whole group after the grace. What does not run is reported as ended."""

    SUBJECT: ClassVar[str] = "gpuyard.cmd.node-agent.{node_id}.stop.v1"

    node_id: NodeId
    tenant: TenantId
    job_id: JobId
    allocation_id: AllocationId
    attempt: Attempt
    rank: Rank
    grace_ms: Millis
    reason: Detail
    issued_at: Instant
