"""INV-3 and the jobs' side of INV-6 after each step: every job moves forward, ends once and stays ended, and nothing is held for nobody."""

from datetime import datetime
from typing import Any

from gpuyard_contracts.envelope import Envelope
from gpuyard_contracts.messages.placement import AllocationCommittedV1
from gpuyard_contracts.messages.scheduler import (
    JobEndedV1,
    JobPlacingV1,
    JobQueuedV1,
    JobRejectedV1,
    JobRequeuedV1,
    JobRunningV1,
    JobStartingV1,
    JobWaitingV1,
    PlaceV1,
)

from tests.simulation.record import Record, Violation, must
from tests.simulation.tenants import could_run


class Lives:
    """The books of every job's life, kept from what the scheduler committed to saying."""

    KNOWN_SECONDS = 20.0

    def __init__(self, record: Record) -> None:
        self.record = record
        self.queued: set[str] = set()
        self.rejected: set[str] = set()
        self.ended: dict[str, JobEndedV1] = {}
        self.plans: dict[str, dict[int, PlaceV1]] = {}
        self.rows: dict[str, Any] = {}
        self.waiting: dict[str, str] = {}
        self.known: set[str] = set()

    def told(self, event: Envelope[Any]) -> None:
        """The scheduler committed to saying this."""
        data = event.data
        if event.id in self.known:
            return
        self.known.add(event.id)
        if isinstance(data, JobQueuedV1):
            must(data.job_id not in self.queued, "INV-3", f"{data.job_id} is queued as a new job twice")
            self.queued.add(data.job_id)
        elif isinstance(data, JobRejectedV1):
            must(data.job_id not in self.queued, "INV-3", f"{data.job_id} is rejected ({data.reason}) after it was accepted")
            self.rejected.add(data.job_id)
        elif isinstance(data, JobEndedV1):
            must(data.job_id in self.queued, "INV-3", f"{data.job_id} ended and was never accepted")
            must(data.job_id not in self.ended, "INV-3", f"{data.job_id} ends twice")
            self.ended[data.job_id] = data
        elif isinstance(data, JobWaitingV1):
            must(self.waiting.get(data.job_id) != data.reason, "waiting", f"{data.job_id} is told twice that it waits for {data.reason}")
            self.waiting[data.job_id] = data.reason
        elif isinstance(data, JobPlacingV1 | JobStartingV1 | JobRunningV1 | JobRequeuedV1):
            must(data.job_id not in self.ended, "INV-3", f"{data.TYPE} after the end of {data.job_id}")
            self.waiting.pop(data.job_id, None)
        elif isinstance(data, PlaceV1):
            self._plan(data)

    def _plan(self, data: PlaceV1) -> None:
        must(data.job_id not in self.ended, "INV-3", f"{data.job_id} is planned after its end")
        plans = self.plans.setdefault(data.job_id, {})
        same = plans.get(data.attempt)
        must(same is None or same.ranks == data.ranks, "INV-6", f"two plans for attempt {data.attempt} of {data.job_id}")
        must(
            data.attempt >= max(plans, default=0),
            "INV-6",
            f"attempt {data.attempt} of {data.job_id} is planned after {max(plans, default=0)}",
        )
        plans[data.attempt] = data

    def check(self) -> None:
        """Rows of ended jobs never change; who has ended has a reason."""
        is_changed = False
        for job_id, row in self.record.rows("scheduler", "jobs").items():
            known = self.rows.get(job_id)
            if known is row:
                continue
            is_changed = True
            if known is not None:
                must(known.ended_at is None, "INV-3", f"{job_id} was {known.state} and is {row.state}")
                must(row.attempt >= known.attempt, "INV-6", f"{job_id} goes back from attempt {known.attempt} to {row.attempt}")
            is_over = row.state in ("succeeded", "failed", "cancelled", "expired")
            must(
                is_over == (row.ended_at is not None) == (row.end_reason is not None), "INV-3", f"{job_id} is {row.state}: {row.end_reason}"
            )
            must(is_over == (job_id in self.ended), "INV-3", f"{job_id} is {row.state}, and its end was {'' if is_over else 'not '}told")
            self.rows[job_id] = row
        if is_changed:
            self._classes_are_total()

    def _classes_are_total(self) -> None:
        """Each waiting job is in exactly one class of reasons: the classes sum to what waits."""
        if not self.record.world.members["scheduler"].is_up:
            return
        reasons = self.record.world.store("scheduler").queue.reasons()
        waiting = sum(1 for row in self.rows.values() if row.state == "queued")
        must(sum(reasons.values()) == waiting, "waiting", f"{waiting} jobs wait, their reasons are {reasons}")

    def check_rejection(self, event: Envelope[Any], whole_since: datetime | None) -> None:
        """Nobody is told that his job could never run if it could; who knows only a part of the fleet may be wrong."""
        said = event.data
        heard = self.record.world.store("scheduler").fleet.nodes
        is_known = whole_since is not None and (event.time - whole_since).total_seconds() >= self.KNOWN_SECONDS
        if not is_known or len(heard) < len(self.record.agents):
            return
        if isinstance(said, JobRejectedV1) and said.reason in ("never-fits", "over-quota-for-ever"):
            spec = self.record.tenants.asked[said.job_id].spec
            is_false = spec is not None and could_run(spec, said.tenant, self.record.tenants.machines)
            must(not is_false, "truth", f"{said.job_id} was rejected: {said.reason}, {said.detail}")

    def check_holds(self, live: dict[str, AllocationCommittedV1]) -> None:
        """What placement holds is what the scheduler still wants (or has been told to let go of)."""
        for name, found in live.items():
            row = self.rows.get(found.job_id)
            if found.job_id in self.record.tenants.rogue_jobs:
                continue
            is_wanted = row is not None and row.ended_at is None and row.state != "queued" and row.attempt == found.attempt
            if not is_wanted:
                raise Violation("INV-6", f"{name} is held, the scheduler has {row and (row.state, row.attempt)}")
