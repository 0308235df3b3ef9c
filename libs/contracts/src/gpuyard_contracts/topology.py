"""Streams, durables and who may publish or read what: data, made real by one bootstrap step and never by a service.

Filters and permissions are derived from the message classes, so that a new message needs one line here at most.
"""

from dataclasses import dataclass
from typing import Literal

from gpuyard_contracts import catalog
from gpuyard_contracts.envelope import Payload
from gpuyard_contracts.messages import monitor, node, placement, requests, scheduler
from gpuyard_contracts.subjects import wildcard

DAY = 86_400.0
MIB = 2**20


@dataclass(frozen=True, slots=True)
class Stream:
    """One stream. `is_state`: only the last message per subject is kept. Sizes in bytes, -1 is without limit."""

    name: str
    subjects: tuple[str, ...]
    publisher: str
    max_age_seconds: float = 30 * DAY
    discard: Literal["old", "new"] = "old"
    retention: Literal["limits", "workqueue"] = "limits"
    is_state: bool = False
    max_bytes: int = -1
    max_message_bytes: int = -1
    duplicate_window_seconds: float = 120.0

    @property
    def max_messages_per_subject(self) -> int:
        """1 for state, else without limit."""
        return 1 if self.is_state else -1


@dataclass(frozen=True, slots=True)
class Durable:
    """One service's place in one stream."""

    service: str
    stream: str
    name: str
    filters: tuple[str, ...]
    ack_wait_seconds: float = 30.0
    max_ack_pending: int = 5000


SERVICES = ("api", "scheduler", "placement", "monitor", "billing")
"""Services with a database of their own; node agents have none."""

STREAMS: tuple[Stream, ...] = (
    # The least window that the server takes: a request's id is its tenant's own, so ids are not compared (Envelope.inbox_key).
    Stream(
        "REQUESTS",
        ("gpuyard.req.>",),
        "tenants, api",
        discard="new",
        max_bytes=512 * MIB,
        max_message_bytes=MIB,
        duplicate_window_seconds=0.1,
    ),
    Stream("EVT_SCHEDULER", ("gpuyard.evt.scheduler.>",), "scheduler", discard="new", max_bytes=4096 * MIB),
    Stream("EVT_PLACEMENT", ("gpuyard.evt.placement.>",), "placement", discard="new", max_bytes=4096 * MIB),
    Stream("EVT_NODE_AGENT", ("gpuyard.evt.node-agent.>",), "node-agent", discard="new", max_bytes=2048 * MIB),
    Stream("EVT_MONITOR", ("gpuyard.evt.monitor.>",), "monitor", discard="new", max_bytes=512 * MIB),
    Stream("EVT_BILLING", ("gpuyard.evt.billing.>",), "billing", discard="new", max_bytes=2048 * MIB),
    Stream("CMD_PLACEMENT", ("gpuyard.cmd.placement.>",), "scheduler, api", discard="new", retention="workqueue", max_bytes=1024 * MIB),
    Stream("CMD_NODE", ("gpuyard.cmd.node-agent.>",), "placement", discard="new", retention="workqueue", max_bytes=1024 * MIB),
    Stream("FLEET", ("gpuyard.state.node.>",), "placement", max_age_seconds=0, is_state=True),
    Stream("TENANTS", ("gpuyard.state.tenant.>",), "api", max_age_seconds=0, is_state=True),
    Stream("USAGE", ("gpuyard.usage.>",), "node-agent", max_age_seconds=35 * DAY, discard="new", max_bytes=4096 * MIB),
    Stream("HEALTH", ("gpuyard.health.>",), "node-agent", max_age_seconds=7 * DAY, max_bytes=512 * MIB),
    Stream("TELEMETRY", ("gpuyard.tel.>",), "node-agent", max_age_seconds=3600, max_bytes=1024 * MIB),
    Stream("LOGS", ("gpuyard.log.>",), "node-agent", max_age_seconds=DAY, max_bytes=2048 * MIB),
    Stream("DLQ", ("gpuyard.dlq.>",), "runtime", max_bytes=1024 * MIB),
    Stream("ADVISORIES", ("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.>", "$JS.EVENT.ADVISORY.STREAM.>"), "server", max_bytes=128 * MIB),
)

_HEARD: dict[str, dict[str, tuple[type[Payload], ...]]] = {
    "scheduler": {
        "REQUESTS": (requests.JobSubmitV1, requests.JobCancelV1),
        "EVT_PLACEMENT": (
            placement.AllocationCommittedV1,
            placement.AllocationRefusedV1,
            placement.AllocationStartedV1,
            placement.AllocationReleasedV1,
            placement.NodeStatusChangedV1,
            placement.FleetSightChangedV1,
        ),
    },
    "placement": {
        "CMD_PLACEMENT": (scheduler.PlaceV1, scheduler.ReleaseV1, placement.NodeCordonV1, placement.NodeUncordonV1),
        "EVT_NODE_AGENT": (node.WorkloadStartedV1, node.WorkloadEndedV1, node.WorkloadRefusedV1),
        "EVT_MONITOR": (monitor.IncidentOpenedV1, monitor.IncidentClosedV1),
    },
    "monitor": {
        "HEALTH": (node.HealthEventV1,),
        "EVT_PLACEMENT": (placement.NodeStatusChangedV1, placement.NodeEnrolledV1),
    },
    "billing": {
        "EVT_PLACEMENT": (placement.AllocationCommittedV1, placement.AllocationStartedV1, placement.AllocationReleasedV1),
        "USAGE": (node.UsageTickV1,),
    },
    "api": {
        stream: tuple(kind for kind in catalog.PAYLOADS if kind.TYPE.startswith(prefix))
        for stream, prefix in (
            ("EVT_SCHEDULER", "gpuyard.evt.scheduler."),
            ("EVT_PLACEMENT", "gpuyard.evt.placement."),
            ("EVT_NODE_AGENT", "gpuyard.evt.node-agent."),
            ("EVT_MONITOR", "gpuyard.evt.monitor."),
            ("EVT_BILLING", "gpuyard.evt.billing."),
        )
    },
}

_HEARS_WITHOUT_DURABLE: dict[str, tuple[str, ...]] = {
    "scheduler": ("FLEET", "TENANTS"),
    "placement": (),
    "monitor": ("TELEMETRY",),
    "billing": (),
    "api": ("FLEET", "LOGS"),
}
"""Streams that a service reads by ephemeral consumers: state is read anew at each start, telemetry and logs are read while they matter."""

WIDE = frozenset({"api", "REQUESTS"})
"""Where a durable takes all of its stream's subjects: api projects everything, and of REQUESTS even what cannot be read is answered."""


_BY_NAME = {stream.name: stream for stream in STREAMS}


def stream_named(name: str) -> Stream:
    """The stream of this name. Raises KeyError."""
    return _BY_NAME[name]


def _durable(service: str, stream: str, kinds: tuple[type[Payload], ...]) -> Durable:
    is_wide = service in WIDE or stream in WIDE
    filters = stream_named(stream).subjects if is_wide else tuple(wildcard(kind.SUBJECT) for kind in kinds)
    return Durable(service, stream, f"{service}-{stream.lower().replace('_', '-')}", filters)


DURABLES: tuple[Durable, ...] = tuple(
    _durable(service, stream, kinds) for service, streams in _HEARD.items() for stream, kinds in streams.items()
)
"""Durables of the services. A node's own is made when the node is admitted: see `node_durable`."""


def node_durable(node_id: str) -> Durable:
    """The durable by which one node takes its orders."""
    return Durable("node-agent", "CMD_NODE", f"node-agent-{node_id}", (f"gpuyard.cmd.node-agent.{node_id}.>",))


def durables_of(service: str) -> tuple[Durable, ...]:
    """The durables that a service consumes."""
    return tuple(durable for durable in DURABLES if durable.service == service)


def hears_of(service: str) -> tuple[str, ...]:
    """The streams that a service reads without a durable."""
    return _HEARS_WITHOUT_DURABLE.get(service, ())


def kinds_of(durable: Durable) -> tuple[type[Payload], ...]:
    """The messages that a service's durable brings."""
    return _HEARD[durable.service][durable.stream]


def stream_of(subject: str) -> Stream:
    """The stream that keeps a subject. Raises LookupError."""
    for stream in STREAMS:
        if any(subject.startswith(pattern.removesuffix(">")) for pattern in stream.subjects):
            return stream
    raise LookupError(f"no stream keeps {subject!r}")
