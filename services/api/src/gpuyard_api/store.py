"""api's tables in memory: who may do what, live jobs, incidents; and the journals that are only ever added to.

Jobs stay in memory while they live and a little longer (`ENDED_KEPT_SECONDS`), so that an event which is delivered after the end it
preceded still finds that end. The past is read by SQL (:mod:`gpuyard_api.reads`) and costs nothing at start. Nodes are beside the
tables: their state is read anew from the bus at every start, and the highest version wins, so there is nothing to undo.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from gpuyard_contracts.messages.placement import NodeStateV1
from gpuyard_runtime.store import Store
from gpuyard_runtime.table import Column, Table

from gpuyard_api.domain.model import Incident, Job, Mark, Tenant, Token

ENDED_KEPT_SECONDS = 120
"""Four times the ack wait of the durables: a redelivery comes well within it."""
RESERVED = 1000
"""Numbers are reserved in blocks, so that most units need not write the counter; what is left of a block at a stop is skipped."""


def _columns(key: str | None = None, **types: str) -> tuple[Column[Any], ...]:
    """Columns by name and type; `key` is the name of the one that is the key."""
    return tuple(Column(name, pgtype, is_key=name == key) for name, pgtype in types.items())


_JOB = _columns(
    "job_id",
    job_id="text",
    tenant="text",
    name="text",
    state="text",
    submitted_at="timestamptz",
    changed_at="timestamptz",
    version="int8",
    reason="text",
    detail="text",
    attempt="int8",
    ranks="int8",
    priority="text",
    gpu="json",
    placement="json",
    is_unknown="bool",
    started_at="timestamptz",
    ended_at="timestamptz",
    exit_code="int8",
)
_TENANT = _columns(
    "tenant",
    tenant="text",
    version="int8",
    name="text",
    sla="text",
    weight="int8",
    quota_gpu_milli="int8",
    quota_gpu_memory_mib="int8",
    guarantee_gpu_milli="int8",
    max_waiting="int8",
    max_requests_per_minute="int8",
    is_suspended="bool",
    created_at="timestamptz",
    changed_at="timestamptz",
)
_TOKEN = _columns(
    "digest",
    digest="text",
    token_id="text",  # noqa: S106  # a column's type
    role="text",
    tenant="text",
    name="text",
    hint="text",
    created_at="timestamptz",
    created_by="text",
    revoked_at="timestamptz",
)
_INCIDENT = _columns(
    "incident_id",
    incident_id="text",
    kind="text",
    node_id="text",
    gpu_uuid="text",
    action="text",
    evidence="text",
    opened_at="timestamptz",
    closed_at="timestamptz",
    closing_evidence="text",
)
_MARK = _columns("name", name="text", value="int8")
_EVENT = _columns(
    seq="int8",
    event_id="text",
    type="text",
    source="text",
    at="timestamptz",
    body="json",
    job_id="text",
    tenant="text",
    causation_id="text",
    traceparent="text",
)
_ASK = _columns(job_id="text", tenant="text", spec="json", labels="jsonb", digest="text", asked_at="timestamptz")
_AUDIT = _columns(seq="int8", at="timestamptz", actor="text", tenant="text", action="text", target="text", result="text", detail="text")


def job_of(record: Mapping[str, Any]) -> Job:
    """A job from its row."""
    return Job(**{column.name: record[column.name] for column in _JOB})


class ApiStore(Store):
    """Everything that api keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.ended_before = datetime.min.replace(tzinfo=UTC)
        """Jobs that ended before it may leave the memory; moved by a tick, never back."""
        self.tenants: Table[str, Tenant] = self.table("tenants", lambda row: row.tenant, _TENANT, lambda row: Tenant(**row))
        self.tokens: Table[str, Token] = self.table("tokens", lambda row: row.digest, _TOKEN, lambda row: Token(**row))
        self.token_ids = self.tokens.index(lambda row: row.token_id)
        self.tokens_of = self.tokens.index(lambda row: row.tenant or "")
        self.jobs: Table[str, Job] = self.table(
            "jobs",
            lambda row: row.job_id,
            _JOB,
            job_of,
            keep=self._is_kept,
            where=f"ended_at is null or ended_at > now() - interval '{ENDED_KEPT_SECONDS} seconds'",
        )
        self.incidents: Table[str, Incident] = self.table("incidents", lambda row: row.incident_id, _INCIDENT, lambda row: Incident(**row))
        self.marks: Table[str, Mark] = self.table("marks", lambda row: row.name, _MARK, lambda row: Mark(**row))
        self.events = self.journal("job_events", _EVENT, key=lambda row: row.seq)
        self.asks = self.journal("job_asks", _ASK, key=lambda row: row.job_id, repeated="ignore")
        self.audit = self.journal("audit", _AUDIT, key=lambda row: row.seq)
        self.nodes: dict[str, NodeStateV1] = {}
        self._given: dict[str, int] = {}

    def loaded(self) -> None:
        """Numbers go on above all that may have been given out."""
        self._given = {mark.name: mark.value for mark in self.marks.values()}

    def next_number(self, name: str) -> int:
        """The next number of a counter: rising, without repeats, with gaps where a unit was undone or the process stopped."""
        number = self._given.get(name, 0) + 1
        self._given[name] = number
        mark = self.marks.get(name)
        if mark is None or number > mark.value:
            self.marks.put(Mark(name, number + RESERVED - 1))
        return number

    def last_number(self, name: str) -> int:
        """The last number that was given out."""
        return self._given.get(name, 0)

    def token_named(self, token_id: str) -> Token | None:
        """The token of a public id."""
        found = self.token_ids.get(token_id)
        return found[0] if found else None

    def live_admins(self) -> list[Token]:
        """Operators' tokens that work."""
        return [token for token in self.tokens_of.get("") if token.revoked_at is None]

    def forget_ended(self, now: datetime) -> int:
        """Let go the jobs that ended a while ago; returns how many. Their rows stay in the database, untouched."""
        self.ended_before = max(self.ended_before, now - timedelta(seconds=ENDED_KEPT_SECONDS))
        old = [job for job in self.jobs.values() if not self._is_kept(job)]
        for job in old:  # taken out and put back as it is: nothing to write, but it is looked at again when the unit settles
            self.jobs.drop(job.job_id)
            self.jobs.put(job)
        return len(old)

    def _is_kept(self, job: Job) -> bool:
        return job.ended_at is None or job.ended_at >= self.ended_before
