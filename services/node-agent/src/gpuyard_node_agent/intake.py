"""Orders from the bus: a batch is read, carried out, made safe on disk, and only then acknowledged."""

from collections.abc import Sequence

from gpuyard_contracts.envelope import Envelope, Malformed, Payload, decode
from gpuyard_contracts.messages.placement import StartV1, StopV1
from gpuyard_runtime.faults import RetryLater
from gpuyard_runtime.logs import log_of
from gpuyard_runtime.work import Delivery

from gpuyard_node_agent import handlers, mapping
from gpuyard_node_agent.journal import Journal
from gpuyard_node_agent.node import Node

LOG = log_of("intake")


def read(delivery: Delivery) -> Envelope[Payload] | None:
    """The order; None for what cannot be read, which is passed over: trying again would not help, and it must not block the others."""
    try:
        return decode(delivery.subject, delivery.headers, delivery.body, sequence=delivery.sequence, arrived=delivery.arrived)
    except Malformed as error:
        LOG.error("order_unreadable", subject=delivery.subject[:200], reason=error.reason, detail=error.detail)
        return None


def carry_out(event: Envelope[Payload], node: Node) -> None:
    """One order. What is none, or not for this node, is passed over."""
    data = event.data
    if not isinstance(data, StartV1 | StopV1) or data.node_id != node.node_id:
        LOG.error("order_unknown", type=event.type, node=getattr(data, "node_id", ""))
    elif isinstance(data, StartV1):
        handlers.on_start_ordered(mapping.order_of(data, event), node)
    else:
        handlers.on_stop_ordered(data, event, node)


async def take(batch: Sequence[Delivery], node: Node, journal: Journal) -> bool:
    """Carry out a batch and acknowledge it: one sync of the disk for all of it. False where the disk refuses: then it comes again.

    Processes start before the sync: what it guards against (the machine loses its power) ends them too.
    """
    if not journal.is_well():
        return False
    for delivery in batch:
        event = read(delivery)
        if event is None:
            node.count("unreadable")
            continue
        try:
            carry_out(event, node)
        except Exception:
            LOG.exception("order_failed", type=event.type, correlation_id=event.correlation_id)
            node.count("failed-orders")
    try:
        await journal.synced()
    except RetryLater as error:
        LOG.error("orders_unacknowledged", detail=str(error))
        return False
    for delivery in batch:
        delivery.ack()
    return True
