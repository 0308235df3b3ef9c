"""Who may publish and read what on the bus: least privilege, derived from the topology."""

from dataclasses import dataclass

from gpuyard_contracts import catalog
from gpuyard_contracts.subjects import wildcard
from gpuyard_contracts.topology import Durable, durables_of, hears_of, node_durable

ACK_PREFIXES = ("$JS.ACK.{stream}.{durable}.>", "$JS.ACK.*.*.{stream}.{durable}.>")
"""Both forms of the server's ack subjects."""


@dataclass(frozen=True, slots=True)
class Permissions:
    """What one bus user may do. `inbox` is the prefix of its private reply subjects."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    inbox: str
    may_reply: bool = False


_PUBLISHES = {
    "api": ("gpuyard.req.>", "gpuyard.state.tenant.>", "gpuyard.cmd.placement.cordon.>", "gpuyard.cmd.placement.uncordon.>"),
    "scheduler": ("gpuyard.evt.scheduler.>", "gpuyard.cmd.placement.place.>", "gpuyard.cmd.placement.release.>"),
    "placement": ("gpuyard.evt.placement.>", "gpuyard.cmd.node-agent.>", "gpuyard.state.node.>"),
    "monitor": ("gpuyard.evt.monitor.>",),
    "billing": ("gpuyard.evt.billing.>",),
}

_ASKS = {"api": ("gpuyard.ask.scheduler.>", "gpuyard.ask.monitor.>", "gpuyard.ask.billing.>")}


def inbox_of(user: str) -> str:
    """The prefix of a user's private reply subjects."""
    return f"_INBOX_{user.replace('-', '_')}"


def _consume(durable: Durable) -> tuple[str, ...]:
    return (
        f"$JS.API.CONSUMER.INFO.{durable.stream}.{durable.name}",
        f"$JS.API.CONSUMER.MSG.NEXT.{durable.stream}.{durable.name}",
        f"$JS.API.CONSUMER.RESET.{durable.stream}.{durable.name}",  # a new leader begins where the dead one was last acknowledged
        *(prefix.format(stream=durable.stream, durable=durable.name) for prefix in ACK_PREFIXES),
    )


def _read(stream: str) -> tuple[str, ...]:
    """An ephemeral reader: made, pulled, acked not at all, and dropped by its owner."""
    return (
        f"$JS.API.CONSUMER.CREATE.{stream}.>",
        f"$JS.API.CONSUMER.MSG.NEXT.{stream}.>",
        f"$JS.API.CONSUMER.INFO.{stream}.>",
        f"$JS.API.CONSUMER.DELETE.{stream}.>",
        f"$JS.API.STREAM.INFO.{stream}",
        f"$JS.FC.{stream}.>",
    )


def of_service(service: str) -> Permissions:
    """A service's permissions."""
    publish = [*_PUBLISHES[service], f"gpuyard.dlq.{service}", *_ASKS.get(service, ())]
    for durable in durables_of(service):
        publish += _consume(durable)
    for stream in hears_of(service):
        publish += _read(stream)
    if service == "billing":  # `ledger verify` reads the events again from the beginning
        publish += _read("EVT_PLACEMENT")
    subscribe = [f"{inbox_of(service)}.>"]
    subscribe += [wildcard(kind.SUBJECT) for kind in catalog.ASKS if kind.SUBJECT.startswith(f"gpuyard.ask.{service}.")]
    if service == "placement":
        subscribe.append("gpuyard.hb.*")
    return Permissions(tuple(dict.fromkeys(publish)), tuple(subscribe), inbox_of(service), may_reply=True)


def of_node(node_id: str) -> Permissions:
    """A node agent's permissions: its own node and nothing else."""
    publish = (
        f"gpuyard.evt.node-agent.workload.*.v1.*.*.{node_id}",
        f"gpuyard.usage.v1.{node_id}",
        f"gpuyard.health.v1.{node_id}",
        f"gpuyard.tel.v1.{node_id}",
        "gpuyard.log.v1.*.*.*",
        f"gpuyard.hb.{node_id}",
        *_consume(node_durable(node_id)),
    )
    user = f"node-{node_id}"
    return Permissions(publish, (f"{inbox_of(user)}.>", f"gpuyard.ask.node-agent.{node_id}.>"), inbox_of(user), may_reply=True)


def of_tenant(tenant: str) -> Permissions:
    """A tenant's own program: asks for jobs, hears its own events. Core subscriptions suffice; streams are not reachable."""
    user = f"tenant-{tenant}"
    return Permissions((f"gpuyard.req.{tenant}.>",), (f"{inbox_of(user)}.>", f"gpuyard.evt.*.*.*.*.{tenant}.>"), inbox_of(user))


def of_operator() -> Permissions:
    """The bootstrap step and the operator's tools: everything, never used by a service."""
    return Permissions((">",), (">",), "_INBOX_operator", may_reply=True)


def is_allowed(patterns: tuple[str, ...], subject: str) -> bool:
    """Whether one of the patterns (NATS wildcards) takes the subject. Used by tests and by the memory bus."""
    tokens = subject.split(".")
    return any(_matches(pattern.split("."), tokens) for pattern in patterns)


def _matches(pattern: list[str], tokens: list[str]) -> bool:
    for place, part in enumerate(pattern):
        if part == ">":
            return len(tokens) > place
        if place >= len(tokens) or part not in ("*", tokens[place]):
            return False
    return len(pattern) == len(tokens)
