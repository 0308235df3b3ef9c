"""The SQL behind billing's answers: reading the ledger, changing nothing."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from gpuyard_contracts.messages.asks import DifferenceV1, EntriesAskV1, EntriesReplyV1, EntryV1, UsageAskV1, UsageReplyV1, UsageRowV1
from gpuyard_runtime.faults import Refused

from gpuyard_billing.domain.model import CURRENCY
from gpuyard_billing.domain.rebuild import Booked, Money
from gpuyard_billing.mapping import instant_of, ms_of, told_of
from gpuyard_billing.store import allocation_of_record, shape_of_json

_ROWS = """
select allocation_id, tenant, job_id, attempt, shape, committed_ms, started_ms, ended_ms, billed_ms, segments, held_ms, gpu_ms,
       amount_micros, is_final, reason, traceparent
from allocations"""

_USED = """
with used as (
    select a.allocation_id, a.tenant, a.job_id, a.shape, a.started_ms, coalesce(a.billed_ms, a.started_ms) as billed_ms, a.is_final,
           a.held_ms, a.gpu_ms, a.amount_micros
    from allocations a
    where a.started_ms is not null and ($1::text is null or a.tenant = $1) and ($2::text is null or a.job_id = $2)
      and $3::int8 is null and $4::int8 is null -- true here: the other form of this query is for windows
)"""

_USED_IN_WINDOW = """
with used as (
    select a.allocation_id, a.tenant, a.job_id, a.shape, a.started_ms, coalesce(a.billed_ms, a.started_ms) as billed_ms, a.is_final,
           sum(t.held_ms)::int8 as held_ms, sum(t.gpu_ms)::int8 as gpu_ms, sum(e.amount_micros)::int8 as amount_micros
    from transactions t
    join allocations a using (allocation_id)
    join entries e on e.transaction_id = t.transaction_id and e.account = 'receivable'
    where ($1::text is null or a.tenant = $1) and ($2::text is null or a.job_id = $2)
      and ($3::int8 is null or t.begin_ms >= $3) and ($4::int8 is null or t.begin_ms < $4)
    group by a.allocation_id
)"""

_PAGE = """
select u.*, (select coalesce(sum(v.gpu_ms), 0)::int8 from evidence v where v.allocation_id = u.allocation_id) as evidence_gpu_ms
from used u where (u.started_ms, u.allocation_id) > ($5::int8, $6::text) order by u.started_ms, u.allocation_id limit $7"""

_TOTAL = """
select coalesce(sum(amount_micros), 0)::int8 as micros, coalesce(sum(gpu_ms), 0)::int8 as gpu_ms from used"""

_ENTRIES = """
select e.entry_id, e.transaction_id, t.kind, e.tenant, e.account, e.amount_micros, e.currency, t.job_id, t.allocation_id, t.price_version,
       t.begin_ms, t.end_ms, t.booked_ms, t.memo
from entries e join transactions t using (transaction_id)
where e.entry_id > $1 and ($2::text is null or e.tenant = $2) and ($3::text is null or t.job_id = $3)
order by e.entry_id limit $4"""

_BOOKED = """
select t.allocation_id, t.price_version, e.tenant, sum(e.amount_micros)::int8 as micros, sum(t.held_ms)::int8 as held_ms
from entries e join transactions t using (transaction_id)
where e.account = 'receivable' and t.allocation_id is not null and ($1::text[] is null or t.allocation_id = any($1))
group by t.allocation_id, t.price_version, e.tenant"""

_UNBALANCED = """
select transaction_id, sum(amount_micros)::text as micros, count(*) as entries from entries
group by transaction_id, currency having sum(amount_micros) <> 0 or count(*) <> 2 limit 20"""

_UNPAIRED = """
select coalesce(t.transaction_id, e.transaction_id) as transaction_id, t.transaction_id is null as is_orphan
from transactions t full join (select distinct transaction_id from entries) e using (transaction_id)
where t.transaction_id is null or e.transaction_id is null limit 20"""

_BALANCES = """
with booked as (
    select tenant, sum(case when account = 'credit' then -amount_micros else 0 end) as credit,
           sum(case when account = 'receivable' then amount_micros else 0 end) as used
    from entries group by tenant
), granted as (select tenant, sum(amount_micros) as credit from grants group by tenant)
select coalesce(b.tenant, k.tenant) as tenant, coalesce(k.credit, 0)::text as credit, coalesce(k.used, 0)::text as used,
       coalesce(b.credit_micros, 0)::text as credit_kept, coalesce(b.used_micros, 0)::text as used_kept,
       coalesce(g.credit, 0)::text as granted
from balances b full join booked k using (tenant) left join granted g on g.tenant = coalesce(b.tenant, k.tenant)
where coalesce(b.credit_micros, 0) <> coalesce(k.credit, 0) or coalesce(b.used_micros, 0) <> coalesce(k.used, 0)
   or coalesce(g.credit, 0) <> coalesce(k.credit, 0) limit 20"""


class LedgerReads:
    """Reads through a pool of connections (asyncpg)."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    async def usage(self, ask: UsageAskV1) -> UsageReplyV1:
        """One page of what was used, and the sums over all pages."""
        since, until = _ms(ask.since), _ms(ask.until)
        used = _USED if since is None and until is None else _USED_IN_WINDOW
        after_ms, after_id = _usage_cursor(ask.cursor)
        async with self._pool.acquire() as conn, conn.transaction(isolation="repeatable_read", readonly=True):
            page = await conn.fetch(used + _PAGE, ask.tenant, ask.job_id, since, until, after_ms, after_id, ask.limit)
            total = await conn.fetchrow(used + _TOTAL, ask.tenant, ask.job_id, since, until)
        last = page[-1] if len(page) == ask.limit else None
        return UsageReplyV1(
            rows=tuple(_usage_row(record) for record in page),
            currency=CURRENCY,
            total_micros=total["micros"],
            total_gpu_ms=total["gpu_ms"],
            next_cursor=None if last is None else f"{last['started_ms']}.{last['allocation_id']}",
        )

    async def entries(self, ask: EntriesAskV1) -> EntriesReplyV1:
        """One page of the ledger's entries."""
        cursor = ask.cursor or "0"
        if not (cursor.isascii() and cursor.isdigit() and len(cursor) <= 18):
            raise Refused("bad-cursor", "this is not a cursor that an earlier page gave")
        found = await self._pool.fetch(_ENTRIES, int(cursor), ask.tenant, ask.job_id, ask.limit)
        return EntriesReplyV1(
            entries=tuple(_entry(record) for record in found),
            next_cursor=str(found[-1]["entry_id"]) if len(found) == ask.limit else None,
        )

    async def booked(self, only: Sequence[str] | None) -> Booked:
        """The ledger's sums and billing's own records, in one snapshot; of some allocations or of all."""
        booked, _ = await self.booked_and_handled(only, ())
        return booked

    async def booked_and_handled(self, only: Sequence[str] | None, event_ids: Sequence[str]) -> tuple[Booked, frozenset[str]]:
        """The same, and in the same snapshot which of these events billing has handled."""
        async with self._pool.acquire() as conn, conn.transaction(isolation="repeatable_read", readonly=True):
            sums = await conn.fetch(_BOOKED, only)
            rows = await conn.fetch(f"{_ROWS} where $1::text[] is null or allocation_id = any($1)", only)
            handled = await conn.fetch("select key from inbox where key = any($1)", list(event_ids)) if event_ids else []
        allocations = [allocation_of_record(record) for record in rows]
        return (
            Booked(
                money=_money(sums),
                billed_ms={row.allocation_id: row.billed_ms for row in allocations},
                finals=frozenset(row.allocation_id for row in allocations if row.is_final),
                own={row.allocation_id: told_of(row) for row in allocations},
            ),
            frozenset(record["key"] for record in handled),
        )

    async def counts(self) -> Mapping[str, int]:
        """How many transactions and entries the ledger has."""
        return await self._pool.fetchrow(
            "select (select count(*) from transactions) as transactions, (select count(*) from entries) as entries"
        )

    async def contradictions(self) -> list[DifferenceV1]:
        """Where the ledger contradicts itself or the sums that are kept of it."""
        found: list[DifferenceV1] = []
        async with self._pool.acquire() as conn, conn.transaction(isolation="repeatable_read", readonly=True):
            for row in await conn.fetch(_UNBALANCED):
                told = f"{row['entries']} entries that sum to {row['micros']}"
                found.append(DifferenceV1(where=f"transaction {row['transaction_id']}", expected="2 entries that sum to 0", found=told))
            for row in await conn.fetch(_UNPAIRED):
                told = "entries without a transaction" if row["is_orphan"] else "a transaction without entries"
                found.append(DifferenceV1(where=f"transaction {row['transaction_id']}", expected="a transaction with entries", found=told))
            for row in await conn.fetch(_BALANCES):
                expected = f"credit {row['granted']} by the grants, {row['credit']} by the ledger; used {row['used']} by the ledger"
                told = f"credit {row['credit_kept']}, used {row['used_kept']}"
                found.append(DifferenceV1(where=f"balance of {row['tenant']}", expected=expected, found=told))
        return found


def _money(sums: Sequence[Mapping[str, Any]]) -> dict[str, dict[int, Money]]:
    """Sums by allocation and version. What two tenants owe for one allocation is shown as owed by both, which no event says."""
    found: dict[str, dict[int, Money]] = defaultdict(dict)
    for row in sums:
        versions = found[row["allocation_id"]]
        other = versions.get(row["price_version"], Money("", 0, 0))
        tenant = f"{other.tenant} and {row['tenant']}" if other.tenant else row["tenant"]
        versions[row["price_version"]] = Money(tenant, other.micros + row["micros"], other.held_ms + row["held_ms"])
    return found


def _usage_row(record: Mapping[str, Any]) -> UsageRowV1:
    return UsageRowV1(
        tenant=record["tenant"],
        job_id=record["job_id"],
        allocation_id=record["allocation_id"],
        models=tuple(part.model for part in shape_of_json(record["shape"])),
        started_at=instant_of(record["started_ms"]),
        billed_until=instant_of(record["billed_ms"]),
        is_final=record["is_final"],
        held_ms=max(0, record["held_ms"]),
        gpu_ms=max(0, record["gpu_ms"]),
        evidence_gpu_ms=record["evidence_gpu_ms"],
        amount_micros=record["amount_micros"],
    )


def _entry(record: Mapping[str, Any]) -> EntryV1:
    return EntryV1(
        entry_id=record["entry_id"],
        transaction_id=record["transaction_id"],
        kind=record["kind"],
        tenant=record["tenant"],
        account=record["account"],
        amount_micros=record["amount_micros"],
        currency=record["currency"],
        job_id=record["job_id"],
        allocation_id=record["allocation_id"],
        price_version=record["price_version"],
        period_start=None if record["begin_ms"] is None else instant_of(record["begin_ms"]),
        period_end=None if record["end_ms"] is None else instant_of(record["end_ms"]),
        booked_at=instant_of(record["booked_ms"]),
        memo=record["memo"],
    )


def _ms(instant: Any) -> int | None:
    return None if instant is None else ms_of(instant)


def _usage_cursor(cursor: str | None) -> tuple[int, str]:
    if not cursor:
        return -1, ""
    begin, _, allocation_id = cursor.partition(".")
    if not (begin.isascii() and begin.isdigit() and len(begin) <= 18):
        raise Refused("bad-cursor", "this is not a cursor that an earlier page gave")
    return int(begin), allocation_id
