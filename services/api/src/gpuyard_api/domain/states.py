"""What an event does to a job's present state: the projection's only rule.

Pure. The scheduler owns the state machine; here only its order matters. Events of one stream carry rising sequences, and delivery may
repeat or reorder them, so:

- an event that is older than what is known (its sequence is not above the job's version) changes nothing;
- an end is final. The one way out is ``rejected → queued``: a request that was refused (too many waiting, say) and then sent again is
  accepted under the same job id.

The database keeps the same rule by trigger (``jobs_never_go_back``) for jobs that have left the memory.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from gpuyard_api.domain.model import ENDED, Job, JobState


@dataclass(frozen=True, slots=True)
class Change:
    """What one event says: the fields of :class:`Job` that it sets. `state` of None leaves the state as it is."""

    version: int
    at: datetime
    state: JobState | None
    fields: Mapping[str, Any]


def after(job: Job, change: Change) -> Job:
    """The job after the event; the very same object where the event changes nothing."""
    if change.version <= job.version:
        return job
    fields = change.fields
    if job.state in ENDED:
        if not (job.state == "rejected" and change.state == "queued"):
            return job
        fields = {"ended_at": None, **fields}  # whatever tells first that it waits: its acceptance may still be on its way
    return replace(job, version=change.version, changed_at=change.at, state=change.state or job.state, **fields)


def introduced(job: Job, name: str, submitted_at: datetime, ranks: int, priority: str, gpu: str) -> Job:
    """The job with what only its first event tells: needed where later events were delivered before it."""
    return replace(job, name=name, submitted_at=submitted_at, ranks=ranks, priority=priority, gpu=gpu)
