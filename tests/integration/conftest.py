"""One bus and one database for all integration tests of a run; each test gets a bus without streams and a database of its own."""

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import asyncpg
import pytest
import structlog
from gpuyard_local.nats import Nats
from gpuyard_local.postgres import Postgres

from tests.support.servers import start_nats, start_postgres


@pytest.fixture(scope="session", autouse=True)
def plain_logs() -> None:
    """Logs as JSON on whatever pytest captures just then; structlog's default draws every traceback as a picture, for seconds."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(default=str),
        ],
        cache_logger_on_first_use=False,
    )


@pytest.fixture(scope="session")
def shared_nats() -> Iterator[Nats]:
    """A nats-server without users."""
    folder = Path(tempfile.mkdtemp(prefix="gpuyard-nats-"))
    server = start_nats(folder)
    yield server
    server.stop()
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def shared_postgres() -> Iterator[Postgres]:
    """A PostgreSQL server."""
    folder = Path(tempfile.mkdtemp(prefix="gpuyard-postgres-"))
    server = start_postgres(folder)
    yield server
    server.remove()
    shutil.rmtree(folder)


@pytest.fixture
def dsn(shared_postgres: Postgres) -> str:
    """A new, empty database."""
    name = f"test_{uuid4().hex}"

    async def create() -> None:
        conn = await asyncpg.connect(shared_postgres.dsn())
        await conn.execute(f'create database "{name}"')
        await conn.close()

    asyncio.run(create())
    return shared_postgres.dsn(name)


@pytest.fixture
def own_nats(tmp_path: Path) -> Iterator[Nats]:
    """A nats-server of the test's own, to kill and to fill."""
    folder = tmp_path / "nats"
    folder.mkdir()
    server = start_nats(folder)
    yield server
    server.stop()
