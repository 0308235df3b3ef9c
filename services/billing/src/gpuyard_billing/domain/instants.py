"""Which instants billing believes. Clocks go wrong: a year 2099, a duration below zero or a stamp in the wrong unit never becomes money."""

AHEAD_MS = 5 * 60_000
"""How far a clock may be ahead of ours."""
EVIDENCE_KEPT_MS = 35 * 86_400_000
"""Evidence older than the usage stream keeps is not taken."""


def problem_of_tick(at_ms: int, now_ms: int) -> str | None:
    """Why a tick's instant is not believed: one word for counting."""
    if at_ms > now_ms + AHEAD_MS:
        return "future"
    return "too-old" if at_ms < now_ms - EVIDENCE_KEPT_MS else None


def problem_of_interval(committed_ms: int | None, started_ms: int | None, ended_ms: int | None, said_ms: int) -> str | None:
    """Why an interval, as placement told it at `said_ms`, is not billed: for people. None if it is sound."""
    latest = said_ms + AHEAD_MS
    if (started_ms is not None and started_ms > latest) or (ended_ms is not None and ended_ms > latest):
        return "it lies in the future of the event that tells it"
    if started_ms is not None and ended_ms is not None and ended_ms < started_ms:
        return f"it ends {started_ms - ended_ms} ms before it starts"
    if committed_ms is not None and started_ms is not None and started_ms < committed_ms - AHEAD_MS:
        return f"it starts {committed_ms - started_ms} ms before its allocation was committed"
    return None
