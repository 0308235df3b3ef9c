"""What a job was at an instant that is past, read from the events that are kept of it."""

import json
from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple

from gpuyard_api.domain.model import Event

_OF_JOBS = "gpuyard.evt.scheduler.job."
_STATES = {"waiting": "queued", "requeued": "queued"}
_SILENT = frozenset({"unknown"})
"""Words of the scheduler that say nothing of state or reason."""


class Moment(NamedTuple):
    """State and reason in force, since when, and the receipt of the attempt that was under way (as JSON values)."""

    state: str
    reason: str
    detail: str
    since: datetime
    receipt: dict[str, Any] | None


def moment(events: Iterable[Event], at: datetime) -> Moment | None:
    """What was in force at that instant; None: the scheduler had said nothing yet. `events` in the order in which they were told."""
    found: Moment | None = None
    for event in events:
        verb = event.type.removeprefix(_OF_JOBS).split(".")[0]
        if event.at > at or not event.type.startswith(_OF_JOBS) or verb in _SILENT:
            continue
        data: dict[str, Any] = json.loads(event.body)
        state = str(data.get("state") or _STATES.get(verb, verb))
        reason = str(data.get("reason") or ("not-considered-yet" if verb == "queued" else ""))
        before = None if found is None or state == "queued" else found.receipt
        found = Moment(state, reason, str(data.get("detail") or ""), event.at, data.get("receipt") or before)
    return found
