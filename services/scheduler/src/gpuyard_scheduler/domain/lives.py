"""What holds hardware now, as whoever might have to make room sees it. Follows the changes of jobs; nothing here is stored."""

from collections import Counter
from dataclasses import dataclass

from gpuyard_contracts.types import allocation_id_of

from gpuyard_scheduler.domain.ask import takes
from gpuyard_scheduler.domain.model import Job, RankPlan, millis
from gpuyard_scheduler.domain.policy import rank_of


@dataclass(frozen=True, slots=True)
class Live:
    """One job that holds hardware. `is_leaving`: it was told to stop already. `started_ms` None: it does not run yet."""

    job_id: str
    allocation_id: str
    tenant: str
    rank: int
    milli: int
    plans: tuple[RankPlan, ...]
    started_ms: int | None
    is_leaving: bool

    def lost_work(self, now_ms: int) -> int:
        """Milli-GPU times milliseconds that this attempt has done: what is lost at most, since it may go on from a checkpoint."""
        return 0 if self.started_ms is None else self.milli * max(0, now_ms - self.started_ms)


class Lives:
    """All live jobs by id, and how many there are of each tenant and rank."""

    def __init__(self) -> None:
        self.by_job: dict[str, Live] = {}
        self.ranks: Counter[tuple[str, int]] = Counter()
        self.leaving: set[str] = set()

    def move(self, old: Job | None, new: Job | None) -> None:
        """Follow one job: `old` became `new` (None: there is none)."""
        if old is not None and old.is_live:
            gone = self.by_job.pop(old.job_id)
            self.leaving.discard(old.job_id)
            self.ranks[gone.tenant, gone.rank] -= 1
        if new is not None and new.is_live:
            self._add(new)

    def _add(self, job: Job) -> None:
        found = self.by_job[job.job_id] = Live(
            job_id=job.job_id,
            allocation_id=allocation_id_of(job.job_id, job.attempt),
            tenant=job.tenant,
            rank=rank_of(job.spec.priority, is_spot=job.spec.spot),
            milli=takes(tuple(plan.slices for plan in job.ranks))[0],
            plans=job.ranks,
            started_ms=None if job.started_at is None else millis(job.started_at),
            is_leaving=job.state == "stopping",
        )
        self.ranks[found.tenant, found.rank] += 1
        if found.is_leaving:
            self.leaving.add(job.job_id)

    def without(self, job_id: str) -> "Lives":
        """The same without one job."""
        made = Lives()
        made.by_job = {name: live for name, live in self.by_job.items() if name != job_id}
        made.ranks = self.ranks.copy()
        made.leaving = self.leaving - {job_id}
        gone = self.by_job[job_id]
        made.ranks[gone.tenant, gone.rank] -= 1
        return made

    def weakest(self) -> dict[str, int]:
        """The lowest rank that is live, by tenant."""
        found: dict[str, int] = {}
        for (tenant, rank), number in self.ranks.items():
            if number > 0:
                found[tenant] = min(rank, found.get(tenant, rank))
        return found
