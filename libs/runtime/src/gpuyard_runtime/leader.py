"""Who works: one process of a service at a time.

The leader holds an advisory lock on a connection of its own, which a standby gets as soon as that connection ends. The lock alone cannot
stop a process that has lost it without noticing; that is the epoch's part: a new leader raises it, and every unit of work checks in its
own transaction that the epoch is still the one it began with.
"""

import asyncio
import contextlib
from collections.abc import Callable

import asyncpg

from gpuyard_runtime.database import AWAY, COMMAND_SECONDS, bounded, meaning, open_connection
from gpuyard_runtime.faults import EXIT_BUG, EXIT_FENCED, Fatal, Unavailable
from gpuyard_runtime.logs import log_of

POLL_SECONDS = 0.5
CHECK_SECONDS = 2.0

TRY_LOCK = "select pg_try_advisory_lock(hashtextextended($1, 0))"
RAISE_EPOCH = """
insert into runtime_leader as leader (service, epoch) values ($1, 1)
on conflict (service) do update set epoch = leader.epoch + 1 returning epoch
"""
READ_EPOCH = "select epoch from runtime_leader where service = $1"


class Leadership:
    """The lock and the epoch. `told` hears why this process does not lead now, or None."""

    def __init__(self, dsn: str, schema: str, service: str, told: Callable[[str | None], None], on_fatal: Callable[[Fatal], None]) -> None:
        self.epoch = 0
        self._dsn = dsn
        self._schema = schema
        self._service = service
        self._told = told
        self._on_fatal = on_fatal
        self._conn: asyncpg.Connection | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._log = log_of("leader")

    async def acquire(self) -> int:
        """Wait until this process leads; returns its epoch. Raises Fatal."""
        await self._lock()
        while True:
            try:
                assert self._conn is not None
                self.epoch = await self._conn.fetchval(RAISE_EPOCH, self._service) or 0
                break
            except AWAY as error:
                self._told(f"database: {type(error).__name__}")
                await self._lock()
        self._told(None)
        self._log.info("leads", epoch=self.epoch)
        self._watcher = asyncio.create_task(self._watch())
        return self.epoch

    async def _lock(self) -> None:
        """Wait for the lock, on a new connection where needed."""
        while True:
            try:
                if self._conn is None or self._conn.is_closed():
                    self._conn = await open_connection(self._dsn, self._schema, f"{self._service} leader")
                if await self._conn.fetchval(TRY_LOCK, f"gpuyard.leader.{self._schema}"):
                    return
                self._told("standby: another process leads")
            except (*AWAY, Unavailable) as error:
                self._told(f"database: {type(error).__name__}")
                if self._conn is not None:
                    self._conn.terminate()
                    self._conn = None
            await asyncio.sleep(POLL_SECONDS)

    async def _watch(self) -> None:
        """Notice that the lock is lost. If nobody led in between, take it again and go on; the epoch tells."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            assert self._conn is not None
            try:
                with bounded(self._conn, COMMAND_SECONDS):
                    await self._conn.fetchval("select 1")
                continue
            except Exception as error:
                if not isinstance(meaning(error), Unavailable):
                    self._on_fatal(Fatal(EXIT_BUG, f"the lock cannot be watched: {type(error).__name__}: {error}"))
                    return
                self._log.warning("lock_lost", detail=type(error).__name__)
            self._conn.terminate()
            self._conn = None
            await self._lock_or_fall()

    async def _lock_or_fall(self) -> None:
        await self._lock()
        assert self._conn is not None
        epoch = await self._conn.fetchval(READ_EPOCH, self._service)
        if epoch != self.epoch:
            self._on_fatal(Fatal(EXIT_FENCED, f"another process led in between (epoch {epoch}, ours was {self.epoch})"))
            return
        self._told(None)

    async def close(self) -> None:
        """Let another process lead."""
        if self._watcher is not None:
            self._watcher.cancel()
        if self._conn is not None:
            with contextlib.suppress(*AWAY):
                await self._conn.close(timeout=2)
