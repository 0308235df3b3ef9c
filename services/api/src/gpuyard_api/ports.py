"""What api needs of the world, as it needs it: the engine (units of work and the bus) and the read models.

Two adapters each: the running process with PostgreSQL (:mod:`gpuyard_api.app`, :mod:`gpuyard_api.reads`) and memory
(:mod:`gpuyard_api.memory_reads`, the tests' engine).
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeVar

from gpuyard_contracts.envelope import Ask, Shape
from gpuyard_contracts.messages.node import LogLinesV1
from gpuyard_runtime.service import Tx

from gpuyard_api.domain.model import AuditRow, Event, Job
from gpuyard_api.store import ApiStore

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs to list, newest first; None means any. `before` is the sort key of the last row already seen."""

    tenant: str | None = None
    states: tuple[str, ...] = ()
    name: str | None = None
    labels: str | None = None
    """A JSON object; the job must have all of these labels."""
    before: tuple[datetime, str] | None = None


class Reads(Protocol):
    """The read models. Every method raises Unavailable where the database does not answer in time."""

    async def job(self, job_id: str, tenant: str | None) -> tuple[Job, str] | None:
        """A job with its spec as JSON text (``{}`` where it is not known yet); None for an unknown one or another tenant's."""
        ...

    async def jobs(self, wanted: JobFilter, limit: int) -> list[Job]:
        """Jobs, newest first."""
        ...

    async def digest(self, job_id: str) -> str | None:
        """The digest of what was asked for under this job id; None where nothing was."""
        ...

    async def job_events(self, job_id: str, after: int, limit: int) -> list[Event]:
        """A job's events above `after`, by `seq`."""
        ...

    async def events(self, tenant: str | None, after: int, limit: int) -> list[Event]:
        """Events of a tenant (None: all events) above `after`, by `seq`."""
        ...

    async def audit(self, before: int | None, limit: int) -> list[AuditRow]:
        """The audit log, youngest first, below `before`."""
        ...


class Engine(Protocol):
    """The running service."""

    @property
    def store(self) -> ApiStore:
        """What is in memory; to be read only."""
        ...

    async def act(self, fn: Callable[[Tx[ApiStore]], T], *, traceparent: str | None = None) -> T:
        """Run a function in a unit of work, together with whatever else is waiting; returns after the commit."""
        ...

    async def ask(self, ask: Ask, *, seconds: float) -> Shape:
        """Ask another service. Raises Refused (it says no) and Unavailable (it does not answer)."""
        ...

    def logs(self, tenant: str, job_id: str, rank: int | None, *, is_following: bool) -> AsyncGenerator[Sequence[LogLinesV1]]:
        """What a job wrote, in order, in batches. Ends at the present end unless following; then an empty batch comes at every pause."""
        ...

    def now(self) -> datetime:
        """The present instant."""
        ...

    def complaints(self) -> list[str]:
        """Why the service is not ready; empty if it is."""
        ...
