"""The bare limits that gpuyard's figures are held against, from the same run: the bus and the database without any service.

Spoken to with as little between as there is: whole blocks of frames on the wire, prepared statements. One client, one connection.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

import asyncpg
from gpuyard_runtime.bus import Bus
from gpuyard_runtime.wire import frame, header_block
from gpuyard_runtime.work import Delivery

from bench.figures import Figures, median
from bench.lab import Lab, run
from bench.scale import Scale

BODY = b"x" * 400
HEADERS = header_block({"ce-type": "limit"})
STREAM, SUBJECT, CONSUMER = "LIMIT", "limit.a", "limit-reader"
AT_ONCE = 256
BATCH = 200
FEWER_INSERTS = 10
MORE_COPIES = 5

Measured = Callable[[], Awaitable[None]]


def measure(figures: Figures, lab: Lab, scale: Scale) -> None:
    """Put `limit.*`: JetStream publish and pull with 400-byte messages, PostgreSQL insert (one a transaction) and COPY."""
    run(lab.operator.with_bus(lambda bus: _bus(figures, bus, scale)))
    run(_database(figures, lab, scale))


async def _rate(figures: Figures, key: str, work: Measured, count: int, scale: Scale) -> None:
    rates: list[float] = []
    for _ in range(scale.rounds):
        began = time.perf_counter()
        await work()
        rates.append(count / (time.perf_counter() - began))
    figures.put(key, median(rates))


async def _bus(figures: Figures, bus: Bus, scale: Scale) -> None:
    count = scale.limit_messages
    await bus.api(f"STREAM.CREATE.{STREAM}", {"name": STREAM, "subjects": ["limit.>"], "storage": "file", "retention": "limits"})
    try:
        await _rate(figures, "limit.jetstream_publish.messages_per_s", lambda: _publish(bus, count), count, scale)
        await _rate(figures, "limit.jetstream_pull.messages_per_s", lambda: _pull(bus, count), count, scale)
    finally:
        await bus.api(f"STREAM.DELETE.{STREAM}")


async def _publish(bus: Bus, count: int) -> None:
    """Publish in blocks; the next one goes when the last is acknowledged."""
    left = 0
    is_acknowledged = asyncio.Event()

    def on_ack(subject: bytes, reply: bytes, headers: bytes, body: bytes) -> None:
        nonlocal left
        left -= 1
        if not left:
            is_acknowledged.set()

    inbox = (await bus.open_inbox(on_ack)).encode()
    for first in range(0, count, AT_ONCE):
        left = min(AT_ONCE, count - first)
        is_acknowledged.clear()
        bus.post([frame(SUBJECT.encode(), inbox, HEADERS, BODY)] * left)
        await is_acknowledged.wait()


async def _pull(bus: Bus, count: int) -> None:
    """Pull in batches of 200 with an acknowledgement each."""
    config = {"durable_name": CONSUMER, "ack_policy": "explicit", "deliver_policy": "all", "max_ack_pending": 5000}
    await bus.api(f"CONSUMER.DURABLE.CREATE.{STREAM}.{CONSUMER}", {"stream_name": STREAM, "config": config})
    seen = 0
    is_done = asyncio.Event()

    def deliver(delivery: Delivery) -> None:
        nonlocal seen
        seen += 1
        delivery.ack()
        pull.ask()
        if seen == count:
            is_done.set()

    pull = await bus.open_pull(STREAM, CONSUMER, deliver, lambda: 0, batch=BATCH)
    await is_done.wait()
    bus.close_pull(pull)
    await bus.api(f"CONSUMER.DELETE.{STREAM}.{CONSUMER}")


async def _database(figures: Figures, lab: Lab, scale: Scale) -> None:
    db = await asyncpg.connect(lab.database.dsn())
    inserts, copies = scale.limit_messages // FEWER_INSERTS, scale.limit_messages * MORE_COPIES
    try:
        await db.execute("create table bench_limit(id text primary key, body bytea)")
        await _rate(figures, "limit.postgres_insert.rows_per_s", lambda: _insert(db, inserts), inserts, scale)
        await _rate(figures, "limit.postgres_copy.rows_per_s", lambda: _copy(db, copies), copies, scale)
        await db.execute("drop table bench_limit")
    finally:
        await db.close()


async def _insert(db: asyncpg.Connection, count: int) -> None:
    await db.execute("truncate bench_limit")
    for number in range(count):
        await db.execute("insert into bench_limit values ($1, $2)", f"id-{number}", BODY)


async def _copy(db: asyncpg.Connection, count: int) -> None:
    await db.execute("truncate bench_limit")
    await db.copy_records_to_table("bench_limit", records=[(f"id-{number}", BODY) for number in range(count)])
