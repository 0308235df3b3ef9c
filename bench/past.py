"""A long past, put straight into the services' schemas: jobs that are over, with all that each service keeps of them.

Rows are what the services themselves leave behind of a job that ran once; they are written by SQL in bulk, since living 100,000 lives
takes minutes. All of it lies a day back, under ids that no live job has.
"""

import asyncpg

TENANT = "past"

_JOB = "'job-' || translate(lpad(to_hex({n}), 16, '0'), '0189', 'ghij')"
"""The id of the n-th past job, from the alphabet of ids."""

STATEMENTS: tuple[tuple[str, str], ...] = (
    (
        "scheduler",
        "insert into requests select {job}, '{tenant}', 'req-' || n, '{spec}'::json, {at}, null from {jobs}",
    ),
    (
        "scheduler",
        "insert into jobs select {job}, 'succeeded', 1, {at}, null, '[]'::json, null, {at}, null, '{{}}'::json, {at}, 'completed', '', 0 "
        "from {jobs}",
    ),
    (
        "placement",
        "insert into allocations select {job} || '-1', '{tenant}', {job}, 1, 'released', '{terms}'::json, '[]'::json, null, "
        "{at}, {at}, {at} from {jobs}",
    ),
    (
        "billing",
        "insert into allocations select {job} || '-1', '{tenant}', {job}, 1, '[[\"A100-80GB\", 1, 1]]'::jsonb, {ms}, {ms}, {ms} + 1000, "
        "{ms} + 1000, 1, 1000, 1000, 600, true, 'exited', null from {jobs}",
    ),
    (
        "billing",
        "insert into evidence select {job} || '-1', 0, 'boot', 1000, 1000, {ms} + 1000, true from {jobs}",
    ),
    (
        "billing",
        "insert into transactions select 'use-' || {job} || '-1-0', 'usage', '{tenant}', {job}, {job} || '-1', 0, 1, {ms}, {ms} + 1000, "
        "1000, 1000, '', {ms} from {jobs}",
    ),
    (
        "billing",
        "insert into entries (transaction_id, tenant, account, amount_micros, currency) select 'use-' || {job} || '-1-0', '{tenant}', "
        "side.account, side.amount, 'EUR' from {jobs}, (values ('receivable', 600), ('revenue', -600)) as side (account, amount)",
    ),
    (
        "api",
        "insert into job_asks select {job}, '{tenant}', '{spec}'::json, '{{}}'::jsonb, md5(n::text), {at} from {jobs}",
    ),
    (
        "api",
        "insert into jobs select {job}, '{tenant}', 'past', 'succeeded', {at}, {at}, 0, 'completed', '', 1, 1, 'normal', '{{}}'::json, "
        "'[]'::json, false, {at}, {at}, 0 from {jobs}",
    ),
    (
        "api",
        "insert into job_events select -(n * {events} + e), md5(n || '-' || e), 'gpuyard.evt.scheduler.job.running.v1', 'scheduler', {at}, "
        "'{spec}'::json, {job}, '{tenant}', null, null from {jobs}, generate_series(0, {events} - 1) as e",
    ),
    (
        "monitor",
        "insert into incidents select 'inc-' || substr({job}, 5), 'gpu-hot', 'past-node', 'GPU-past', 'evict', '', '', {at}, {at}, '' "
        "from {jobs} where n % 100 = 0",
    ),
)
INBOX = "insert into inbox select md5('past' || n || '-' || e), {at} from {jobs}, generate_series(1, 3) as e"
SERVICES = ("api", "scheduler", "placement", "monitor", "billing")
EVENTS_EACH = 10


async def make(dsn: str, jobs: int) -> None:
    """Put so many past jobs into the database that the superuser's `dsn` names."""
    given = {
        "job": _JOB.format(n="n"),
        "jobs": f"generate_series(1, {jobs}) as n",
        "at": "now() - interval '1 day'",
        "ms": "(extract(epoch from now())::bigint - 86400) * 1000",
        "tenant": TENANT,
        "events": EVENTS_EACH,
        "spec": '{"name": "past", "command": ["true"]}',
        "terms": '{"plan": [], "cards": [], "port": 0, "grace_ms": 0, "start_by": "2030-01-01T00:00:00Z", "traceparent": null}',
    }
    conn = await asyncpg.connect(dsn)
    try:
        for schema, statement in (*STATEMENTS, *((schema, INBOX) for schema in SERVICES)):
            await conn.execute(f"set search_path to {schema}")
            await conn.execute(statement.format(**given))
        await conn.execute("reset search_path")
        await conn.execute("analyze")
    finally:
        await conn.close()
