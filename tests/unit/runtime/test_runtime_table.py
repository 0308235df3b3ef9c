"""Rows in memory: whatever a unit did, undoing it gives what was before, in the rows and in every index."""

from dataclasses import dataclass
from typing import Any

import pytest
from gpuyard_runtime.store import Store, delete_sql, insert_sql, select_sql, upsert_sql
from gpuyard_runtime.table import Column, Index, Journal, Table
from hypothesis import given
from hypothesis import strategies as st


@dataclass(frozen=True, slots=True)
class Row:
    """A row."""

    id: int
    group: str | None
    tags: tuple[str, ...] = ()
    is_ended: bool = False


COLUMNS: tuple[Column[Row], ...] = (
    Column("id", "int8", is_key=True),
    Column("belongs", "text", lambda row: row.group),
    Column("is_ended", "bool"),
)


def table(**changes: Any) -> Table[int, Row]:
    return Table("rows", lambda row: row.id, COLUMNS, lambda record: Row(record["id"], record["belongs"]), **changes)


rows = st.builds(
    Row,
    id=st.integers(0, 5),
    group=st.sampled_from(["x", "y", None]),
    tags=st.lists(st.sampled_from(["p", "q"]), max_size=2).map(tuple),
    is_ended=st.booleans(),
)
changes = st.lists(st.one_of(rows, st.integers(0, 5)), max_size=12)


def apply(target: Table[int, Row], unit: list[Row | int]) -> None:
    for change in unit:
        if isinstance(change, Row):
            target.put(change)
        else:
            target.drop(change)


def expected_index(target: Table[int, Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in sorted(target.values(), key=lambda row: row.id):
        if row.group is not None:
            found.setdefault(row.group, []).append(row)
    return found


@given(settled=changes, undone=changes)
def test_undo_gives_back_what_was_settled(settled: list[Row | int], undone: list[Row | int]) -> None:
    target = table()
    by_group: Index[int, Row] = target.index(lambda row: row.group)
    by_tag: Index[int, Row] = target.index_each(lambda row: row.tags)
    apply(target, settled)
    target.settle()
    before = {row.id: row for row in target.values()}
    apply(target, undone)
    assert {value: by_group.get(value) for value in by_group.values()} == expected_index(target)
    target.undo()
    assert {row.id: row for row in target.values()} == before
    assert {value: by_group.get(value) for value in by_group.values()} == expected_index(target)
    assert sum(by_tag.count(tag) for tag in by_tag.values()) == sum(len(set(row.tags)) for row in before.values())
    assert not target.is_changed


@given(settled=changes, undone=changes)
def test_sums_follow_puts_drops_and_undo(settled: list[Row | int], undone: list[Row | int]) -> None:
    target = table()
    sums = target.sums(lambda row: [(tag, 1, row.id) for tag in row.tags])

    def agree() -> bool:
        parts = {tag: [row.id for row in target.values() for found in row.tags if found == tag] for tag in "pq"}
        return all(sums.get(tag) == (len(ids), sum(ids)) for tag, ids in parts.items())

    apply(target, settled)
    target.settle()
    apply(target, undone)
    assert agree()
    target.undo()
    assert agree()


@given(settled=changes, undone=changes)
def test_what_is_derived_is_always_of_the_row_as_it_is_and_goes_with_it(settled: list[Row | int], undone: list[Row | int]) -> None:
    target = table(keep=lambda row: not row.is_ended)
    derived = target.derived(lambda row: (row,))

    def agree() -> bool:
        return all(derived.get(row.id, row) == (row,) for row in target.values()) and len(derived) == len(target)

    apply(target, settled)
    assert agree()
    target.settle()
    assert agree()
    apply(target, undone)
    assert agree()
    target.undo()
    assert agree()


@given(settled=changes, unit=changes)
def test_changes_applied_to_what_was_give_what_is(settled: list[Row | int], unit: list[Row | int]) -> None:
    target = table()
    apply(target, settled)
    target.settle()
    database = {row.id: row for row in target.values()}
    apply(target, unit)
    found = target.changes()
    for row in found.drops:
        del database[row.id]
    database.update({row.id: row for row in found.upserts})
    assert database == {row.id: row for row in target.values()}


@given(unit=changes)
def test_only_kept_rows_stay_after_settling(unit: list[Row | int]) -> None:
    target = table(keep=lambda row: not row.is_ended)
    by_group = target.index(lambda row: row.group)
    apply(target, unit)
    live = {row.id: row for row in target.values() if not row.is_ended}
    target.settle()
    assert {row.id: row for row in target.values()} == live
    assert {value: by_group.get(value) for value in by_group.values()} == expected_index(target)


def test_rows_that_leave_are_flushed_before_rows_that_enter() -> None:
    target = table(order=lambda row: not row.is_ended)
    apply(target, [Row(1, "x"), Row(2, "x", is_ended=True)])
    assert [row.id for row in target.changes().upserts] == [2, 1]


def test_without_an_order_rows_are_flushed_as_first_touched() -> None:
    target = table()
    apply(target, [Row(3, "x"), Row(1, "x"), Row(3, "y")])
    assert target.changes().upserts == [Row(3, "y"), Row(1, "x")]


def test_putting_the_very_same_row_is_no_change() -> None:
    target = table()
    row = Row(1, "x")
    target.put(row)
    target.settle()
    target.put(row)
    assert not target.is_changed


def test_an_index_made_later_knows_the_rows_that_are_there() -> None:
    target = table()
    target.restore([Row(2, "x"), Row(1, "x")])
    assert [row.id for row in target.index(lambda row: row.group).get("x")] == [1, 2]


def test_a_table_without_a_key_column_is_refused() -> None:
    with pytest.raises(ValueError, match="no column is a key"):
        Table("rows", lambda row: row.id, COLUMNS[1:], lambda record: Row(1, None))


def test_the_statements_write_all_rows_at_once() -> None:
    target = table(where="not is_ended")
    assert select_sql(target) == "select id, belongs, is_ended from rows where not is_ended"
    assert upsert_sql(target) == (
        "insert into rows (id, belongs, is_ended) select * from unnest($1::int8[], $2::text[], $3::bool[])"
        " on conflict (id) do update set belongs = excluded.belongs, is_ended = excluded.is_ended"
    )
    assert delete_sql(target) == "delete from rows where (id) in (select * from unnest($1::int8[]))"
    journal: Journal[Row] = Journal("lines", COLUMNS[:1], repeated="ignore")
    assert insert_sql(journal) == "insert into lines (id) select * from unnest($1::int8[]) on conflict do nothing"


class Written:
    """A connection that notes what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, tuple[Any, ...]]] = []

    async def execute(self, query: str, *args: Any) -> str:
        self.told.append((query.split(" ")[0], args))
        return ""

    async def fetch(self, query: str, *args: Any) -> list[Any]:
        return [{"id": 1, "belongs": "x"}]

    async def fetchval(self, query: str, *args: Any) -> Any:
        return None


async def test_a_store_writes_one_statement_for_each_changed_part_and_deletes_first() -> None:
    store = Store()
    changed = store.table("rows", lambda row: row.id, COLUMNS, lambda record: Row(record["id"], record["belongs"]))
    store.table("others", lambda row: row.id, COLUMNS, lambda record: Row(record["id"], record["belongs"]))
    lines = store.journal("lines", COLUMNS[:2])
    conn = Written()
    await store.load(conn)
    apply(changed, [1, Row(2, "y"), Row(3, None)])
    lines.add(Row(9, "z"))
    await store.flush(conn)
    assert conn.told == [
        ("delete", ([1],)),
        ("insert", ([2, 3], ["y", None], [False, False])),
        ("insert", ([9], ["z"])),
    ]
    store.settle()
    assert not store.is_changed
