"""A service's tables: loaded at start, read from memory, written at the end of each unit.

The promise: what is in memory is what the database holds, since this process is its only writer and a unit that does not commit is undone.
The other half is kept by the fence of :mod:`gpuyard_runtime.units`. Writing takes one round trip for each changed table.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from gpuyard_runtime.table import Column, Journal, Record, Table, always

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Connection(Protocol):
    """What a store needs of asyncpg's connection."""

    async def fetch(self, query: str, *args: Any) -> Sequence[Record]:
        """All rows of a query."""
        ...

    async def fetchval(self, query: str, *args: Any) -> Any:
        """The first value of a query."""
        ...

    async def execute(self, query: str, *args: Any) -> str:
        """Run a statement; the answer is its tag."""
        ...


@dataclass(frozen=True, slots=True)
class _Writing:
    """How a table or journal is written, worked out once; the statements by the number of their first parameter."""

    upsert: Callable[..., str]
    delete: Callable[[int], str]
    values: tuple[Callable[[Any], Any], ...]
    keys: tuple[Callable[[Any], Any], ...]


class Statement(NamedTuple):
    """One statement of a flush: its table, its SQL (given the number of its first parameter) and its arguments.

    The SQL of a table's writes takes a second argument where its deletes are a part of the same statement: the name of that part, which
    is then done first.
    """

    table: str
    sql: Callable[..., str]
    args: list[Any]


class Store:
    """A service's tables and journals. A subclass makes them in `__init__`, after ``super().__init__()``.

    Everything that a handler changes must live in them: what is kept beside a table is not undone with the unit. An
    :class:`~gpuyard_runtime.table.Index` is; other derived values belong into :meth:`loaded` or are computed when asked for.
    """

    def __init__(self) -> None:
        self.tables: list[Table[Any, Any]] = []
        self.journals: list[Journal[Any]] = []
        self._writings: dict[str, _Writing] = {}

    def table(
        self,
        name: str,
        key: Callable[[V], K],
        columns: tuple[Column[V], ...],
        of_record: Callable[[Record], V],
        *,
        keep: Callable[[V], bool] = always,
        where: str = "true",
        order: Callable[[V], Any] | None = None,
    ) -> Table[K, V]:
        """A new table of this store; see :class:`~gpuyard_runtime.table.Table`."""
        made = Table(name, key, columns, of_record, keep=keep, where=where, order=order)
        self.tables.append(made)
        return made

    def journal(
        self,
        name: str,
        columns: tuple[Column[V], ...],
        *,
        key: Callable[[V], Hashable] | None = None,
        repeated: Literal["fail", "ignore"] = "fail",
    ) -> Journal[V]:
        """A new journal of this store; see :class:`~gpuyard_runtime.table.Journal`."""
        made = Journal(name, columns, key=key, repeated=repeated)
        self.journals.append(made)
        return made

    async def load(self, conn: Connection) -> None:
        """Read every table's live rows. Extend it to read more; what is not a table must then also be set in :meth:`loaded`."""
        for table in self.tables:
            table.restore(table.of_record(record) for record in await conn.fetch(select_sql(table)))

    def inherit(self, before: "Store") -> None:
        """Called before :meth:`loaded` on the store that takes the place of `before` in a living process (its rows were read anew, since a
        commit broke off): the place to take over what is kept beside the rows because it was only heard."""

    def loaded(self) -> None:
        """Called once after the rows are there, from the database or in a test: the place for values derived from them."""

    async def flush(self, conn: Connection) -> None:
        """Write what the open unit changed. Deletes go first, so that a row can take a deleted one's place."""
        for statement in self.statements():
            await conn.execute(statement.sql(1), *statement.args)

    def statements(self) -> list["Statement"]:
        """What :meth:`flush` runs, in order. Extend this rather than `flush`: a unit is then one statement, see :attr:`is_joinable`."""
        found: list[Statement] = []
        for table in self.tables:
            if table.is_changed:
                changes = table.changes()
                writing = self._writing(table)
                if changes.drops:
                    found.append(Statement(table.name, writing.delete, _arrays(writing.keys, changes.drops)))
                if changes.upserts:
                    found.append(Statement(table.name, writing.upsert, _arrays(writing.values, changes.upserts)))
        for journal in self.journals:
            if journal.added:
                writing = self._writing(journal)
                found.append(Statement(journal.name, writing.upsert, _arrays(writing.values, journal.added)))
        return found

    @property
    def is_joinable(self) -> bool:
        """Whether the statements may be joined with everything else of the unit into a single one, which costs one round trip in all; a
        subclass that writes in a way of its own must have its way."""
        return type(self).flush is Store.flush

    def _writing(self, part: Table[Any, Any] | Journal[Any]) -> "_Writing":
        found = self._writings.get(part.name)
        if found is None:
            values = tuple(column.reader() for column in part.columns)
            if isinstance(part, Journal):
                found = _Writing(cache(partial(insert_sql, part)), partial(insert_sql, part), values, ())
            else:
                keys = tuple(column.reader() for column in _keys(part))
                found = _Writing(cache(partial(upsert_sql, part)), cache(partial(delete_sql, part)), values, keys)
            self._writings[part.name] = found
        return found

    @property
    def is_changed(self) -> bool:
        """Whether the open unit changed anything."""
        return any(table.is_changed for table in self.tables) or any(journal.added for journal in self.journals)

    def undo(self) -> None:
        """Take back the open unit."""
        for part in (*self.tables, *self.journals):
            part.undo()

    def settle(self) -> None:
        """The open unit has committed."""
        for part in (*self.tables, *self.journals):
            part.settle()


def _keys(table: Table[Any, Any]) -> tuple[Column[Any], ...]:
    return tuple(column for column in table.columns if column.is_key)


def _arrays(readers: Iterable[Callable[[Any], Any]], rows: Sequence[Any]) -> list[list[Any]]:
    return [[value(row) for row in rows] for value in readers]


def _unnest(columns: Sequence[Column[Any]], first: int) -> str:
    return ", ".join(f"${number}::{column.pgtype}[]" for number, column in enumerate(columns, first))


def _names(columns: Iterable[Column[Any]]) -> str:
    return ", ".join(column.name for column in columns)


# Names of tables and columns come from the code of a service, never from a message.
def select_sql(table: Table[Any, Any]) -> str:
    """The statement that reads a table's live rows."""
    return f"select {_names(table.columns)} from {table.name} where {table.where}"  # noqa: S608


def upsert_sql(table: Table[Any, Any], first: int = 1, after: str = "") -> str:
    """The statement that writes rows, one array for each column; asyncpg prepares it once for each connection.

    `after`: the part of the same statement that deletes from this table. Parts have no order of their own, and a row may take the place
    of a deleted one, so the rows are looked at once all of that part's have been counted.
    """
    waits = f" where (select count(*) from {after}) >= 0" if after else ""  # noqa: S608
    others = [column.name for column in table.columns if not column.is_key]
    then = f"do update set {', '.join(f'{name} = excluded.{name}' for name in others)}" if others else "do nothing"
    return f"{_insert(table.name, table.columns, first)}{waits} on conflict ({_names(_keys(table))}) {then}"


def delete_sql(table: Table[Any, Any], first: int = 1) -> str:
    """The statement that deletes rows, one array for each key column."""
    keys = _keys(table)
    return f"delete from {table.name} where ({_names(keys)}) in (select * from unnest({_unnest(keys, first)}))"  # noqa: S608


def insert_sql(journal: Journal[Any], first: int = 1) -> str:
    """The statement that adds rows, one array for each column."""
    return _insert(journal.name, journal.columns, first) + (" on conflict do nothing" if journal.repeated == "ignore" else "")


def _insert(name: str, columns: Sequence[Column[Any]], first: int) -> str:
    return f"insert into {name} ({_names(columns)}) select * from unnest({_unnest(columns, first)})"  # noqa: S608
