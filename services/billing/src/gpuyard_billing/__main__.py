"""Run billing: ``gpuyard-billing`` or ``python -m gpuyard_billing``."""

import asyncio
from functools import partial

from gpuyard_runtime import running
from gpuyard_runtime.running import Running

from gpuyard_billing.app import service
from gpuyard_billing.events import StreamEvents
from gpuyard_billing.settings import BillingSettings
from gpuyard_billing.store import BillingStore


def main() -> None:
    """The process."""
    source = StreamEvents()

    async def lend_bus(started: Running[BillingStore]) -> None:
        source.bus = started.bus
        await asyncio.get_running_loop().create_future()  # until the drain cancels it

    running.main(partial(service, source=source), BillingSettings, beside=lend_bus)


if __name__ == "__main__":
    main()
