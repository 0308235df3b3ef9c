"""The bare limits that gpuyard's figures are held against, from the same run: the bus and the database without gpuyard."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import asyncpg
import nats
from gpuyard_local.nats import Nats
from gpuyard_local.postgres import Postgres

from bench.figures import Figures, median

BODY = b"x" * 400
ROUNDS = 3


async def measure(figures: Figures, bus: Nats, database: Postgres, scale: float) -> None:
    """Put `limit.*`: JetStream publish and pull with 400-byte messages, PostgreSQL insert (one a transaction) and COPY."""
    client = await nats.connect(bus.url)
    stream = client.jetstream()
    await stream.add_stream(name="LIMIT", subjects=["limit.>"])
    try:
        await _rate(figures, "limit.jetstream_publish.messages_per_s", lambda count: _publish(stream, count), int(20_000 * scale))
        await _rate(figures, "limit.jetstream_pull.messages_per_s", lambda count: _pull(stream, count), int(20_000 * scale))
    finally:
        await stream.delete_stream("LIMIT")
        await client.close()
    db = await asyncpg.connect(database.dsn())
    try:
        await db.execute("create table if not exists bench_limit(id text primary key, body bytea)")
        await _rate(figures, "limit.postgres_insert.rows_per_s", lambda count: _insert(db, count), int(3_000 * scale))
        await _rate(figures, "limit.postgres_copy.rows_per_s", lambda count: _copy(db, count), int(100_000 * scale))
    finally:
        await db.execute("drop table bench_limit")
        await db.close()


async def _rate(figures: Figures, key: str, work: Callable[[int], Awaitable[None]], count: int) -> None:
    rates: list[float] = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        await work(count)
        rates.append(count / (time.perf_counter() - began))
    figures.put(key, median(rates))


async def _publish(stream: nats.js.JetStreamContext, count: int) -> None:
    """Publish with up to 256 acknowledgements under way."""
    waiting: set[asyncio.Future[object]] = set()
    for number in range(count):
        waiting.add(await stream.publish_async("limit.a", BODY))  # pyright: ignore[reportArgumentType]  # nats-py types the future by its own class
        if number % 256 == 255:
            await asyncio.gather(*waiting)
            waiting.clear()
    await asyncio.gather(*waiting)


async def _pull(stream: nats.js.JetStreamContext, count: int) -> None:
    """Pull in batches of 200 with an acknowledgement each."""
    reader = await stream.pull_subscribe("limit.a", durable=None)
    seen = 0
    while seen < count:
        batch = await reader.fetch(200, timeout=5)
        for message in batch:
            await message.ack()
        seen += len(batch)
    await reader.unsubscribe()


async def _insert(db: asyncpg.Connection, count: int) -> None:
    await db.execute("truncate bench_limit")
    for number in range(count):
        await db.execute("insert into bench_limit values ($1, $2)", f"id-{number}", BODY)


async def _copy(db: asyncpg.Connection, count: int) -> None:
    await db.execute("truncate bench_limit")
    await db.copy_records_to_table("bench_limit", records=[(f"id-{number}", BODY) for number in range(count)])
