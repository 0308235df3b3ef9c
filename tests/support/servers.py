"""A real bus and a real database for tests, started where and how a test wants them."""

import secrets
from pathlib import Path

from gpuyard_local.embedded import LOOPBACK, free_port
from gpuyard_local.nats import Nats
from gpuyard_local.postgres import FOR_TESTS, Postgres

OPEN_CONFIG = """
listen: "{host}:{port}"
max_payload: 1MB
jetstream {{ store_dir: "{store}", max_file_store: 200GB }}
"""
"""A bus without users. Placeholders: host, port, store."""


def start_nats(folder: Path, config: str = OPEN_CONFIG, *, port: int = 0) -> Nats:
    """A nats-server with its files in `folder`; `config` has the placeholders of OPEN_CONFIG. The caller stops it."""
    wanted = port or free_port()
    server = Nats(folder, config.format(host=LOOPBACK, port=wanted, store=folder / "jetstream"), wanted, is_tied=True)
    server.start()
    return server


def start_postgres(folder: Path, *, port: int = 0) -> Postgres:
    """A PostgreSQL with its data in `folder` (fsync off). The caller stops it."""
    server = Postgres(
        folder / "postgres", password=secrets.token_hex(8), port=port, log=folder / "postgres.log", settings=FOR_TESTS, is_tied=True
    )
    server.start()
    return server
