"""What an installation in containers needs besides its images: credentials before it starts, streams and roles once bus and database run.

``gpuyard-local provision`` writes passwords, the bus's configuration and one DSN for each service into a folder, whose files the compose
file hands to their services one by one. ``gpuyard-local prepare`` makes streams, durables, roles and schemas. Both may be run again: they
add what is missing (another node, say) and change nothing that is there.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import asyncpg

from gpuyard_local import bus_config, database
from gpuyard_local.layout import Layout
from gpuyard_local.operating import WAIT_SECONDS, make_streams

NATS_PORT = 4222
POSTGRES_PORT = 5432
RETRY_SECONDS = 0.5


def provision(folder: Path, *, nodes: Sequence[str], postgres_host: str, store: Path) -> Layout:
    """Write credentials and configuration. `store`: where the bus keeps its streams, in its own container."""
    layout = Layout(folder.resolve())
    layout.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    for part in (layout.secrets, layout.config):
        part.mkdir(mode=0o700, exist_ok=True)
    bus_config.write_config(layout, listen=f"0.0.0.0:{NATS_PORT}", store=store, nodes=nodes, tenants=())
    database.password_of(layout, database.SUPERUSER)
    database.write_dsns(layout, POSTGRES_PORT, host=postgres_host)
    return layout


def prepare(folder: Path, *, nats_url: str, postgres_host: str, nodes: Sequence[str], say: Callable[[str], None]) -> None:
    """Make streams, durables, roles and schemas, waiting for bus and database. Raises Fatal, Drifted and asyncpg's errors."""
    layout = Layout(folder.resolve())
    made = asyncio.run(make_streams(nats_url, bus_config.password_of(layout, bus_config.OPERATOR), nodes))
    say(f"the bus is ready, {len(made)} streams and consumers were made")
    asyncio.run(_prepare_database(layout, postgres_host))
    say("the database is ready, roles and schemas are made")


async def _prepare_database(layout: Layout, host: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            await database.prepare(layout, POSTGRES_PORT, host=host)
            return
        except (OSError, asyncpg.CannotConnectNowError, asyncpg.ConnectionDoesNotExistError):
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(RETRY_SECONDS)
