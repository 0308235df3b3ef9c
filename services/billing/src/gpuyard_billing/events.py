"""Placement's allocation events, read again from their stream."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from gpuyard_contracts.envelope import Envelope, Malformed, decode
from gpuyard_contracts.messages.placement import AllocationCommittedV1, AllocationReleasedV1, AllocationStartedV1
from gpuyard_contracts.subjects import wildcard
from gpuyard_runtime.bus import Bus
from gpuyard_runtime.faults import Unavailable
from gpuyard_runtime.reader import Reader
from gpuyard_runtime.work import Delivery

STREAM = "EVT_PLACEMENT"
KINDS = (AllocationCommittedV1, AllocationStartedV1, AllocationReleasedV1)
BATCH = 500
SILENT_SECONDS = 10.0


class StreamEvents:
    """An :class:`~gpuyard_billing.ports.EventSource` over the bus. `bus` is set once the process is connected."""

    def __init__(self) -> None:
        self.bus: Bus | None = None

    async def allocation_events(self) -> AsyncIterator[list[Envelope[Any]]]:
        """Batches in the stream's order; what cannot be decoded was dead-lettered and is left out. Raises Unavailable without a bus."""
        if self.bus is None:
            raise Unavailable("the bus is not connected yet")
        buffer: list[Delivery] = []
        came = asyncio.Event()

        def deliver(delivery: Delivery) -> None:
            buffer.append(delivery)
            came.set()

        filters = [wildcard(kind.SUBJECT) for kind in KINDS]
        reader = Reader(self.bus, STREAM, filters, deliver, lambda: len(buffer), after=0, is_state=False, batch=BATCH)
        await reader.open()
        try:
            while buffer or not reader.is_caught_up:
                await _wait(came)
                came.clear()
                found, buffer[:] = list(buffer), []
                reader.ask()
                yield _decoded(found)
        finally:
            await reader.close()


async def _wait(came: asyncio.Event) -> None:
    try:
        await asyncio.wait_for(came.wait(), SILENT_SECONDS)
    except TimeoutError:
        raise Unavailable(f"{STREAM} cannot be read now") from None


def _decoded(deliveries: list[Delivery]) -> list[Envelope[Any]]:
    found: list[Envelope[Any]] = []
    for delivery in deliveries:
        try:
            found.append(decode(delivery.subject, delivery.headers, delivery.body, sequence=delivery.sequence, arrived=delivery.arrived))
        except Malformed:
            continue
    return found
