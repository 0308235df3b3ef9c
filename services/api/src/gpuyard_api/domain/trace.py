"""One job's events as a waterfall: what followed from what, and how long each step took.

Pure. A step lasts from the event that caused it to the event itself. Causes that are no events of the job (a command between two
services) are not recorded here; then the step lasts from the last event before it, which is what it was waiting for. Clocks of
different machines may disagree by a little: a step is never shown as negative.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from gpuyard_api.domain.model import Event

LAST = "ledger.posted"
RAN = frozenset({"allocation.started", "job.running"})
"""What is paid for: each attempt that ran has its last posting in the end."""
ENDS = frozenset({"job.ended", "job.rejected"})


@dataclass(frozen=True, slots=True)
class Step:
    """One event in the waterfall; offsets in milliseconds from the trace's start."""

    event: Event
    begins_ms: float
    ends_ms: float


@dataclass(frozen=True, slots=True)
class Trace:
    """All steps by time. `trace_id` is W3C's, None where no event carried one."""

    trace_id: str | None
    started_at: datetime
    total_ms: float
    steps: tuple[Step, ...]


def waterfall(events: Sequence[Event], asked_at: datetime) -> Trace:
    """The waterfall of one job's events (in any order); `asked_at` is when the job was asked for."""
    ordered = sorted(events, key=lambda event: (event.at, event.seq))
    start = min([asked_at, *(event.at for event in ordered)])
    at_of = {event.event_id: event.at for event in ordered}
    steps: list[Step] = []
    before = start
    for event in ordered:
        cause = at_of.get(event.causation_id or "", before)
        steps.append(Step(event, _ms(min(cause, event.at) - start), _ms(event.at - start)))
        before = event.at
    return Trace(_trace_id(ordered), start, steps[-1].ends_ms if steps else 0.0, tuple(steps))


def _ms(span: timedelta) -> float:
    return round(span / timedelta(milliseconds=1), 3)


def _trace_id(events: Sequence[Event]) -> str | None:
    return next((event.traceparent.split("-")[1] for event in events if event.traceparent is not None), None)
