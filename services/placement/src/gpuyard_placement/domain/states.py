"""The life of an allocation, as a table.

A cause changes what is known of ranks and, once, why the allocation goes; the allocation's state follows from that alone:

- `committed`: the nodes have their start orders, no rank has answered · `starting`: some ranks run · `running`: every rank has started
- `stopping`: it has a reason to go and its ranks were told to stop · `released`: every rank is gone, the slices are free

A slice is free only when every rank is *gone*: it ended, was refused, or its node is lost or rebooted. A cause that cannot apply any more
is ignored with a reason, never raised. The first reason to go stays; only work that came to a good end in the meantime says so.
Start reading at :func:`move`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from gpuyard_placement.domain.model import Allocation, AllocationState, RankState, RankStatus, ReleaseReason, Stop

MOVES: Mapping[AllocationState, frozenset[AllocationState]] = {
    "committed": frozenset({"committed", "starting", "running", "stopping", "released"}),
    "starting": frozenset({"starting", "running", "stopping", "released"}),
    "running": frozenset({"running", "stopping", "released"}),
    "stopping": frozenset({"stopping", "released"}),
    "released": frozenset(),
}

RANK_MOVES: Mapping[RankStatus, frozenset[RankStatus]] = {
    "ordered": frozenset({"started", "ended", "refused", "lost"}),
    "started": frozenset({"ended", "lost"}),
    "ended": frozenset(),
    "refused": frozenset(),
    "lost": frozenset(),
}

ENDS_AT_PROOF: frozenset[ReleaseReason] = frozenset({"node-lost", "node-restarted", "process-vanished"})
"""Reasons for which the work is known to have run only until the failed rank's last sign of life."""

EndCause = Literal["exited", "stopped", "fenced", "vanished", "start-failed", "not-running"]

_REASON_OF_END: Mapping[EndCause, ReleaseReason] = {
    "exited": "exited",
    "stopped": "process-vanished",
    "fenced": "node-lost",
    "vanished": "process-vanished",
    "start-failed": "start-failed",
    "not-running": "process-vanished",
}
"""Why an allocation goes when a rank ends in this way that nobody asked for."""


@dataclass(frozen=True, slots=True)
class RankStarted:
    """A node says that a rank's process runs."""

    rank: int
    node_id: str
    started_at: datetime


@dataclass(frozen=True, slots=True)
class RankEnded:
    """A node says that nothing of a rank is left. `proof_at`: when placement last knew it alive, for ends whose instant nobody saw."""

    rank: int
    node_id: str
    cause: EndCause
    ended_at: datetime
    proof_at: datetime
    started_at: datetime | None = None
    exit_code: int | None = None
    signal: int | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class RankRefused:
    """A node will not start a rank."""

    rank: int
    node_id: str
    detail: str
    is_permanent: bool


@dataclass(frozen=True, slots=True)
class RanksLost:
    """Ranks whose node is lost or has rebooted. `proofs`: rank → when it was last known alive."""

    node_id: str
    reason: Literal["node-lost", "node-restarted", "process-vanished"]
    detail: str
    proofs: Mapping[int, datetime]


@dataclass(frozen=True, slots=True)
class StopAsked:
    """Someone wants the allocation to go."""

    reason: ReleaseReason
    detail: str
    avoid_gpus: tuple[str, ...] = ()
    avoid_nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StopUnanswered:
    """The stop orders were not answered in time: ask again those that could answer."""

    ranks: tuple[int, ...]


Cause = RankStarted | RankEnded | RankRefused | RanksLost | StopAsked | StopUnanswered


@dataclass(frozen=True, slots=True)
class Moved:
    """The allocation after a cause. `tell`: the ranks whose nodes are to be told to stop."""

    was: Allocation
    now: Allocation
    tell: tuple[int, ...] = ()

    @property
    def has_started(self) -> bool:
        """Every rank runs, and not before."""
        return self.was.started_at is None and self.now.started_at is not None and self.was.stop is None

    @property
    def is_released(self) -> bool:
        """The slices are free."""
        return self.now.state == "released"


@dataclass(frozen=True, slots=True)
class Ignored:
    """The cause changes nothing, for this reason."""

    reason: str


def move(allocation: Allocation, cause: Cause, at: datetime) -> Moved | Ignored:
    """What becomes of the allocation. `at` is the present instant; a node's own instants are bounded by it."""
    if not allocation.is_live:
        return Ignored("already-released")
    return _RULES[type(cause)](allocation, cause, at)


def _check(allocation: Allocation, rank: int, node_id: str, to: RankStatus) -> Ignored | None:
    """Why this rank cannot become `to` by the word of this node; None where it can."""
    if rank >= len(allocation.ranks) or allocation.terms.plan[rank].node_id != node_id:
        return Ignored("rank-not-planned-there")
    status = allocation.ranks[rank].status
    if to in RANK_MOVES[status]:
        return None
    return Ignored("repeated" if status == to else f"rank-is-{status}")


def _on_started(allocation: Allocation, cause: RankStarted, at: datetime) -> Moved | Ignored:
    if ignored := _check(allocation, cause.rank, cause.node_id, "started"):
        return ignored
    started = _bounded(cause.started_at, allocation.committed_at, at)
    return _follow(allocation, {cause.rank: RankState("started", started, at)}, allocation.stop, at)


def _on_ended(allocation: Allocation, cause: RankEnded, at: datetime) -> Moved | Ignored:
    if ignored := _check(allocation, cause.rank, cause.node_id, "ended"):
        return ignored
    before = allocation.ranks[cause.rank]
    is_clean = cause.cause == "exited" and cause.exit_code == 0 and cause.signal is None
    started = before.started_at
    if started is None and cause.started_at is not None:
        started = _bounded(cause.started_at, allocation.committed_at, at)
    ended = RankState("ended", started, before.seen_at or at, _end_of(cause, started, allocation, at), is_clean)
    stop = allocation.stop
    if stop is None and not is_clean:
        stop = _failure(cause, was_started=started is not None, at=at)
    return _follow(allocation, {cause.rank: ended}, stop, at)


def _end_of(cause: RankEnded, started: datetime | None, allocation: Allocation, at: datetime) -> datetime:
    """When the rank ended, by placement's clock.

    A node whose clock is off by some amount is off by the same at start and end, so the length that it tells is kept. Where nobody saw
    the end, it is the last sign of life.
    """
    if started is None:
        return _bounded(cause.ended_at, allocation.committed_at, at)
    ended = cause.ended_at
    if cause.started_at is not None:
        ended += started - cause.started_at
    if cause.cause in ("vanished", "not-running"):
        ended = min(ended, cause.proof_at)
    return _bounded(ended, started, at)


def _failure(cause: RankEnded, *, was_started: bool, at: datetime) -> Stop:
    reason = _REASON_OF_END[cause.cause]
    if not was_started and cause.cause not in ("fenced", "exited"):
        reason = "start-failed"
    detail = cause.detail or f"rank {cause.rank} on {cause.node_id}: {_told(cause)}"
    avoid = (cause.node_id,) if reason == "start-failed" else ()
    return Stop(reason, detail, at, cause.rank, cause.exit_code, cause.signal, avoid_nodes=avoid)


def _told(cause: RankEnded) -> str:
    if cause.cause == "exited":
        return f"killed by signal {cause.signal}" if cause.signal is not None else f"exited with {cause.exit_code}"
    return {
        "stopped": "was stopped without an order",
        "fenced": "was stopped by its node, which had lost contact",
        "vanished": "its process is gone and nobody saw it end",
        "start-failed": "could not be started",
        "not-running": "does not run on its node",
    }[cause.cause]


def _on_refused(allocation: Allocation, cause: RankRefused, at: datetime) -> Moved | Ignored:
    if ignored := _check(allocation, cause.rank, cause.node_id, "refused"):
        return ignored
    stop = allocation.stop or Stop(
        "start-refused", cause.detail, at, cause.rank, is_permanent=cause.is_permanent, avoid_nodes=(cause.node_id,)
    )
    return _follow(allocation, {cause.rank: RankState("refused", ended_at=at)}, stop, at)


def _on_lost(allocation: Allocation, cause: RanksLost, at: datetime) -> Moved | Ignored:
    gone: dict[int, RankState] = {}
    for rank, proof in sorted(cause.proofs.items()):
        if _check(allocation, rank, cause.node_id, "lost") is None:
            before = allocation.ranks[rank]
            ended = _bounded(proof, before.started_at or allocation.committed_at, at)
            gone[rank] = replace(before, status="lost", ended_at=ended)
    if not gone:
        return Ignored("no-rank-there")
    stop = allocation.stop or Stop(cause.reason, cause.detail, at, min(gone))
    return _follow(allocation, gone, stop, at, also_tell=tuple(gone))


def _on_stop(allocation: Allocation, cause: StopAsked, at: datetime) -> Moved | Ignored:
    if allocation.stop is not None:
        return Ignored("already-stopping")
    stop = Stop(cause.reason, cause.detail, at, avoid_gpus=cause.avoid_gpus, avoid_nodes=cause.avoid_nodes)
    return _follow(allocation, {}, stop, at)


def _on_unanswered(allocation: Allocation, cause: StopUnanswered, at: datetime) -> Moved | Ignored:
    tell = tuple(rank for rank in cause.ranks if not allocation.ranks[rank].is_gone)
    if allocation.stop is None or not tell:
        return Ignored("nothing-to-ask")
    return Moved(allocation, replace(allocation, stop=replace(allocation.stop, sent_at=at)), tell)


_RULES: Mapping[type[Any], Callable[[Allocation, Any, datetime], Moved | Ignored]] = {
    RankStarted: _on_started,
    RankEnded: _on_ended,
    RankRefused: _on_refused,
    RanksLost: _on_lost,
    StopAsked: _on_stop,
    StopUnanswered: _on_unanswered,
}


def _follow(
    was: Allocation, changed: Mapping[int, RankState], stop: Stop | None, at: datetime, *, also_tell: tuple[int, ...] = ()
) -> Moved:
    """The allocation with these ranks and this reason: its state, its start, its end, and whom to tell."""
    ranks = list(was.ranks)
    for rank, state in changed.items():
        ranks[rank] = state
    started = was.started_at or _start_of(ranks)
    if all(found.is_gone for found in ranks):
        return Moved(was, _released(was, tuple(ranks), stop, started, at), also_tell)
    state = _state_of(ranks, stop, is_started=started is not None)
    tell = also_tell
    if stop is not None and was.stop is None:
        tell = (*also_tell, *(rank for rank, found in enumerate(ranks) if not found.is_gone))
    return Moved(was, replace(was, state=state, ranks=tuple(ranks), started_at=started, stop=stop), tell)


def _state_of(ranks: list[RankState], stop: Stop | None, *, is_started: bool) -> AllocationState:
    if stop is not None:
        return "stopping"
    if is_started:
        return "running"
    return "starting" if any(found.started_at is not None for found in ranks) else "committed"


def _start_of(ranks: list[RankState]) -> datetime | None:
    """When the last rank started; None while one has not."""
    latest: datetime | None = None
    for found in ranks:
        if found.started_at is None:
            return None
        if latest is None or found.started_at > latest:
            latest = found.started_at
    return latest


def _released(was: Allocation, ranks: tuple[RankState, ...], stop: Stop | None, started: datetime | None, at: datetime) -> Allocation:
    """Its end. Work that came to a good end by itself has exited, whatever was on its way to it."""
    if stop is None or all(found.is_clean for found in ranks):
        stop = Stop("exited", "", at, exit_code=0)
    last = max((found.ended_at for found in ranks if found.ended_at is not None), default=at)
    if stop.reason in ENDS_AT_PROOF and stop.rank is not None:
        last = ranks[stop.rank].ended_at or last
    ended = _bounded(last, started or was.committed_at, at)
    return replace(was, state="released", ranks=ranks, started_at=started, ended_at=ended, stop=stop)


def _bounded(value: datetime, low: datetime, high: datetime) -> datetime:
    """`value` within [low, high]; where they cross (a clock was set back), `low`."""
    return max(min(value, high), low)
