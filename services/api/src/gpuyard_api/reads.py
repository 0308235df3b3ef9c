"""The read models in SQL: everything that is answered from the database rather than from memory.

Each query has a deadline: a database that hangs makes an answer of 503 within seconds, not a request that hangs with it.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from gpuyard_runtime.database import meaning

from gpuyard_api.deadlines import within
from gpuyard_api.domain.model import AuditRow, Event, Job
from gpuyard_api.ports import JobFilter
from gpuyard_api.store import job_of

READ_SECONDS = 3.0
PRUNED_AT_ONCE = 5000

_JOB = """select job_id, tenant, name, state, submitted_at, changed_at, version, reason, detail, attempt, ranks, priority, gpu, placement,
                 is_unknown, started_at, ended_at, exit_code"""
_SPEC = "(select spec from job_asks a where a.job_id = jobs.job_id) as spec"
ONE_JOB = f"{_JOB}, {_SPEC} from jobs where job_id = $1 and ($2::text is null or tenant = $2)"  # constants only
JOBS_HEAD = f"{_JOB} from jobs where "
JOBS_TAIL = " order by submitted_at desc, job_id desc limit "
DIGEST = "select digest from job_asks where job_id = $1"
_EVENT = "select seq, event_id, type, source, at, body, job_id, tenant, causation_id, traceparent from job_events"
JOB_EVENTS = f"{_EVENT} where job_id = $1 and seq > $2 order by seq limit $3"
TENANT_EVENTS = f"{_EVENT} where tenant = $1 and seq > $2 order by seq limit $3"
ALL_EVENTS = f"{_EVENT} where seq > $1 order by seq limit $2"
AUDIT = """select seq, at, actor, tenant, action, target, result, detail from audit
           where $1::bigint is null or seq < $1 order by seq desc limit $2"""
PRUNE = """delete from job_events where seq in
           (select seq from (select seq, at from job_events order by seq limit $2) oldest where at < $1)"""

_WHERE: tuple[tuple[str, str], ...] = (
    ("tenant", "tenant = {}"),
    ("states", "state = any({}::text[])"),
    ("name", "name = {}"),
    ("labels", "job_id in (select job_id from job_asks where labels <> '{{}}' and labels @> {}::jsonb)"),
)


class Pool(Protocol):
    """What is needed of asyncpg's pool."""

    async def fetch(self, query: str, *args: Any) -> Sequence[Mapping[str, Any]]:
        """All rows."""
        ...

    async def execute(self, query: str, *args: Any) -> str:
        """Run a statement; the answer is its tag."""
        ...


class SqlReads:
    """The read models on a pool of connections."""

    def __init__(self, pool: Pool, seconds: float = READ_SECONDS) -> None:
        self._pool = pool
        self._seconds = seconds

    async def job(self, job_id: str, tenant: str | None) -> tuple[Job, str] | None:
        """See :class:`gpuyard_api.ports.Reads`."""
        rows = await self._fetch(ONE_JOB, job_id, tenant)
        return (job_of(rows[0]), rows[0]["spec"] or "{}") if rows else None

    async def jobs(self, wanted: JobFilter, limit: int) -> list[Job]:
        """See :class:`gpuyard_api.ports.Reads`."""
        query, args = jobs_query(wanted, limit)
        return [job_of(row) for row in await self._fetch(query, *args)]

    async def digest(self, job_id: str) -> str | None:
        """See :class:`gpuyard_api.ports.Reads`."""
        rows = await self._fetch(DIGEST, job_id)
        return rows[0]["digest"] if rows else None

    async def job_events(self, job_id: str, after: int, limit: int) -> list[Event]:
        """See :class:`gpuyard_api.ports.Reads`."""
        return [Event(**row) for row in await self._fetch(JOB_EVENTS, job_id, after, limit)]

    async def events(self, tenant: str | None, after: int, limit: int) -> list[Event]:
        """See :class:`gpuyard_api.ports.Reads`."""
        found = self._fetch(ALL_EVENTS, after, limit) if tenant is None else self._fetch(TENANT_EVENTS, tenant, after, limit)
        return [Event(**row) for row in await found]

    async def audit(self, before: int | None, limit: int) -> list[AuditRow]:
        """See :class:`gpuyard_api.ports.Reads`."""
        return [AuditRow(**row) for row in await self._fetch(AUDIT, before, limit)]

    async def prune(self, before: datetime) -> None:
        """Delete the events that came before all that are younger than `before`, a few thousand at a time."""
        while (await self._pool.execute(PRUNE, before, PRUNED_AT_ONCE)) == f"DELETE {PRUNED_AT_ONCE}":
            continue

    async def _fetch(self, query: str, *args: Any) -> Sequence[Mapping[str, Any]]:
        try:
            return await within(self._seconds, self._pool.fetch(query, *args), "database")
        except Exception as error:
            raise meaning(error) from error


def jobs_query(wanted: JobFilter, limit: int) -> tuple[str, list[Any]]:
    """The statement that lists jobs, with only the conditions that are asked for, so that each list finds its index."""
    args: list[Any] = []
    conditions: list[str] = []
    for field, condition in _WHERE:
        value = getattr(wanted, field)
        if value is not None and value != ():
            args.append(list(value) if isinstance(value, tuple) else value)
            conditions.append(condition.format(f"${len(args)}"))
    if wanted.before is not None:
        args += wanted.before
        conditions.append(f"(submitted_at, job_id) < (${len(args) - 1}::timestamptz, ${len(args)}::text)")
    args.append(limit)
    return f"{JOBS_HEAD}{' and '.join(conditions) or 'true'}{JOBS_TAIL}${len(args)}", args
