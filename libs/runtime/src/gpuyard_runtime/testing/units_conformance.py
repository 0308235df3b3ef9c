"""What every adapter of the units of work must do, run against memory and PostgreSQL: a fake is worth what it has in common with the real.

Each behaviour is one coroutine over a *rig*, which a test module makes for its adapter; :data:`UNITS` lists them all. The bus has its
own: :mod:`gpuyard_runtime.testing.bus_conformance`.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Protocol

from gpuyard_contracts.envelope import Envelope

from gpuyard_runtime.dead_letters import letter
from gpuyard_runtime.faults import Fenced, Unavailable
from gpuyard_runtime.ids import derive
from gpuyard_runtime.saying import enveloped
from gpuyard_runtime.store import Store
from gpuyard_runtime.table import Column
from gpuyard_runtime.units import Units, Work

AT = datetime(2030, 1, 1, tzinfo=UTC)

MIGRATION = """
create table things (id text primary key, holder text, amount bigint not null, is_ended boolean not null,
    constraint things_have_no_debt check (amount >= 0));
create unique index things_have_one_holder on things (holder) where not is_ended;
create table notes (id text primary key, text text not null);
"""


@dataclass(frozen=True, slots=True)
class Thing:
    """A row: something that a holder may hold, one at a time."""

    id: str
    amount: int = 0
    holder: str | None = None
    is_ended: bool = False


@dataclass(frozen=True, slots=True)
class Note:
    """A journal's row."""

    id: str
    text: str


class ThingStore(Store):
    """The store of the suite."""

    def __init__(self) -> None:
        super().__init__()
        self.things = self.table(
            "things",
            lambda row: row.id,
            (Column("id", "text", is_key=True), Column("holder", "text"), Column("amount", "int8"), Column("is_ended", "bool")),
            lambda record: Thing(**record),
            keep=lambda row: not row.is_ended,
            where="not is_ended",
            order=lambda row: not row.is_ended,
        )
        self.by_holder = self.things.index(lambda row: row.holder)
        self.notes = self.journal("notes", (Column("id", "text"), Column("text", "text")), key=lambda row: row.id)


class UnitsRig(Protocol):
    """One adapter of :class:`gpuyard_runtime.units.Units` with a database of its own, made with :data:`MIGRATION`."""

    units: Units[ThingStore]

    async def reopen(self) -> Units[ThingStore]:
        """A new life of the service on the same database; it becomes `units`. Returns the old one."""
        ...

    async def committed(self) -> tuple[set[str], list[Note], int]:
        """What the database holds: ids of things, notes, and how many rows the outbox has."""
        ...

    async def go_away(self) -> None:
        """The database can no longer be reached."""
        ...

    async def come_back(self) -> None:
        """It can be reached again."""
        ...


def event(number: int) -> Envelope[Any]:
    """An envelope to say."""
    data = letter("suite", "some.subject", "SOME", number, "reason", "detail", None, b"{}")
    return enveloped(data, source="suite", at=AT, event_id=derive("suite", "event", str(number)))


def silent(do: Callable[[Collection[str]], Any]) -> Work:
    """The work of a unit that says nothing."""

    def work(fresh: Collection[str]) -> list[Envelope[Any]]:
        do(fresh)
        return []

    return work


async def fresh_of(rig: UnitsRig, *keys: str) -> set[str]:
    """The keys that a unit which claims these finds new."""
    seen: list[set[str]] = []
    await rig.units.run(keys, silent(lambda fresh: seen.append(set(fresh))))
    return seen[-1]


async def put(rig: UnitsRig, *things: Thing, keys: Sequence[str] = (), said: int = 0) -> None:
    """One unit that puts things."""

    def work(fresh: Any) -> list[Envelope[Any]]:
        for thing in things:
            rig.units.store.things.put(thing)
        return [event(number) for number in range(said)]

    await rig.units.run(keys, work)


async def a_unit_commits_rows_notes_inbox_and_outbox_together(rig: UnitsRig) -> None:
    """Everything of a unit is there, and the next life sees it."""

    def work(fresh: Any) -> list[Envelope[Any]]:
        rig.units.store.things.put(Thing("a", 1))
        rig.units.store.notes.add(Note("n", "text"))
        return [event(1), event(2)]

    unit = await rig.units.run(["k"], work)
    assert [found.id for found in unit.said] == [event(1).id, event(2).id]
    assert await rig.committed() == ({"a"}, [Note("n", "text")], 1)
    await rig.reopen()
    assert rig.units.store.things["a"] == Thing("a", 1)


async def only_new_keys_are_fresh(rig: UnitsRig) -> None:
    """A key is claimed once, by this life and the next."""
    assert await fresh_of(rig, "a", "b") == {"a", "b"}
    assert await fresh_of(rig, "b", "c") == {"c"}
    await rig.reopen()
    assert await fresh_of(rig, "a", "c", "d") == {"d"}


async def what_was_done_before_is_not_tried_again(rig: UnitsRig) -> None:
    """A second delivery does not fail, even where the handler would by now."""

    def work(fresh: Collection[str]) -> list[Envelope[Any]]:
        if "a" in fresh:
            raise ZeroDivisionError
        rig.units.store.notes.add(*(Note(key, "first") for key in sorted(fresh)))
        return []

    await fresh_of(rig, "a")
    await rig.units.run(["a", "b"], work)
    assert (await rig.committed())[1] == [Note("b", "first")]


async def a_failing_unit_leaves_nothing(rig: UnitsRig) -> None:
    """Rows, index, notes and keys are as before; the error comes through."""
    await put(rig, Thing("a", 1, "x"))

    def work(fresh: Any) -> list[Envelope[Any]]:
        rig.units.store.things.put(Thing("a", 2, "y"))
        rig.units.store.things.put(Thing("b", 2))
        rig.units.store.notes.add(Note("n", "text"))
        raise ZeroDivisionError

    for keys in (["k"], []):
        try:
            await rig.units.run(keys, work)
        except ZeroDivisionError:
            pass
        else:
            raise AssertionError("the error was swallowed")
    assert rig.units.store.things.values() == [Thing("a", 1, "x")]
    assert rig.units.store.by_holder.get("x") == [Thing("a", 1, "x")]
    assert rig.units.store.by_holder.get("y") == []
    assert await fresh_of(rig, "k") == {"k"}
    assert await rig.committed() == ({"a"}, [], 0)


async def a_unit_that_the_database_refuses_leaves_nothing(rig: UnitsRig) -> None:
    """A constraint speaks for itself, and the next unit is as good as any."""
    try:
        await put(rig, Thing("a", -1), keys=["k"], said=1)
    except (Unavailable, Fenced) as error:
        raise AssertionError("the data is to blame, not the database") from error
    except Exception as error:
        assert "things_have_no_debt" in str(error)
    else:
        raise AssertionError("the constraint was not asked")
    assert len(rig.units.store.things) == 0
    await put(rig, Thing("a", 1), keys=["k"])
    assert await rig.committed() == ({"a"}, [], 0)


async def a_row_can_enter_what_another_leaves_in_the_same_unit(rig: UnitsRig) -> None:
    """`order` writes the leaving row first, whichever was touched first."""
    await put(rig, Thing("old", 1, "x"))

    def work(fresh: Any) -> list[Envelope[Any]]:
        things = rig.units.store.things
        things.put(Thing("new", 1))
        things.put(replace(things["old"], is_ended=True))
        things.put(Thing("new", 1, "x"))
        return []

    await rig.units.run([], work)
    assert rig.units.store.by_holder.get("x") == [Thing("new", 1, "x")]
    await rig.reopen()
    assert rig.units.store.things.values() == [Thing("new", 1, "x")]


async def a_row_can_take_a_dropped_ones_place(rig: UnitsRig) -> None:
    """Deletes are written before everything else."""
    await put(rig, Thing("old", 1, "x"))

    def work(fresh: Collection[str]) -> list[Envelope[Any]]:
        rig.units.store.things.put(Thing("new", 1, "x"))
        rig.units.store.things.drop("old")
        return [event(1)]

    await rig.units.run(["k"], work)
    assert await rig.committed() == ({"new"}, [], 1)


async def ended_rows_leave_the_memory_and_dropped_rows_the_database(rig: UnitsRig) -> None:
    """`keep` is about memory, `drop` about existence."""
    await put(rig, Thing("a"), Thing("b"), Thing("c"))
    await put(rig, Thing("a", is_ended=True))
    await rig.units.run([], silent(lambda fresh: rig.units.store.things.drop("b")))
    assert list(rig.units.store.things) == ["c"]
    assert (await rig.committed())[0] == {"a", "c"}
    await rig.reopen()
    assert list(rig.units.store.things) == ["c"]


async def a_note_is_written_once(rig: UnitsRig) -> None:
    """A journal's key that is there already refuses the unit."""

    def work(fresh: Any) -> list[Envelope[Any]]:
        rig.units.store.notes.add(Note("n", "again"))
        return []

    await rig.units.run([], work)
    try:
        await rig.units.run(["k"], work)
    except Exception as error:
        assert not isinstance(error, (Unavailable, Fenced))
    else:
        raise AssertionError("a note was written twice")
    assert (await rig.committed())[1] == [Note("n", "again")]


async def an_older_life_is_fenced(rig: UnitsRig) -> None:
    """As soon as another process leads, nothing of the old one commits."""
    old = await rig.reopen()
    for keys in (["k"], []):
        try:
            await old.run(keys, silent(lambda fresh: old.store.things.put(Thing("a"))))
        except Fenced:
            pass
        else:
            raise AssertionError("the old leader committed")
    assert (await rig.committed())[0] == set()


async def a_unit_without_keys_and_changes_needs_no_database(rig: UnitsRig) -> None:
    """Reading what is in memory works while the database is away."""
    await rig.go_away()
    assert (await rig.units.run([], lambda fresh: [])).outbox_id == 0
    await rig.come_back()


async def an_absent_database_is_waited_for_and_nothing_is_lost(rig: UnitsRig) -> None:
    """Unavailable while it is away, with everything undone; afterwards the same unit commits."""
    await put(rig, Thing("a", 1))
    await rig.go_away()
    for keys in (["k"], []):
        try:
            await put(rig, Thing("a", 2), keys=keys)
        except Unavailable:
            pass
        else:
            raise AssertionError("committed without a database")
    assert rig.units.store.things["a"] == Thing("a", 1)
    await rig.come_back()
    await put(rig, Thing("a", 2), keys=["k"])
    assert rig.units.store.things["a"] == Thing("a", 2)
    await rig.reopen()
    assert rig.units.store.things["a"] == Thing("a", 2)


UNITS: tuple[Callable[[Any], Awaitable[None]], ...] = (
    a_unit_commits_rows_notes_inbox_and_outbox_together,
    only_new_keys_are_fresh,
    what_was_done_before_is_not_tried_again,
    a_failing_unit_leaves_nothing,
    a_unit_that_the_database_refuses_leaves_nothing,
    a_row_can_enter_what_another_leaves_in_the_same_unit,
    a_row_can_take_a_dropped_ones_place,
    ended_rows_leave_the_memory_and_dropped_rows_the_database,
    a_note_is_written_once,
    an_older_life_is_fenced,
    a_unit_without_keys_and_changes_needs_no_database,
    an_absent_database_is_waited_for_and_nothing_is_lost,
)
