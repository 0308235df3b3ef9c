"""What a person sees while a job is waited for: a moving line on a terminal, a line for each change elsewhere. On standard error."""

import sys
from types import TracebackType
from typing import Any, Self

from gpuyard.cli.output import is_coloured, note
from gpuyard.results import Job


class Progress:
    """Tells how one or several jobs come along; give :meth:`seen` each look at one."""

    def __init__(self) -> None:
        self._told: dict[str, str] = {}
        self._status: Any = None
        self._hinted: set[str] = set()

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console

            self._status = Console(stderr=True, no_color=not is_coloured(sys.stderr)).status("")
            self._status.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._status is not None:
            self._status.stop()

    def seen(self, job: Job) -> None:
        """The job was looked at."""
        line = self.line(job)
        if self._told.get(job.job_id) == line:
            return
        self._told[job.job_id] = line
        if self._status is not None:
            self._status.update("; ".join(self._told.values()), spinner="dots")
        else:
            note(line)
        if (
            job.state == "queued"
            and job.reason not in ("", "not-considered-yet")
            and job.job_id not in self._hinted
            and self._status is None
        ):
            self._hinted.add(job.job_id)
            note(f"  why, and what would help: gpuyard explain {job.job_id}")

    @staticmethod
    def line(job: Job) -> str:
        """How the job stands, in one line."""
        state = f"{job.state}, its node is silent" if job.is_unknown and not job.is_ended else job.state
        why = "" if job.state in ("running", "placing", "starting") else job.detail or job.reason
        where = f" on {', '.join(job.nodes)}" if job.nodes and job.state in ("starting", "running") else ""
        attempt = f" (attempt {job.attempt})" if job.attempt > 1 and not job.is_ended else ""
        return f"{job.name}: {state}{where}{attempt}" + (f": {why}" if why else "")
