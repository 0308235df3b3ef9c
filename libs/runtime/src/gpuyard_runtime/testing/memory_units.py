"""Units of work in memory: the same promises as PostgreSQL's, plus a hook to die at every point that matters."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from gpuyard_contracts.envelope import Envelope

from gpuyard_runtime.faults import Fenced, Unavailable
from gpuyard_runtime.store import Store
from gpuyard_runtime.table import Journal
from gpuyard_runtime.units import Committed, Work, is_idle

S = TypeVar("S", bound=Store)

CRASH_POINTS = ("before_commit", "after_commit", "after_publish", "before_ack")


class Crash(BaseException):
    """The process dies here. No `except Exception` can hold it, as none holds SIGKILL."""


class ConstraintViolated(Exception):
    """The database refuses a row, as its constraint would."""


@dataclass
class MemoryDatabase:
    """What survives a crash: tables by name and key, journals by name, inbox, outbox, the leader's epoch."""

    tables: dict[str, dict[Hashable, Any]] = field(default_factory=dict[str, dict[Hashable, Any]])
    journals: dict[str, list[Any]] = field(default_factory=dict[str, list[Any]])
    journal_keys: dict[str, set[Hashable]] = field(default_factory=dict[str, set[Hashable]])
    inbox: set[str] = field(default_factory=set[str])
    outbox: dict[int, Sequence[Envelope[Any]]] = field(default_factory=dict[int, Sequence[Envelope[Any]]])
    last_outbox_id: int = 0
    epoch: int = 0
    is_away: bool = False
    checks: list[Callable[["MemoryDatabase"], None]] = field(default_factory=list[Callable[["MemoryDatabase"], None]])
    """Constraints: each is called with the tables as they would be after the unit and raises to refuse it."""


class MemoryUnits(Generic[S]):
    """Runs units on a :class:`MemoryDatabase`. `crash` is called with the name of each point it passes and may raise :class:`Crash`."""

    def __init__(self, make: Callable[[], S], database: MemoryDatabase, crash: Callable[[str], None]) -> None:
        self._database = database
        self._crash = crash
        self._store = make()
        database.epoch += 1
        self._epoch = database.epoch
        for table in self._store.tables:
            table.restore(row for row in database.tables.get(table.name, {}).values() if table.keep(row))
        self._store.loaded()

    @property
    def store(self) -> S:
        """The store as the last committed unit left it."""
        return self._store

    def idle(self, work: Work) -> bool:
        """One unit that needs no database."""
        return is_idle(self._store, work)

    async def run(self, keys: Sequence[str], work: Work) -> Committed:
        """One unit; see :class:`gpuyard_runtime.units.Units`."""
        if keys:
            self._reach()
        try:
            said = work({key for key in keys if key not in self._database.inbox})
            if not keys and not said and not self._store.is_changed:
                return Committed(0, ())
            self._reach()
            self._crash("before_commit")
            outbox_id = self._commit(keys, said)
        except BaseException:
            self._store.undo()
            raise
        self._store.settle()
        self._crash("after_commit")
        return Committed(outbox_id, said)

    def _reach(self) -> None:
        if self._database.is_away:
            raise Unavailable("database")
        if self._database.epoch != self._epoch:
            raise Fenced("another process leads")

    def _commit(self, keys: Sequence[str], said: Sequence[Envelope[Any]]) -> int:
        found = self._database
        before = {name: dict(rows) for name, rows in found.tables.items()} if found.checks else {}
        for journal in self._store.journals:
            _check_journal(found, journal)
        for table in self._store.tables:
            changes = table.changes()
            rows = found.tables.setdefault(table.name, {})
            for row in changes.drops:
                rows.pop(table.key(row), None)
            for row in changes.upserts:
                rows[table.key(row)] = row
        try:
            for check in found.checks:
                check(found)
        except Exception:
            found.tables = before
            raise
        for journal in self._store.journals:
            _append(found, journal)
        found.inbox.update(keys)
        if not said:
            return 0
        found.last_outbox_id += 1
        found.outbox[found.last_outbox_id] = said
        return found.last_outbox_id


def _check_journal(database: MemoryDatabase, journal: Journal[Any]) -> None:
    if journal.key is None or journal.repeated == "ignore":
        return
    seen = set(database.journal_keys.get(journal.name, ()))
    for row in journal.added:
        key = journal.key(row)
        if key in seen:
            raise ConstraintViolated(f"{journal.name}: {key!r} is there already")
        seen.add(key)


def _append(database: MemoryDatabase, journal: Journal[Any]) -> None:
    rows = database.journals.setdefault(journal.name, [])
    keys = database.journal_keys.setdefault(journal.name, set())
    key_of = journal.key
    for row in journal.added:
        if key_of is not None:
            key = key_of(row)
            if key in keys:
                continue
            keys.add(key)
        rows.append(row)
