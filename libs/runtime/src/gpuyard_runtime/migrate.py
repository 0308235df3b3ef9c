"""Bringing a schema to the version of the program: forward only, each file once, in order of its name, one transaction each.

An advisory lock makes processes that start together wait for each other. A file that was changed after it was applied, or that is gone,
is an error and not guessed about: the database then belongs to another version of the program.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

import asyncpg

from gpuyard_runtime.faults import RuntimeFault
from gpuyard_runtime.logs import log_of

OWN = "runtime"


class MigrationRefused(RuntimeFault):
    """The database and the program's migrations do not belong together."""


@dataclass(frozen=True, slots=True)
class Migration:
    """One file: where it comes from (the runtime or the service), its name, its SQL."""

    origin: str
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        """SHA-256 of the SQL."""
        return hashlib.sha256(self.sql.encode()).hexdigest()


def read_migrations(origin: str, folder: Traversable | Path) -> list[Migration]:
    """The ``*.sql`` files of a folder by name; a folder that is missing has none."""
    if not folder.is_dir():
        return []
    found = [entry for entry in folder.iterdir() if entry.name.endswith(".sql")]
    return [Migration(origin, entry.name, entry.read_text()) for entry in sorted(found, key=lambda entry: entry.name)]


async def migrate(dsn: str, schema: str, service: str, folder: Traversable | Path) -> list[str]:
    """Apply what is missing to `schema` (made if it is missing); returns the names of what was applied.

    Raises MigrationRefused, and what asyncpg raises for a statement that fails; that file is then not applied, the ones before it are.
    """
    wanted = [*read_migrations(OWN, files("gpuyard_runtime") / "migrations"), *read_migrations(service, folder)]
    conn = await asyncpg.connect(dsn, server_settings={"search_path": schema, "application_name": f"{service} migrations"})
    try:
        await conn.execute("select pg_advisory_lock(hashtextextended($1, 0))", f"gpuyard.migrate.{schema}")
        await _prepare(conn, schema)
        applied = {
            (row["origin"], row["name"]): row["checksum"] for row in await conn.fetch("select origin, name, checksum from migrations")
        }
        missing = _missing(wanted, applied)
        for migration in missing:
            await _apply(conn, migration)
        return [migration.name for migration in missing]
    finally:
        await conn.close()  # frees the lock


async def _prepare(conn: asyncpg.Connection, schema: str) -> None:
    # A service's role owns its schema but may not make schemas, so "if not exists" would be refused where nothing is to be done.
    if not await conn.fetchval("select exists (select from pg_namespace where nspname = $1)", schema):
        await conn.execute(f'create schema "{schema}"')
    await conn.execute(
        "create table if not exists migrations ("
        "origin text not null, name text not null, checksum text not null, at timestamptz not null default now(), "
        "primary key (origin, name))"
    )


def _missing(wanted: Sequence[Migration], applied: dict[tuple[str, str], str]) -> list[Migration]:
    unknown = sorted(f"{origin}/{name}" for origin, name in applied.keys() - {(found.origin, found.name) for found in wanted})
    if unknown:
        raise MigrationRefused(f"the database has migrations that this program does not know: {', '.join(unknown)}")
    missing: list[Migration] = []
    for found in wanted:
        checksum = applied.get((found.origin, found.name))
        if checksum is None:
            missing.append(found)
        elif checksum != found.checksum:
            raise MigrationRefused(f"{found.origin}/{found.name} was changed after it was applied; put it back and add a new file")
        elif any(before.origin == found.origin for before in missing):
            raise MigrationRefused(f"{missing[-1].name} is new but sorts before {found.name}, which is applied already; rename it")
    return missing


async def _apply(conn: asyncpg.Connection, migration: Migration) -> None:
    async with conn.transaction():
        await conn.execute(migration.sql)
        await conn.execute(
            "insert into migrations (origin, name, checksum) values ($1, $2, $3)", migration.origin, migration.name, migration.checksum
        )
    log_of("migrate").info("migration_applied", origin=migration.origin, name=migration.name)
