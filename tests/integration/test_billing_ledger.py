"""The ledger on a real PostgreSQL: its constraints, its answers, and the proof that finds what was tampered with."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime
from typing import Any

import asyncpg
import pytest
from gpuyard_billing.app import service
from gpuyard_billing.events import StreamEvents
from gpuyard_billing.settings import BillingSettings
from gpuyard_billing.store import BillingStore
from gpuyard_contracts.envelope import Envelope
from gpuyard_contracts.messages.asks import EntriesAskV1, GrantCreditAskV1, PriceV1, SetPricesAskV1, UsageAskV1, VerifyAskV1, VerifyReplyV1
from gpuyard_contracts.topology import stream_named
from gpuyard_local.nats import Nats
from gpuyard_runtime.bootstrap import bootstrap
from gpuyard_runtime.bus import connect
from gpuyard_runtime.faults import Refused
from gpuyard_runtime.ids import derive
from gpuyard_runtime.saying import enveloped
from gpuyard_runtime.settings import BusSettings

from tests.support.on_postgres import OnPostgres, on_postgres
from tests.unit.billing.billing_world import HOUR_MS, START, T4_HOUR, after, committed, ids, released, started, ticked

Ledger = OnPostgres[BillingStore]


class ToldEvents:
    """Gives `verify` what the test has said."""

    def __init__(self) -> None:
        self.told: list[Envelope[Any]] = []

    async def allocation_events(self) -> AsyncIterator[list[Envelope[Any]]]:
        yield [event for event in self.told if ".allocation." in event.type]


def on_ledger(dsn: str, story: Callable[[Ledger], Awaitable[None]]) -> None:
    """Run a story on a fresh billing."""
    source = ToldEvents()

    async def told(ledger: Ledger) -> None:
        source.told = ledger.events
        await story(ledger)

    on_postgres(service(BillingSettings(), source), dsn, after(8 * HOUR_MS), told)


async def verify(ledger: Ledger) -> VerifyReplyV1:
    return await ledger.ask(VerifyAskV1())


async def tamper(ledger: Ledger, statement: str) -> None:
    """What only a superuser can do: change the ledger behind its triggers."""
    async with ledger.db.acquire() as conn, conn.transaction():
        await conn.execute("set local session_replication_role = replica")
        await conn.execute(statement)


def prices(valid_from: datetime, **micros: int) -> SetPricesAskV1:
    named = {"*": 1_000_000} | micros
    return SetPricesAskV1(
        request_id=f"at-{valid_from.timestamp()}",
        valid_from=valid_from,
        prices=tuple(PriceV1(model=model, micros_per_gpu_hour=price) for model, price in named.items()),
    )


async def some_history(ledger: Ledger) -> None:
    """Three jobs of two tenants over a change of prices; one of them still runs and is billed for its first hour."""
    await ledger.ask(prices(after(HOUR_MS // 2), T4=700_000))
    await ledger.ask(GrantCreditAskV1(tenant="acme", request_id="g1", amount_micros=9_000_000, reason="welcome"))
    await ledger.feed(committed(), started(), released(end=2 * HOUR_MS + 777))
    await ledger.feed(committed("two", tenant="beta", milli=333), released("two", tenant="beta", begin=5, end=123_456))
    await ledger.feed(committed("three", {"A-a": "A100-80GB"}), started("three"), ticked("three", ms=HOUR_MS))
    await ledger.tick("settlement")
    await ledger.feed(committed("four"), released("four", begin=None, reason="start-failed"))


def test_the_ledger_is_what_the_events_say_to_the_unit(dsn: str) -> None:
    async def story(ledger: Ledger) -> None:
        await some_history(ledger)
        found = await verify(ledger)
        assert found.differences == ()
        assert found.is_right
        assert found.expected_micros == found.ledger_micros > 0
        assert (found.allocations, found.events, found.detail) == (4, 9, "")
        assert found.entries == 2 * found.transactions

    on_ledger(dsn, story)


FIRST = "transaction_id = (select min(transaction_id) from transactions where kind = 'usage' and tenant = 'acme')"


@pytest.mark.parametrize(
    ("statement", "where"),
    [
        ("update entries set amount_micros = amount_micros + 1 where entry_id = 5", "transaction"),
        (f"update entries set amount_micros = case account when 'receivable' then 1 else -1 end where {FIRST}", "allocation"),
        (f"update entries set tenant = 'beta' where {FIRST}", "owed by beta"),
        (f"delete from entries where {FIRST}", "allocation"),
        (f"delete from transactions where {FIRST}", "transaction"),
        ("update transactions set price_version = 2 where price_version = 1", "price version"),
        ("update balances set used_micros = used_micros - 1 where tenant = 'acme'", "balance of acme"),
        ("update entries set amount_micros = 2 * amount_micros where transaction_id like 'grant-%'", "balance of acme"),
    ],
)
def test_whatever_was_tampered_with_is_found(dsn: str, statement: str, where: str) -> None:
    async def story(ledger: Ledger) -> None:
        await some_history(ledger)
        await tamper(ledger, statement)
        found = await verify(ledger)
        assert not found.is_right
        assert where in " ".join(f"{row.where} {row.expected} {row.found}" for row in found.differences)

    on_ledger(dsn, story)


def test_events_that_the_stream_no_longer_keeps_are_replaced_by_own_records_and_counted(dsn: str) -> None:
    async def story(ledger: Ledger) -> None:
        await some_history(ledger)
        del ledger.events[:4]  # the first job's three events and the second's commitment
        found = await verify(ledger)
        assert found.is_right
        assert found.detail.startswith("2 allocations are older")
        await tamper(ledger, "update entries set amount_micros = 7 * amount_micros where transaction_id like 'use-%-1-1'")
        assert not (await verify(ledger)).is_right

    on_ledger(dsn, story)


def test_a_release_on_its_way_is_pending_and_one_that_was_swallowed_is_a_difference(dsn: str) -> None:
    async def story(ledger: Ledger) -> None:
        await ledger.feed(committed(), started())
        await ledger.feed(released(), is_handled=False)
        found = await verify(ledger)
        assert (found.is_right, found.detail) == (True, "1 releases are on their way and not yet settled")
        await ledger.db.execute("insert into inbox (key, at) values ($1, now())", ledger.events[-1].id)
        found = await verify(ledger)
        assert [row.found for row in found.differences] == ["not settled", "0 micros for 0 ms, owed by acme"]

    on_ledger(dsn, story)


def test_what_is_delivered_again_after_a_restart_changes_nothing(dsn: str) -> None:
    async def story(ledger: Ledger) -> None:
        await some_history(ledger)
        before = await ledger.ask(EntriesAskV1())
        await ledger.restart()
        await ledger.deliver(*ledger.events)
        await ledger.feed(released("three", end=2 * HOUR_MS))
        after_all = await ledger.ask(EntriesAskV1())
        assert after_all.entries[: len(before.entries)] == before.entries
        assert {row.allocation_id for row in after_all.entries[len(before.entries) :]} == {ids("three")["allocation_id"]}
        assert (await verify(ledger)).is_right

    on_ledger(dsn, story)


def test_a_commitment_told_again_does_not_reopen_what_is_final(dsn: str) -> None:
    async def story(ledger: Ledger) -> None:
        await ledger.feed(committed(), released())
        await ledger.feed(committed())  # the same words under another id
        assert any("is final" in str(error) for error in ledger.errors)
        assert len(ledger.store.allocations) == 0  # what lived on here would be billed again, and hold up everyone's settlement
        await ledger.restart()
        assert len(ledger.store.allocations) == 0
        assert (await verify(ledger)).is_right

    on_ledger(dsn, story)


def test_what_is_told_again_of_a_final_allocation_waits_for_no_commitment(dsn: str) -> None:
    async def story(ledger: Ledger) -> None:
        await ledger.feed(committed(), released())
        await ledger.feed(started(), released())  # the same words under other ids
        await ledger.restart()
        assert len(ledger.store.early) == 0
        await ledger.feed(released("two"))  # this one's commitment is still on its way
        await ledger.restart()
        assert len(ledger.store.early) == 1

    on_ledger(dsn, story)


def test_a_segment_cannot_be_booked_twice_whatever_comes_again(dsn: str) -> None:
    async def story(ledger: Ledger) -> None:
        await ledger.feed(committed(), released())
        await ledger.feed(committed(), released())  # both under other ids, as no one should ever say them
        for _ in range(5):
            await ledger.deliver(*ledger.events[-2:])
        assert await ledger.db.fetchval("select sum(amount_micros) from entries where account = 'receivable'") == T4_HOUR
        assert any("is final" in str(error) for error in ledger.errors)

    on_ledger(dsn, story)


INTO_ENTRIES = "insert into entries (transaction_id, tenant, account, amount_micros, currency) values"
REFUSED = {
    "update entries set amount_micros = 0": "never changed",
    "delete from entries": "never changed",
    "truncate entries": "never changed",
    "update transactions set memo = 'x'": "never changed",
    "delete from transactions": "never changed",
    f"{INTO_ENTRIES} ('use-x', 'acme', 'revenue', 5, 'USD')": "sum to zero",
    f"{INTO_ENTRIES} ('none', 'acme', 'revenue', 5, 'USD'), ('none', 'acme', 'receivable', -5, 'USD')": "no transaction",
    "insert into transactions (transaction_id, kind, tenant, held_ms, gpu_ms, memo, booked_ms)"
    " values ('u', 'usage', 'acme', 0, 0, '', 0)": "transactions_priced_interval",
}


def test_the_database_itself_keeps_the_rules_of_the_ledger(dsn: str) -> None:
    async def story(ledger: Ledger) -> None:
        await ledger.feed(committed(), released())
        for statement, says in REFUSED.items():
            with pytest.raises(asyncpg.PostgresError, match=says):
                await ledger.db.execute(statement)

    on_ledger(dsn, story)


def test_usage_by_windows_adds_up_to_the_whole(dsn: str) -> None:
    async def story(ledger: Ledger) -> None:
        await some_history(ledger)
        whole = await ledger.ask(UsageAskV1())
        windows = [await ledger.ask(UsageAskV1(since=after(hour * HOUR_MS), until=after((hour + 1) * HOUR_MS))) for hour in range(3)]
        assert sum(window.total_micros for window in windows) == whole.total_micros
        assert sum(window.total_gpu_ms for window in windows) == whole.total_gpu_ms
        assert [len(window.rows) for window in windows] == [3, 1, 1]

    on_ledger(dsn, story)


def test_usage_shows_bill_and_evidence_side_by_side_page_by_page(dsn: str) -> None:
    async def story(ledger: Ledger) -> None:
        await some_history(ledger)
        rows: list[Any] = []
        cursor: str | None = None
        while True:
            page = await ledger.ask(UsageAskV1(limit=1, cursor=cursor))
            rows += page.rows
            cursor = page.next_cursor
            if cursor is None:
                break
        assert sorted(row.is_final for row in rows) == [False, True, True]
        assert [row.started_at for row in rows] == sorted(row.started_at for row in rows)
        running = next(row for row in rows if not row.is_final)
        assert (running.held_ms, running.evidence_gpu_ms, running.billed_until) == (HOUR_MS, HOUR_MS, after(HOUR_MS))
        one = await ledger.ask(UsageAskV1(job_id=ids("two", tenant="beta")["job_id"]))
        assert [row.tenant for row in one.rows] == ["beta"]
        assert one.total_micros == one.rows[0].amount_micros
        with pytest.raises(Refused, match="bad-cursor"):
            await ledger.ask(UsageAskV1(cursor="yesterday"))

    on_ledger(dsn, story)


def test_entries_come_in_pages_in_the_order_they_were_booked(dsn: str) -> None:
    async def story(ledger: Ledger) -> None:
        await some_history(ledger)
        whole = (await ledger.ask(EntriesAskV1())).entries
        first = await ledger.ask(EntriesAskV1(limit=4))
        second = await ledger.ask(EntriesAskV1(limit=4, cursor=first.next_cursor))
        assert first.entries + second.entries == whole[:8]
        assert {row.tenant for row in (await ledger.ask(EntriesAskV1(tenant="beta"))).entries} == {"beta"}
        jobs = (await ledger.ask(EntriesAskV1(job_id=ids()["job_id"]))).entries
        assert sum(row.amount_micros for row in jobs) == 0
        assert jobs[0].period_start == START

    on_ledger(dsn, story)


def test_the_events_are_read_again_from_a_real_stream_to_its_end_and_no_further(shared_nats: Nats) -> None:
    async def story() -> list[Any]:
        bus = await connect(BusSettings(nats_url=shared_nats.url), name="billing")
        stream = stream_named("EVT_PLACEMENT")
        await bootstrap(bus, streams=(stream,), durables=())
        source = StreamEvents()
        source.bus = bus
        nothing = [event async for batch in source.allocation_events() for event in batch]
        assert nothing == []
        said = [committed(), started(), released()]
        for number, data in enumerate(said):
            made = enveloped(data, source="placement", at=START, event_id=derive("t", "e", str(number)))
            await bus.publish(made)
        found = [event.data async for batch in source.allocation_events() for event in batch]
        await bus.api(f"STREAM.DELETE.{stream.name}")
        await bus.close()
        return [found, said]

    found, said = asyncio.run(story())
    assert found == said
