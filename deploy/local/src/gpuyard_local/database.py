"""The database of a stack: one role and one schema for each service, and nothing that another service could read.

Idempotent: run at each start, it makes what is missing and sets passwords to what the secrets folder says.
"""

import secrets
from urllib.parse import quote

import asyncpg
from gpuyard_contracts.topology import SERVICES

from gpuyard_local.layout import Layout
from gpuyard_local.ports import LOOPBACK
from gpuyard_local.private import ensure, write

DATABASE = "gpuyard"
SUPERUSER = "postgres"


def password_of(layout: Layout, role: str) -> str:
    """The role's password; made at first use, and kept."""
    return ensure(layout.password(f"postgres-{role}"), lambda: secrets.token_urlsafe(32)).strip()


def dsn(layout: Layout, role: str, port: int, database: str = DATABASE, *, host: str = LOOPBACK) -> str:
    """Where and as whom to connect, password included: for this process only, never for a log or a command line."""
    return f"postgresql://{role}:{quote(password_of(layout, role), safe='')}@{host}:{port}/{database}"


def write_dsns(layout: Layout, port: int, *, host: str = LOOPBACK) -> None:
    """One file for each service, which only its owner can read."""
    for role in SERVICES:
        write(layout.secrets / f"postgres-{role}.dsn", dsn(layout, role, port, host=host) + "\n")


async def prepare(layout: Layout, port: int, *, host: str = LOOPBACK) -> None:
    """Make database, roles and schemas. Raises asyncpg's errors."""
    admin = await asyncpg.connect(dsn(layout, SUPERUSER, port, "postgres", host=host))
    try:
        if not await admin.fetchval("select 1 from pg_database where datname = $1", DATABASE):
            await admin.execute(f"create database {DATABASE}")
    finally:
        await admin.close()
    conn = await asyncpg.connect(dsn(layout, SUPERUSER, port, host=host))
    try:
        async with conn.transaction():
            await conn.execute(f"revoke all on database {DATABASE} from public; revoke all on schema public from public")
            for role in SERVICES:
                await _make(conn, role, password_of(layout, role))
    finally:
        await conn.close()


async def _make(conn: "asyncpg.Connection", role: str, password: str) -> None:
    """One service's role and schema. Role names are our own words, and the password has no quote in it."""
    if not await conn.fetchval("select 1 from pg_roles where rolname = $1", role):
        await conn.execute(f'create role "{role}" login nosuperuser nocreatedb nocreaterole')
    await conn.execute(
        f'alter role "{role}" password \'{password}\'; alter role "{role}" in database {DATABASE} set search_path = "{role}"'
    )
    await conn.execute(f'grant connect on database {DATABASE} to "{role}"; create schema if not exists "{role}" authorization "{role}"')
