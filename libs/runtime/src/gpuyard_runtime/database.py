"""Reaching PostgreSQL: connections in a service's schema, and what an error of it means."""

import asyncio
from collections.abc import Generator, Mapping
from contextlib import contextmanager

import asyncpg
from asyncpg import exceptions as found

from gpuyard_runtime.faults import EXIT_CONFIG, Fatal, Unavailable

CONNECT_SECONDS = 5
COMMAND_SECONDS = 30.0

AWAY = (
    OSError,
    TimeoutError,
    asyncio.TimeoutError,
    found.PostgresConnectionError,
    found.InterfaceError,
    found.InternalClientError,
    found.OperatorInterventionError,  # shutdown, crash, cannot connect now, cancelled
    found.InsufficientResourcesError,  # disk full, too many connections, out of memory
    found.TransactionRollbackError,  # serialization failure, deadlock
    found.ReadOnlySQLTransactionError,
    found.LockNotAvailableError,
    found.IdleInTransactionSessionTimeoutError,
)
"""Errors that say nothing about what was to be written: wait, and try the same again."""

WRONG = (found.SyntaxOrAccessError, found.InvalidAuthorizationSpecificationError, found.InvalidCatalogNameError)
"""Errors of the program or the installation: no message is to blame, and waiting does not help."""


def meaning(error: BaseException) -> BaseException:
    """The error as the dispatcher understands it: Unavailable, Fatal, or itself (then it is about the data)."""
    if isinstance(error, found.DataError):  # before everything else: asyncpg raises it too, for an argument that cannot be sent
        return error
    if isinstance(error, AWAY):
        return Unavailable(f"database: {type(error).__name__}")
    if isinstance(error, AttributeError) and _is_of_driver(error):
        return Unavailable("database: the connection is gone")
    if isinstance(error, WRONG):
        return Fatal(EXIT_CONFIG, f"database: {type(error).__name__}: {error}")
    return error


def _is_of_driver(error: BaseException) -> bool:
    """Whether asyncpg itself failed: it uses what it has let go, where a connection is closed under a statement that is just done."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    return frame is not None and str(frame.tb_frame.f_globals.get("__name__", "")).startswith("asyncpg.")


def is_undone(error: BaseException) -> bool:
    """Whether the transaction that met this error was certainly rolled back: the server lived to say so."""
    return isinstance(error, found.PostgresError) and not isinstance(
        error, (found.PostgresConnectionError, found.OperatorInterventionError)
    )


def session_settings(schema: str, application: str) -> Mapping[str, str]:
    """Session settings of every connection; a peer that vanished is noticed in about 10 s."""
    return {
        "search_path": schema,
        "application_name": application,
        "timezone": "UTC",
        "idle_in_transaction_session_timeout": "60s",
        "tcp_keepalives_idle": "4",
        "tcp_keepalives_interval": "2",
        "tcp_keepalives_count": "3",
    }


async def open_connection(dsn: str, schema: str, application: str) -> asyncpg.Connection:
    """One connection. Raises Unavailable, or Fatal where the database does not let us in."""
    try:
        return await asyncpg.connect(
            dsn, timeout=CONNECT_SECONDS, command_timeout=COMMAND_SECONDS, server_settings=dict(session_settings(schema, application))
        )
    except Exception as error:
        raise meaning(error) from error


async def make_pool(dsn: str, schema: str, application: str, size: int) -> asyncpg.Pool:
    """A pool that connects when it is first used."""
    return await asyncpg.create_pool(
        dsn,
        min_size=0,
        max_size=size,
        timeout=CONNECT_SECONDS,
        command_timeout=COMMAND_SECONDS,
        server_settings=dict(session_settings(schema, application)),
    )


@contextmanager
def bounded(conn: asyncpg.Connection, seconds: float) -> Generator[None]:
    """Give a connection up whose answer takes longer: what waits for it then fails as if the server had gone.

    asyncpg's own timeouts ask the server to cancel first, and wait for that: a server that hangs hangs them too.
    """
    giving_up = asyncio.get_running_loop().call_later(seconds, conn.terminate)
    try:
        yield
    finally:
        giving_up.cancel()
