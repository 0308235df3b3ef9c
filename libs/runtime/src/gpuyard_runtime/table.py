"""Rows in memory with an undo log: what a unit of work reads and changes.

Reads are dict reads. Writes of the open unit can be undone as if they had never been, or settled once the database has them;
:meth:`Table.changes` says what to write. Whoever holds a table (:class:`gpuyard_runtime.store.Store`) keeps the other half of that
promise: nothing is settled before the transaction has committed. Rows are frozen; a change is a new row under the same key.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Generic, Literal, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
D = TypeVar("D")

Record = Mapping[str, Any]
"""One row as the database gives it: column name to value."""


def always(row: Any) -> bool:
    """The default of `keep`: every row stays in memory."""
    return True


@dataclass(frozen=True, slots=True)
class Column(Generic[V]):
    """One column of a table: its name, its PostgreSQL type (no array types: use ``jsonb``) and how a row gives its value.

    Without `value` it is the row's attribute of the column's name. A ``jsonb`` value is JSON text, both ways.
    """

    name: str
    pgtype: str
    value: Callable[[V], Any] | None = None
    is_key: bool = False

    def reader(self) -> Callable[[V], Any]:
        """The function from a row to this column's value."""
        return self.value or attrgetter(self.name)


class Changes(NamedTuple):
    """What a unit did to a table: rows to write, in flush order, and rows to delete (as they were)."""

    upserts: list[Any]
    drops: list[Any]


class Index(Generic[K, V]):
    """The rows of a table grouped by one or several values each; follows puts, drops and undo."""

    __slots__ = ("_groups", "_sorted", "_values_of")

    def __init__(self, values_of: Callable[[V], Iterable[Hashable]]) -> None:
        self._values_of = values_of
        self._groups: dict[Hashable, dict[K, V]] = {}
        self._sorted: dict[Hashable, list[V]] = {}

    def get(self, value: Hashable) -> list[V]:
        """The rows with this value in key order. A shared list: do not change it."""
        found = self._sorted.get(value)
        if found is None:
            group = self._groups.get(value)
            if group is None:
                return []
            found = list(group.values()) if len(group) == 1 else [row for _, row in sorted(group.items())]  # pyright: ignore[reportArgumentType]  # keys of one table compare with each other
            self._sorted[value] = found
        return found

    def count(self, value: Hashable) -> int:
        """How many rows have this value."""
        return len(self._groups.get(value, ()))

    def values(self) -> list[Hashable]:
        """The values that at least one row has, in no order."""
        return list(self._groups)

    def move(self, key: K, old: V | None, new: V | None) -> None:
        """Follow one change of the table: `old` became `new` (None: there is none)."""
        before = () if old is None else self._values_of(old)
        after = () if new is None else self._values_of(new)
        if new is not None and before == after:
            for value in after:
                self._sorted.pop(value, None)
                self._groups[value][key] = new
            return
        before, after = set(before), set(after)
        for value in before:
            self._sorted.pop(value, None)
            if value not in after:
                group = self._groups[value]
                del group[key]
                if not group:
                    del self._groups[value]
        if new is not None:
            for value in after:
                self._sorted.pop(value, None)
                self._groups.setdefault(value, {})[key] = new


class Sums(Generic[K, V]):
    """Sums of two amounts over the rows of a table, by a value of theirs; follows puts, drops and undo."""

    __slots__ = ("_parts_of", "_sums")

    def __init__(self, parts_of: Callable[[V], Sequence[tuple[Hashable, int, int]]]) -> None:
        self._parts_of = parts_of
        self._sums: dict[Hashable, tuple[int, int]] = {}

    def get(self, value: Hashable) -> tuple[int, int]:
        """Both sums over the rows with this value."""
        return self._sums.get(value, (0, 0))

    def move(self, key: K, old: V | None, new: V | None) -> None:
        """Follow one change of the table: `old` became `new` (None: there is none)."""
        before = () if old is None else self._parts_of(old)
        after = () if new is None else self._parts_of(new)
        if before == after:
            return
        for parts, sign in ((before, -1), (after, 1)):
            for value, first, second in parts:
                had_first, had_second = self.get(value)
                self._sums[value] = (had_first + sign * first, had_second + sign * second)
        for value, _, _ in before:
            if self._sums.get(value) == (0, 0):
                del self._sums[value]


class Derived(Generic[K, V, D]):
    """What is worked out of a row of a table, once: kept for as long as the row stays as it is."""

    __slots__ = ("_derive", "_known")

    def __init__(self, derive: Callable[[V], D]) -> None:
        self._derive = derive
        self._known: dict[K, D] = {}

    def get(self, key: K, row: V) -> D:
        """The derived value of the table's row of this key."""
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._derive(row)
        return found

    def __len__(self) -> int:
        return len(self._known)

    def move(self, key: K, old: V | None, new: V | None) -> None:
        """Follow one change of the table: forget what was derived from `old`."""
        self._known.pop(key, None)


class Table(Generic[K, V]):
    """Rows by key.

    `keep`: a row for which it is false leaves the memory once its unit is settled and stays in the database (what has ended). It must agree
    with `where`, the SQL condition of the rows that are loaded at start. `order`: rows with a smaller value are written first, for a unique
    index that a row must leave before another can enter it. Dropping a row deletes it in the database too.
    """

    def __init__(
        self,
        name: str,
        key: Callable[[V], K],
        columns: tuple[Column[V], ...],
        of_record: Callable[[Record], V],
        *,
        keep: Callable[[V], bool] = always,
        where: str = "true",
        order: Callable[[V], Any] | None = None,
    ) -> None:
        if not any(column.is_key for column in columns):
            raise ValueError(f"table {name}: no column is a key")
        self.name = name
        self.key = key
        self.columns = columns
        self.of_record = of_record
        self.keep = keep
        self.where = where
        self._order = order
        self._rows: dict[K, V] = {}
        self._before: dict[K, V | None] = {}
        self._indexes: list[Index[K, V] | Sums[K, V] | Derived[K, V, Any]] = []

    def get(self, key: K) -> V | None:
        """The row of this key, if it is in memory."""
        return self._rows.get(key)

    def __getitem__(self, key: K) -> V:
        return self._rows[key]

    def __contains__(self, key: K) -> bool:
        return key in self._rows

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[K]:
        return iter(self._rows)

    def values(self) -> list[V]:
        """All rows in memory, in no promised order; a copy, so the table may be changed while it is walked."""
        return list(self._rows.values())

    def put(self, row: V) -> None:
        """Add the row, or replace the one with its key."""
        key = self.key(row)
        old = self._rows.get(key)
        if old is row:
            return
        self._before.setdefault(key, old)
        self._rows[key] = row
        for index in self._indexes:
            index.move(key, old, row)

    def drop(self, key: K) -> V | None:
        """Delete the row, here and in the database; returns what it was. A row that is not in memory is left alone (None)."""
        old = self._rows.pop(key, None)
        if old is not None:
            self._before.setdefault(key, old)
            for index in self._indexes:
                index.move(key, old, None)
        return old

    def index(self, value_of: Callable[[V], Hashable]) -> Index[K, V]:
        """A new index by one value of each row; rows whose value is None are left out."""

        def values_of(row: V) -> tuple[Hashable, ...]:
            value = value_of(row)
            return () if value is None else (value,)

        return self.index_each(values_of)

    def index_each(self, values_of: Callable[[V], Iterable[Hashable]]) -> Index[K, V]:
        """A new index by several values of each row."""
        made: Index[K, V] = Index(values_of)
        self._follow(made)
        return made

    def sums(self, parts_of: Callable[[V], Sequence[tuple[Hashable, int, int]]]) -> Sums[K, V]:
        """New sums: each row's parts are values with two amounts each."""
        made: Sums[K, V] = Sums(parts_of)
        self._follow(made)
        return made

    def derived(self, derive: Callable[[V], D]) -> Derived[K, V, D]:
        """A new store for what `derive` (pure, never None) makes of a row."""
        made: Derived[K, V, D] = Derived(derive)
        self._indexes.append(made)
        return made

    def _follow(self, made: Index[K, V] | Sums[K, V]) -> None:
        for key, row in self._rows.items():
            made.move(key, None, row)
        self._indexes.append(made)

    @property
    def is_changed(self) -> bool:
        """Whether the open unit has touched a row."""
        return bool(self._before)

    def changes(self) -> Changes:
        """What the open unit changed: rows by `order`, else in the order in which they were first touched."""
        upserts: list[V] = []
        drops: list[V] = []
        for key, old in self._before.items():
            now = self._rows.get(key)
            if now is None:
                if old is not None:
                    drops.append(old)
            elif now is not old:
                upserts.append(now)
        if self._order is not None and len(upserts) > 1:
            upserts.sort(key=self._order)
        return Changes(upserts, drops)

    def undo(self) -> None:
        """Take back everything since the last settle."""
        for key, old in self._before.items():
            self._replace(key, old)
        self._before.clear()

    def settle(self) -> None:
        """The database has the changes: forget how it was, and let go the rows that are not kept."""
        keep = self.keep
        if keep is not always:
            for key in self._before:
                row = self._rows.get(key)
                if row is not None and not keep(row):
                    self._replace(key, None)
        self._before.clear()

    def restore(self, rows: Iterable[V]) -> None:
        """Fill the table with rows that the database has; no change is noted."""
        for row in rows:
            self._replace(self.key(row), row)

    def _replace(self, key: K, new: V | None) -> None:
        old = self._rows.get(key)
        if new is None:
            self._rows.pop(key, None)
        else:
            self._rows[key] = new
        for index in self._indexes:
            index.move(key, old, new)


class Journal(Generic[V]):
    """Rows that are only ever added (history, entries); written at the end of the unit and not kept in memory.

    `key` says what must be unique (the database's constraint says it too). `repeated`: a key that is there already fails the unit, or is
    ignored so that adding again does nothing.
    """

    def __init__(
        self,
        name: str,
        columns: tuple[Column[V], ...],
        *,
        key: Callable[[V], Hashable] | None = None,
        repeated: Literal["fail", "ignore"] = "fail",
    ) -> None:
        self.name = name
        self.columns = columns
        self.key = key
        self.repeated: Literal["fail", "ignore"] = repeated
        self.added: list[V] = []

    def add(self, *rows: V) -> None:
        """Add rows, in order."""
        self.added.extend(rows)

    def undo(self) -> None:
        """Forget what the open unit added."""
        self.added.clear()

    def settle(self) -> None:
        """The database has what was added."""
        self.added.clear()
