"""All rows of the scheduler, and the only SQL that it has beside its migrations.

Queue, use and own plans follow the rows of jobs, through puts, drops and undo alike, so they can never differ from them. What is only
heard (fleet, tenants) is no row: it is true whether a unit commits or not, and is heard anew at each start.
"""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from heapq import heappush
from typing import Any

from gpuyard_contracts.types import allocation_id_of
from gpuyard_runtime.store import Connection, Store, select_sql
from gpuyard_runtime.table import Column, Index, Table

from gpuyard_scheduler.domain.admit import Rate
from gpuyard_scheduler.domain.decide import Plan, stamp_of
from gpuyard_scheduler.domain.estimate import Accuracy
from gpuyard_scheduler.domain.fleet import Fleet
from gpuyard_scheduler.domain.lives import Lives
from gpuyard_scheduler.domain.mix import WINDOW, Mix
from gpuyard_scheduler.domain.model import EPOCH, Job, Reservation, Slot, Tenant, millis
from gpuyard_scheduler.domain.policy import Policy
from gpuyard_scheduler.domain.queue import Queue
from gpuyard_scheduler.domain.quota import Usage
from gpuyard_scheduler.domain.scoring import Scoring
from gpuyard_scheduler.domain.snapshot import Snapshot
from gpuyard_scheduler.mapping import rows
from gpuyard_scheduler.mapping.rows import Request, Sight

REMEMBERED = 500_000
"""So many of the youngest job ids are kept in memory, for requests that come again under another message id."""

_REQUESTS: tuple[Column[Request], ...] = (
    Column("job_id", "text", is_key=True),
    Column("tenant", "text"),
    Column("request_id", "text"),
    Column("spec", "json", rows.spec_text),
    Column("submitted_at", "timestamptz"),
    Column("traceparent", "text"),
)
_JOBS: tuple[Column[Job], ...] = (
    Column("job_id", "text", is_key=True),
    Column("state", "text"),
    Column("attempt", "int4"),
    Column("aged_at", "timestamptz"),
    Column("not_before", "timestamptz"),
    Column("ranks", "json", rows.ranks_text),
    Column("ordered_at", "timestamptz"),
    Column("started_at", "timestamptz"),
    Column("told", "text"),
    Column("marks", "json", rows.marks_text),
    Column("ended_at", "timestamptz"),
    Column("end_reason", "text"),
    Column("end_detail", "text"),
    Column("exit_code", "int4"),
)
_SIGHT: tuple[Column[Sight], ...] = (
    Column("one", "bool", lambda row: True, is_key=True),
    Column("is_blind", "bool"),
    Column("at", "timestamptz"),
)

_LIVE_JOBS = (
    "select j.*, r.tenant, r.request_id, r.spec, r.submitted_at, r.traceparent "
    "from jobs j join requests r using (job_id) where j.ended_at is null"
)
_YOUNGEST = "select job_id from (select job_id, submitted_at from requests order by submitted_at desc limit $1) as y order by submitted_at"
_LAST_SPECS = "select spec from (select spec, submitted_at from requests order by submitted_at desc limit $1) as y order by submitted_at"
FORGETS = (
    "delete from jobs where job_id in (select job_id from jobs where ended_at < $1 order by ended_at limit $2)",
    "delete from requests where job_id in (select job_id from requests r where submitted_at < $1"
    " and not exists (select from jobs j where j.job_id = r.job_id) order by submitted_at limit $2)",
)
"""Jobs that are long over, and then what they were asked for with."""
_GONE = Request("", "", "", None, EPOCH, None)


class _Follower(Index[str, Job]):
    """Tells a function of every change of a table."""

    __slots__ = ("_tell",)

    def __init__(self, tell: Callable[[Job | None, Job | None], None]) -> None:
        super().__init__(lambda row: ())
        self._tell = tell

    def move(self, key: str, old: Job | None, new: Job | None) -> None:
        """Tell it."""
        self._tell(old, new)


class Jobs(Table[str, Job]):
    """Jobs that are not over."""

    def follow(self, tell: Callable[[Job | None, Job | None], None]) -> None:
        """Call `tell(old, new)` at every change, undo and loading included."""
        self._indexes.append(_Follower(tell))


class Requests(Table[str, Request]):
    """What was taken, by job id: written once and whole; in memory only the ids stay, the youngest `REMEMBERED` of them.

    A request that comes again when its id is forgotten here meets the database's constraint ``jobs_stay_ended``.
    """

    def settle(self) -> None:
        """The database has them: keep the ids only."""
        touched = list(self._before)
        super().settle()
        self.remember(key for key in touched if key in self._rows)

    def restore(self, rows: Iterable[Request]) -> None:
        """Keep the ids only."""
        self.remember(row.job_id for row in rows)

    def remember(self, job_ids: Iterable[str]) -> None:
        """These ids are known; the oldest ones above the limit are let go."""
        for job_id in job_ids:
            self._rows[job_id] = _GONE
        while len(self._rows) > REMEMBERED:
            del self._rows[next(iter(self._rows))]


class SchedulerStore(Store):
    """Jobs, and everything that is derived from them and from what was heard."""

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.policy = policy
        self.fleet = Fleet()
        self.queue = Queue()
        self.usage = Usage()
        self.lives = Lives()
        self.tenants: dict[str, Tenant] = {}
        self.mix = Mix()
        """What kinds of jobs come: where it is good to put one depends on it. Learnt anew at each start, from the last requests."""
        self._scoring = Scoring(policy.weights)
        self.accuracy = Accuracy()
        """How good estimates of starts have been since this process began."""
        self.shaped_at: datetime = datetime.min.replace(tzinfo=UTC)
        """When the fleet last got other hardware."""
        self.loaded_at: datetime = self.shaped_at
        """When this process read its rows: what it has heard since may be but a part of what there is."""
        self.deadlines: list[tuple[int, str]] = []
        """(ms, job) of run-time limits, as a heap; entries of jobs that run no more are passed over."""
        self.reservations: dict[Slot, Reservation] = {}
        self.reservations_version = 0
        self.told_in: tuple[int, int] = (0, 0)
        """Second, and how many waiting reasons were said in it."""
        self._last_instant: datetime = self.shaped_at
        self._rates: dict[str, Rate] = {}
        self._rates_before: dict[str, Rate] = {}
        self._make_tables()

    def _make_tables(self) -> None:
        """The tables, and whatever follows the rows of jobs."""
        self.requests = Requests("requests", lambda row: row.job_id, _REQUESTS, rows.request_of)
        self.jobs = Jobs("jobs", lambda row: row.job_id, _JOBS, rows.job_of, keep=lambda row: not row.is_ended)
        self.tables += [self.requests, self.jobs]
        self.parked: Table[str, Request] = self.table("parked", lambda row: row.job_id, _REQUESTS, rows.request_of)
        self.sight: Table[bool, Sight] = self.table("sight", lambda row: True, _SIGHT, lambda found: Sight(found["is_blind"], found["at"]))
        self.by_node: Index[str, Job] = self.jobs.index_each(lambda job: {plan.node_id for plan in job.ranks})
        self.ordered: Index[str, Job] = self.jobs.index(lambda job: job.state if job.state in ("placing", "stopping") else None)
        self.by_state: Index[str, Job] = self.jobs.index(lambda job: job.state)
        for follower in (
            self.queue.move,
            self.usage.move,
            self.lives.move,
            self.mix.move,
            self.accuracy.move,
            self._follow_plan,
            self._follow_limit,
        ):
            self.jobs.follow(follower)

    async def load(self, conn: Connection) -> None:
        """Read what lives, and the ids of what was."""
        self.requests.remember(record["job_id"] for record in await conn.fetch(_YOUNGEST, REMEMBERED))
        self.jobs.restore(rows.job_of(record) for record in await conn.fetch(_LIVE_JOBS))
        self.mix.learn(rows.ask_in(record["spec"]) for record in await conn.fetch(_LAST_SPECS, WINDOW))
        self.parked.restore([rows.request_of(record) for record in await conn.fetch(select_sql(self.parked))])
        self.sight.restore([self.sight.of_record(record) for record in await conn.fetch(select_sql(self.sight))])

    def inherit(self, before: Store) -> None:
        """In a living process what was heard before is still true."""
        if isinstance(before, SchedulerStore):
            self.tenants, self._rates = before.tenants, before._rates
            self.shaped_at, self.loaded_at = before.shaped_at, before.loaded_at
            for node in before.fleet.nodes.values():
                self.fleet.put(node.facts)

    def undo(self) -> None:
        """Take back the open unit; who was told of a waiting reason in it was not told."""
        super().undo()
        self._rates.update(self._rates_before)
        self._rates_before.clear()
        for group in self.queue.groups.values():
            group.is_untold = True

    def settle(self) -> None:
        """The open unit has committed."""
        super().settle()
        self._rates_before.clear()

    def next_instant(self, now: datetime) -> datetime:
        """The instant of a request that comes now: a microsecond later than the last one's at least, so that age keeps the order."""
        self._last_instant = max(now, self._last_instant + timedelta(microseconds=1))
        return self._last_instant

    def count_request(self, tenant: str, now: datetime) -> Rate:
        """Count one request of the tenant; returns how many there are in this minute."""
        before = self._rates.get(tenant, Rate())
        self._rates_before.setdefault(tenant, before)
        found = self._rates[tenant] = before.another(millis(now))
        return found

    def rate_of(self, tenant: str) -> Rate:
        """How many requests the tenant has made in this minute."""
        return self._rates.get(tenant, Rate())

    def is_settled(self, now: datetime) -> bool:
        """Whether the fleet's shape has stood still for a while, so that what it has not now will not come in a moment."""
        return now - self.shaped_at >= timedelta(seconds=self.policy.settle)

    def snapshot(self, now: datetime) -> Snapshot:
        """What a decision is made on."""
        sight = self.sight.get(True)
        return Snapshot(
            now_ms=millis(now),
            fleet=self.fleet,
            queue=self.queue,
            tenants=self.tenants,
            usage=self.usage,
            lives=self.lives,
            reservations=self.reservations,
            reservations_version=self.reservations_version,
            is_blind=sight is not None and sight.is_blind,
            scoring=self.scoring,
        )

    @property
    def scoring(self) -> Scoring:
        """How places are told from each other now."""
        outlook = self.mix.outlook()
        if outlook is not self._scoring.outlook:
            self._scoring = Scoring(self.policy.weights, outlook)
        return self._scoring

    def note(self, plan: Plan, now: datetime) -> None:
        """Keep what a plan found out; its starts must have been put before."""
        if _kept(plan.reservations) != _kept(self.reservations):
            self.reservations_version += 1
        self.reservations = plan.reservations
        for kept in plan.reservations.values():
            if kept.job_id and kept.start_ms is not None:
                self.accuracy.expect(kept.job_id, kept.start_ms)
        snapshot = self.snapshot(now)
        for key, verdict in plan.verdicts.items():
            group = self.queue.groups.get(key)
            if group is not None:
                group.is_untold = group.is_untold or verdict is None or group.reason != verdict.reason
                group.verdict = verdict
                group.stamp = stamp_of(group, snapshot)

    def _follow_plan(self, old: Job | None, new: Job | None) -> None:
        """Own plans count as held from the moment they are made until the job lets go of them."""
        before = old if old is not None and old.is_live else None
        after = new if new is not None and new.is_live else None
        if before is not None and (after is None or after.attempt != before.attempt):
            for plan in before.ranks:
                self.fleet.let_go(allocation_id_of(before.job_id, before.attempt), plan)
        if after is not None and (before is None or before.attempt != after.attempt or before.started_at != after.started_at):
            for plan in after.ranks:
                self.fleet.hold(allocation_id_of(after.job_id, after.attempt), plan, _until_ms(after))

    def _follow_limit(self, old: Job | None, new: Job | None) -> None:
        if new is None or new.state != "running" or new.started_at is None or new.spec.max_seconds is None:
            return
        if old is None or old.state != "running":
            heappush(self.deadlines, (millis(new.started_at) + new.spec.max_seconds * 1000, new.job_id))


def _until_ms(job: Job) -> int | None:
    """When the job's limit has surely ended it; None where it has none, or does not run yet."""
    if job.started_at is None or job.spec.max_seconds is None:
        return None
    return millis(job.started_at) + (job.spec.max_seconds + job.spec.grace_seconds) * 1000


def _kept(reservations: dict[Slot, Reservation]) -> dict[Slot, tuple[Any, ...]]:
    """What a reservation changes for others."""
    return {slot: (kept.job_id, kept.nodes, kept.start_ms) for slot, kept in reservations.items() if kept.job_id}
