"""What the api answers, as frozen dataclasses. Fields that a newer api adds are ignored here and still there in `raw`.

Capacity and money stay integers: `gpu_milli` thousandths of a card, MiB, micro-units.
"""

import types
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from gpuyard.errors import GpuyardError

T = TypeVar("T")

ENDED = frozenset({"succeeded", "failed", "cancelled", "expired", "rejected"})
"""States that a job does not leave any more."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where one rank is, or was last: its node and the UUIDs of its cards."""

    rank: int = 0
    node_id: str = ""
    gpus: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Job:
    """One job. `reason` is a word from a closed list: why it waits, or why it ended; `detail` says it for people."""

    job_id: str
    tenant: str
    name: str
    state: str
    reason: str = ""
    detail: str = ""
    attempt: int = 0
    ranks: int = 1
    priority: str = "normal"
    gpu: Mapping[str, Any] = field(default_factory=dict[str, Any])
    placement: tuple[Place, ...] = ()
    is_unknown: bool = False
    submitted_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    exit_code: int | None = None
    raw: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False, compare=False)

    @property
    def is_ended(self) -> bool:
        """It is over, for good."""
        return self.state in ENDED

    @property
    def is_good(self) -> bool:
        """It is over and did what it should."""
        return self.state == "succeeded"

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes of its ranks, each once."""
        return tuple(dict.fromkeys(place.node_id for place in self.placement))


@dataclass(frozen=True, kw_only=True)
class Sample:
    """The last sample of one card. What the hardware does not tell is None, never 0."""

    temperature_c: int | None = None
    utilization_percent: int | None = None
    memory_used_mib: int | None = None
    power_mw: int | None = None


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One card with what is known of it now. `telemetry`: live, stale, absent or no-answer; `sample` only where it is live."""

    uuid: str
    node_id: str
    model: str
    memory_mib: int = 0
    index: int | None = None
    status: str = ""
    is_lost: bool = False
    cordons: tuple[Mapping[str, Any], ...] = ()
    used_milli: int = 0
    used_memory_mib: int = 0
    holders: tuple[Mapping[str, Any], ...] = ()
    telemetry: str = ""
    sample: Sample | None = None
    raw: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False, compare=False)


@dataclass(frozen=True, kw_only=True)
class Node:
    """One node. Free capacity is what the holds leave; a silent node is ``unknown``, not gone."""

    node_id: str
    status: str
    display_name: str = ""
    is_cordoned: bool = False
    cordons: tuple[Mapping[str, Any], ...] = ()
    zone: str = ""
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    gpus: int = 0
    gpu_milli: int = 0
    free_gpu_milli: int = 0
    models: Mapping[str, int] = field(default_factory=dict[str, int])
    lost_gpus: tuple[str, ...] = ()
    cpu_milli: int = 0
    free_cpu_milli: int = 0
    memory_mib: int = 0
    free_memory_mib: int = 0
    jobs: tuple[str, ...] = ()
    last_heard_at: datetime | None = None
    backend: str = ""
    raw: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False, compare=False)


@dataclass(frozen=True, kw_only=True)
class Tenant:
    """One tenant. A quota of None is no limit, 0 is nothing."""

    tenant: str
    name: str = ""
    version: int = 0
    sla: str = ""
    weight: int = 0
    quota_gpu_milli: int | None = None
    quota_gpu_memory_mib: int | None = None
    guarantee_gpu_milli: int = 0
    max_waiting: int = 0
    max_requests_per_minute: int = 0
    is_suspended: bool = False
    raw: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False, compare=False)


@dataclass(frozen=True, kw_only=True)
class Event:
    """One event of a job or of the installation. `seq` is where a stream goes on from."""

    seq: int
    name: str
    at: datetime
    job_id: str | None = None
    tenant: str | None = None
    data: Mapping[str, Any] = field(default_factory=dict[str, Any])
    raw: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False, compare=False)


@dataclass(frozen=True, kw_only=True)
class LogLine:
    """One line that a rank wrote; `number` counts the lines of one attempt's rank and stream.

    `dropped_lines` above 0: the rank wrote faster than is kept, so many lines are missing here, and `text` says so.
    """

    rank: int = 0
    attempt: int = 0
    stream: str = "stdout"
    number: int = 0
    text: str = ""
    at: datetime | None = None
    dropped_lines: int = 0
    raw: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False, compare=False)


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """Why a job waits, in one class of a closed list, with its place in the queue and what the nodes say to it.

    `groups`: nodes with equal verdicts together; `suggestions`: changes that were tried and would start it now; `estimate`: when it may
    start; `receipt`: why it was placed where it was the last time. Of a past instant (`at`): what was in force then had begun at `since`.
    """

    job_id: str
    state: str
    reason: str | None = None
    detail: str = ""
    position: int | None = None
    waiting: int = 0
    ahead: tuple[str, ...] = ()
    verdicts: tuple[Mapping[str, Any], ...] = ()
    groups: tuple[Mapping[str, Any], ...] = ()
    binding: Mapping[str, Any] | None = None
    suggestions: tuple[Mapping[str, Any], ...] = ()
    estimate: Mapping[str, Any] | None = None
    receipt: Mapping[str, Any] | None = None
    at: datetime | None = None
    since: datetime | None = None
    raw: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False, compare=False)


@dataclass(frozen=True, kw_only=True)
class Planned:
    """What would become of a job. `rejected`: it would be refused, for this reason; `places`: where it would start at once."""

    rejected: str | None = None
    places: tuple[Mapping[str, Any], ...] = ()
    reason: str | None = None
    detail: str = ""
    position: int | None = None
    waiting: int = 0
    ahead: tuple[str, ...] = ()
    groups: tuple[Mapping[str, Any], ...] = ()
    binding: Mapping[str, Any] | None = None
    suggestions: tuple[Mapping[str, Any], ...] = ()
    estimate: Mapping[str, Any] | None = None
    receipt: Mapping[str, Any] | None = None
    raw: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False, compare=False)


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step of a trace: `duration_ms` from what caused it, at `offset_ms` from the trace's start, until the event of its name."""

    name: str
    service: str = ""
    offset_ms: float = 0.0
    duration_ms: float = 0.0
    attempt: int | None = None
    node_id: str | None = None
    rank: int | None = None
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class Trace:
    """One job's way from the request to the ledger. `is_complete`: its money is finally there."""

    job_id: str = ""
    trace_id: str | None = None
    total_ms: float = 0.0
    is_complete: bool = False
    steps: tuple[Step, ...] = ()
    raw: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False, compare=False)


@dataclass(frozen=True, kw_only=True)
class UsageRow:
    """What one attempt used and costs so far."""

    tenant: str
    job_id: str
    allocation_id: str
    models: tuple[str, ...] = ()
    started_at: datetime | None = None
    billed_until: datetime | None = None
    is_final: bool = False
    held_ms: int = 0
    gpu_ms: int = 0
    amount_micros: int = 0


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What was used, attempt by attempt, and its sum."""

    rows: tuple[UsageRow, ...] = ()
    currency: str = ""
    total_micros: int = 0
    total_gpu_ms: int = 0
    is_final: bool = False
    next_cursor: str | None = None
    raw: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False, compare=False)


@dataclass(frozen=True, kw_only=True)
class Balance:
    """What a tenant was granted, has used and has left."""

    tenant: str
    currency: str = ""
    credit_micros: int = 0
    used_micros: int = 0
    balance_micros: int = 0
    raw: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False, compare=False)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One line of the ledger."""

    entry_id: int
    transaction_id: str
    kind: str
    tenant: str
    account: str
    amount_micros: int
    currency: str = ""
    job_id: str | None = None
    booked_at: datetime | None = None
    memo: str = ""
    raw: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False, compare=False)


@dataclass(frozen=True, kw_only=True)
class Verification:
    """The ledger, held against the money rebuilt from the events."""

    is_right: bool
    transactions: int = 0
    entries: int = 0
    allocations: int = 0
    events: int = 0
    differences: tuple[Mapping[str, Any], ...] = ()
    expected_micros: int = 0
    ledger_micros: int = 0
    detail: str = ""
    raw: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False, compare=False)


@dataclass(frozen=True, kw_only=True)
class Queue:
    """The queue now: how many wait for which reason, and each tenant's place."""

    waiting: int = 0
    reasons: Mapping[str, int] = field(default_factory=dict[str, int])
    positions: Mapping[str, int] = field(default_factory=dict[str, int])
    tenants: tuple[Mapping[str, Any], ...] = ()
    is_blind: bool = False
    raw: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False, compare=False)


@dataclass(frozen=True, kw_only=True)
class Page:
    """Some jobs, and where the next ones begin."""

    items: tuple[Job, ...]
    next_cursor: str | None = None


def build(kind: type[T], content: Any) -> T:
    """A result from the api's JSON. Raises GpuyardError where a field that must be there is not."""
    if not isinstance(content, Mapping):
        raise GpuyardError(f"the api answered something else than a {kind.__name__.lower()}", fix="is the client as new as the api?")
    hints, wanted = _shape(kind)
    found = {name: _as(hints[name], content[name]) for name in wanted if name in content and content[name] is not None}
    missing = [part.name for part in fields(kind) if _is_needed(part) and part.name not in found]  # pyright: ignore[reportArgumentType] (a dataclass)
    if missing:
        raise GpuyardError(f"the api's {kind.__name__.lower()} lacks {', '.join(missing)}", fix="is the client as new as the api?")
    if "raw" in hints:
        found["raw"] = content
    return kind(**found)


@lru_cache(maxsize=64)
def _shape(kind: type[Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    hints = get_type_hints(kind)
    return hints, tuple(part.name for part in fields(kind) if part.name != "raw")


def _is_needed(part: Any) -> bool:
    return part.default is MISSING and part.default_factory is MISSING


def _as(hint: Any, value: Any) -> Any:
    """The value as the hint says: instants are parsed, sequences become tuples, shapes are built."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return _as(next(part for part in get_args(hint) if part is not type(None)), value)
    if hint is datetime:
        return datetime.fromisoformat(value)
    if origin is tuple:
        return tuple(_as(get_args(hint)[0], part) for part in value)
    if isinstance(hint, type) and is_dataclass(hint):
        return build(hint, value)
    return value
