"""Units of work on PostgreSQL.

A unit is written by one statement: fence, inbox, the store's changes, the outbox row; one round trip and one commit. Where that cannot be,
since a key is not new or the store has a way of its own, the same is done in a transaction of several. If the connection breaks during the
commit nobody knows whether it happened: then the store is read anew before the next unit, so that memory never differs from the
database, and the inbox decides about what is delivered again. What a store only heard it hands on: `Store.inherit`.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar

import asyncpg
from gpuyard_contracts.envelope import Envelope

from gpuyard_runtime.clock import Clock
from gpuyard_runtime.database import bounded, is_undone, meaning, open_connection
from gpuyard_runtime.faults import Fatal, Fenced, Unavailable
from gpuyard_runtime.frames import Outgoing, outgoing, pack, unpack
from gpuyard_runtime.store import Statement, Store
from gpuyard_runtime.units import Committed, Work, is_idle

S = TypeVar("S", bound=Store)

UNIT_SECONDS = 8.0
"""After this long a statement counts as lost: well below the leases that services give, which a database that hangs must not use up."""
PROBE_SECONDS = 3.0
LOAD_SECONDS = 60.0
PRUNED_AT_ONCE = 2000
"""Inbox keys that are forgotten in one go: so few that no unit waits noticeably."""

CLAIM = """
with fence as (select epoch from runtime_leader where service = $1 for share),
     fresh as (insert into inbox (key, at) select key, $3 from unnest($2::text[]) as given (key) on conflict do nothing returning key)
select (select epoch from fence) as epoch, array(select key from fresh) as fresh
"""
JOINED = """
with claimed as (insert into inbox (key, at) select key, $2 from unnest($1::text[]) as given (key)),
     gone as (delete from outbox where id = any($3::int8[])),
     kept as (insert into outbox (content) select content from unnest($4::bytea[]) as given (content) returning id)
     /* parts */
select (select id from kept)
"""
# The same, refused by a division by zero where another epoch leads.
JOINED_FENCED = JOINED.replace(
    "with claimed", "with fence as (select epoch from runtime_leader where service = $5 for share), claimed"
).replace("(select id from kept)", "(select id from kept) as id, 1 / (case when (select epoch from fence) = $6 then 1 else 0 end) as leads")
CLOSE = """
with gone as (delete from outbox where id = any($1::int8[])),
     kept as (insert into outbox (content) select content from unnest($2::bytea[]) as given (content) returning id)
select id from kept
"""
LEFT = "select id, content from outbox order by id"
SWEEP = "delete from outbox where id = any($1::int8[])"
PRUNE = "delete from inbox where ctid = any(array(select ctid from inbox where at < $1 limit $2))"


class Published(Protocol):
    """What the units need of the relay: which outbox rows are done with, and where what was left over goes."""

    def take_done(self) -> list[int]:
        """Rows that can be deleted."""
        ...

    def put_back_done(self, done: list[int]) -> None:
        """Their deletion did not commit."""
        ...

    def holds(self, outbox_id: int) -> bool:
        """Whether a row is known already."""
        ...

    def take_row(self, outbox_id: int, messages: Sequence[Outgoing]) -> None:
        """Publish a row."""
        ...


class PostgresUnits(Generic[S]):
    """Runs units on one connection. `epoch` is the leader's; None without one (many instances at once). `forgets`: see `Service`."""

    def __init__(
        self,
        make: Callable[[], S],
        dsn: str,
        schema: str,
        service: str,
        clock: Clock,
        relay: Published,
        *,
        epoch: int | None,
        forgets: Sequence[str] = (),
    ) -> None:
        self._forgets = (PRUNE, *forgets)
        self._make = make
        self._dsn = dsn
        self._schema = schema
        self._service = service
        self._clock = clock
        self._relay = relay
        self._epoch = epoch
        self._conn: asyncpg.Connection | None = None
        self._store = make()
        self._is_stale = True
        self._is_loaded = False

    @property
    def store(self) -> S:
        """The store as the last committed unit left it."""
        return self._store

    async def open(self) -> None:
        """Read the store, and give the relay what an earlier life left in the outbox. Raises Unavailable, Fatal."""
        conn = await self._connected()
        try:
            store = self._make()
            with bounded(conn, LOAD_SECONDS):
                async with conn.transaction(isolation="repeatable_read", readonly=True):
                    await store.load(conn)
                    left = await conn.fetch(LEFT)
        except Exception as error:
            self._forget(conn)
            raise meaning(error) from error
        store.inherit(self._store)
        store.loaded()
        self._store = store
        self._is_stale = False
        self._is_loaded = True
        for row in left:
            if not self._relay.holds(row["id"]):
                self._relay.take_row(row["id"], unpack(row["content"]))

    def idle(self, work: Work) -> bool:
        """One unit while the database is away. The store may lack a unit that may have been committed: nothing was said of that yet."""
        return self._is_loaded and is_idle(self._store, work)

    async def probe(self) -> None:
        """Whether the database answers; reads the store anew where that is due. Raises Unavailable, Fatal."""
        if self._is_stale:
            await self.open()
            return
        conn: asyncpg.Connection | None = None
        try:
            conn = await self._connected()
            with bounded(conn, PROBE_SECONDS):
                await conn.execute("select 1")
        except Exception as error:
            if conn is not None:
                self._forget(conn)
            raise meaning(error) from error

    async def run(self, keys: Sequence[str], work: Work) -> Committed:
        """One unit; see :class:`gpuyard_runtime.units.Units`."""
        if self._is_stale:
            await self.open()
        found = await self._run_joined(keys, work)
        return await self._run_claimed(keys, work) if found is None else found

    async def _run_joined(self, keys: Sequence[str], work: Work) -> Committed | None:
        """The unit as one statement and one round trip, in the hope that all keys are new. None: it must be done the long way."""
        store = self._store
        if not store.is_joinable:
            return None
        done: list[int] = []
        is_sent = False
        try:
            said = work(keys)
            if not keys and not said and not store.is_changed:
                return Committed(0, ())
            encoded = [outgoing(envelope) for envelope in said]
            done = self._relay.take_done()
            sql, args = self._joined(store.statements(), keys, encoded, done)
            conn = await self._connected()
            is_sent = True
            with bounded(conn, UNIT_SECONDS):
                outbox_id = await conn.fetchval(sql, *args)
        except BaseException as error:
            self._undo(store, done)
            if is_sent and not is_undone(error):
                self._break_off()
            understood = meaning(error)
            # What fails may have been done before: then it must not be tried, and only the long way knows. So it does about the fence.
            if isinstance(understood, Exception) and not isinstance(understood, (Unavailable, Fatal)) and (keys or is_sent):
                return None
            if understood is error:
                raise
            raise understood from error
        store.settle()
        return Committed(int(outbox_id or 0), said, encoded)

    def _joined(
        self, statements: Sequence[Statement], keys: Sequence[str], encoded: Sequence[Outgoing], done: list[int]
    ) -> tuple[str, list[Any]]:
        args: list[Any] = [list(keys), self._clock.now(), done, [pack(encoded)] if encoded else []]
        if self._epoch is not None:
            args += (self._service, self._epoch)
        parts: dict[str, str] = {}
        for table, sql, values in statements:
            first = len(args) + 1
            if table in parts:  # its deletes: they tell that they are done
                parts[table] += " returning 1"
                parts[f"{table}_written"] = sql(first, f"{table}_part")
            else:
                parts[table] = sql(first)
            args += values
        joined = "".join([f", {name}_part as ({sql})" for name, sql in parts.items()])
        return (JOINED if self._epoch is None else JOINED_FENCED).replace("/* parts */", joined), args

    async def _run_claimed(self, keys: Sequence[str], work: Work) -> Committed:
        """The unit as a transaction of several statements: the keys are claimed first, and `work` sees which are new."""
        store = self._store
        done: list[int] = []
        conn: asyncpg.Connection | None = None
        is_committing = False
        try:
            conn = await self._connected()
            with bounded(conn, UNIT_SECONDS):
                await conn.execute("begin")
                said = work(await self._claim(conn, keys))
                await store.flush(conn)
                done = self._relay.take_done()
                outbox_id, encoded = await self._close(conn, said, done)
                is_committing = True
                await _commit(conn)
        except BaseException as error:
            self._undo(store, done)
            understood = meaning(error)
            # A refused commit (a deferred constraint) is a rollback; one that broke off may have happened.
            if is_committing and not is_undone(error):
                self._break_off()
            elif conn is not None:
                await self._roll_back(conn)
            if understood is error:
                raise
            raise understood from error
        store.settle()
        return Committed(outbox_id, said, encoded)

    def _undo(self, store: S, done: list[int]) -> None:
        store.undo()
        self._relay.put_back_done(done)

    def _break_off(self) -> None:
        """Nobody knows whether the last unit was committed: read the store anew before the next."""
        self._is_stale = True
        if self._conn is not None:
            self._forget(self._conn)

    async def _claim(self, conn: asyncpg.Connection, keys: Sequence[str]) -> set[str]:
        row = await conn.fetchrow(CLAIM, self._service, list(keys), self._clock.now())
        assert row is not None
        self._check(row["epoch"])
        return set(row["fresh"])

    def _check(self, epoch: int | None) -> None:
        if self._epoch is not None and epoch != self._epoch:
            raise Fenced(f"epoch {epoch} leads, ours is {self._epoch}")

    async def _close(self, conn: asyncpg.Connection, said: Sequence[Envelope[Any]], done: list[int]) -> tuple[int, list[Outgoing]]:
        if not said and not done:
            return 0, []
        encoded = [outgoing(envelope) for envelope in said]
        kept = await conn.fetchval(CLOSE, done, [pack(encoded)] if encoded else [])
        return int(kept or 0), encoded

    async def _roll_back(self, conn: asyncpg.Connection) -> None:
        """End the open transaction; a connection that cannot do so is given up, and the server then undoes what it did."""
        try:
            if conn.is_closed():
                self._forget(conn)
            elif conn.is_in_transaction():
                await conn.execute("rollback")
        except Exception:  # whatever it says, the connection is of no use any more
            self._forget(conn)

    async def _connected(self) -> asyncpg.Connection:
        if self._conn is None or self._conn.is_closed():
            self._conn = await open_connection(self._dsn, self._schema, f"{self._service} units")
        return self._conn

    def _forget(self, conn: asyncpg.Connection) -> None:
        conn.terminate()
        self._conn = None

    async def sweep(self) -> None:
        """Delete outbox rows that are done with, when no unit does it on its way. Raises Unavailable, Fatal."""
        done = self._relay.take_done()
        if not done:
            return
        try:
            conn = await self._connected()
            with bounded(conn, UNIT_SECONDS):
                await conn.execute(SWEEP, done)
        except Exception as error:
            self._relay.put_back_done(done)
            raise meaning(error) from error

    async def prune(self, before: datetime) -> bool:
        """Forget inbox keys, and what the service forgets, from before this instant, a few of each at most.

        Returns whether there may be more. Raises Unavailable, Fatal.
        """
        try:
            conn = await self._connected()
            with bounded(conn, UNIT_SECONDS):
                gone = [await conn.execute(statement, before, PRUNED_AT_ONCE) for statement in self._forgets]
            return f"DELETE {PRUNED_AT_ONCE}" in gone
        except Exception as error:
            raise meaning(error) from error

    async def close(self) -> None:
        """Close the connection."""
        if self._conn is not None:
            await self._conn.close(timeout=2)


async def _commit(conn: asyncpg.Connection) -> None:
    # A transaction in which a statement failed unnoticed is rolled back by "commit" without an error.
    if (tag := await conn.execute("commit")) != "COMMIT":
        raise RuntimeError(f"the transaction ended with {tag}: a statement in it failed and nobody looked")
