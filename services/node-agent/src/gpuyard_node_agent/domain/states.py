"""How a workload moves: the table. A move that is not in it is ignored with a reason, never raised.

waiting ──launch──▶ launched ──spawn──▶ running ──stop──▶ stopping
   │                   │  └────────stop─────────────────────▲ │
   └──── end ──────────┴─────────── end ──────────┴── end ────┘
"""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from gpuyard_node_agent.domain.model import Born, Cause, Gone, State, Workload

MOVES: dict[tuple[State, str], State] = {
    (State.WAITING, "launch"): State.LAUNCHED,
    (State.LAUNCHED, "launch"): State.LAUNCHED,
    (State.LAUNCHED, "spawn"): State.RUNNING,
    (State.LAUNCHED, "stop"): State.STOPPING,
    (State.RUNNING, "stop"): State.STOPPING,
    (State.STOPPING, "stop"): State.STOPPING,
    (State.STOPPING, "spawn"): State.STOPPING,
}
"""`end` is allowed from every state and leads out of the table."""


def move(workload: Workload, what: str, **changes: Any) -> Workload | None:
    """The workload after `what`, with other fields changed; None where the table has no such move."""
    state = MOVES.get((workload.state, what))
    return None if state is None else replace(workload, state=state, **changes)


def born(workload: Workload, seen: Born, shares: tuple[tuple[int, int], ...]) -> Workload | None:
    """The workload once its process runs; None where it was known already."""
    if workload.is_started:
        return None
    told = {"pid": seen.pid, "ticks": seen.ticks, "started_ms": seen.started_ms, "started_at": seen.started_at}
    return move(workload, "spawn", shares=shares, **told)


def cause_of(workload: Workload, gone: Gone) -> Cause:
    """Why a process is said to have ended.

    Who is told to stop and ends by itself at the same moment has exited: the keeper knows which came first. Who is found gone has vanished,
    told to stop or not: placement then takes the last sign of life for the end.
    """
    if gone.is_unseen:
        return "vanished"
    if gone.is_fenced:
        return "fenced"
    if gone.is_stopped:
        return "stopped"
    if gone.code is None and gone.signal is None:
        return "stopped" if workload.state is State.STOPPING else "vanished"
    return "exited"


def held_ms(workload: Workload, until_ms: int) -> int:
    """How long it has held its cards; 0 before it runs."""
    return max(until_ms - workload.started_ms, 0) if workload.is_started else 0


def ended_at(workload: Workload, until_ms: int, now: datetime, now_ms: int) -> datetime:
    """The instant of the end: start plus what the boot clock measured, so that a corrected wall clock changes nobody's bill."""
    if workload.started_at is None:
        return now - timedelta(milliseconds=max(now_ms - until_ms, 0))
    return workload.started_at + timedelta(milliseconds=held_ms(workload, until_ms))
