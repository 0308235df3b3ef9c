"""The read models over rows in memory: for tests and simulations. It passes the same tests as :mod:`gpuyard_api.reads`."""

import asyncio
import json
from collections.abc import Callable, Iterable
from typing import Any

from gpuyard_api.domain.model import AuditRow, Event, Job, JobAsk
from gpuyard_api.ports import JobFilter

Rows = Callable[[str], Iterable[Any]]
"""All committed rows of a table or journal, by its name."""


class MemoryReads:
    """The read models over whatever `rows` gives. Each method gives way once, as a database would."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    async def job(self, job_id: str, tenant: str | None) -> tuple[Job, str] | None:
        """See :class:`gpuyard_api.ports.Reads`."""
        await asyncio.sleep(0)
        for job in self._rows("jobs"):
            if job.job_id == job_id and tenant in (None, job.tenant):
                ask = self._ask(job_id)
                return job, "{}" if ask is None else ask.spec
        return None

    async def jobs(self, wanted: JobFilter, limit: int) -> list[Job]:
        """See :class:`gpuyard_api.ports.Reads`."""
        await asyncio.sleep(0)
        found = sorted(self._rows("jobs"), key=lambda job: (job.submitted_at, job.job_id), reverse=True)
        return [job for job in found if self._is_wanted(job, wanted)][:limit]

    async def digest(self, job_id: str) -> str | None:
        """See :class:`gpuyard_api.ports.Reads`."""
        await asyncio.sleep(0)
        ask = self._ask(job_id)
        return None if ask is None else ask.digest

    async def job_events(self, job_id: str, after: int, limit: int) -> list[Event]:
        """See :class:`gpuyard_api.ports.Reads`."""
        await asyncio.sleep(0)
        return [event for event in self._rows("job_events") if event.job_id == job_id and event.seq > after][:limit]

    async def events(self, tenant: str | None, after: int, limit: int) -> list[Event]:
        """See :class:`gpuyard_api.ports.Reads`."""
        await asyncio.sleep(0)
        return [event for event in self._rows("job_events") if tenant in (None, event.tenant) and event.seq > after][:limit]

    async def audit(self, before: int | None, limit: int) -> list[AuditRow]:
        """See :class:`gpuyard_api.ports.Reads`."""
        await asyncio.sleep(0)
        rows = sorted(self._rows("audit"), key=lambda row: row.seq, reverse=True)
        return [row for row in rows if before is None or row.seq < before][:limit]

    def _ask(self, job_id: str) -> JobAsk | None:
        return next((ask for ask in self._rows("job_asks") if ask.job_id == job_id), None)

    def _is_wanted(self, job: Job, wanted: JobFilter) -> bool:
        if wanted.tenant not in (None, job.tenant) or wanted.name not in (None, job.name):
            return False
        if wanted.states and job.state not in wanted.states:
            return False
        if wanted.before is not None and (job.submitted_at, job.job_id) >= wanted.before:
            return False
        return wanted.labels is None or self._has_labels(job.job_id, wanted.labels)

    def _has_labels(self, job_id: str, labels: str) -> bool:
        ask = self._ask(job_id)
        return ask is not None and json.loads(labels).items() <= json.loads(ask.labels).items()
