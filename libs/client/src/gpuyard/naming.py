"""Which job a person means: an id, a name, or the beginning of either. More than one: nothing is done, and all are told."""

import re
from typing import Protocol

from gpuyard.errors import Ambiguous, NotFound
from gpuyard.results import ENDED, Job, Page

_ID = re.compile(r"job-[a-z2-7]{16}")

PAGES = 20
"""How far back names are looked for, in pages of the youngest jobs."""


class Jobs(Protocol):
    """What is needed of the client."""

    def get(self, job_id: str) -> Job:
        """One job."""
        ...

    def page(self, *, cursor: str | None = None, limit: int = 200, **query: object) -> Page:
        """One page of jobs, the youngest first."""
        ...


def find(client: Jobs, ref: str, *, live_only: bool = False) -> Job:
    """The one job that is meant. `live_only`: ended jobs are not meant. Raises NotFound and Ambiguous.

    An exact name goes before beginnings of names and ids; where ended and living jobs share an exact name, the one that lives is meant.
    """
    if _ID.fullmatch(ref):
        return client.get(ref)
    named = [job for job in client.page(name=ref).items if job.name == ref and not (live_only and job.is_ended)] if ref else []
    living = [job for job in named if not job.is_ended]
    found = living or named or _beginning_with(client, ref, live_only=live_only)
    if len(found) == 1:
        return found[0]
    if not found:
        kind = "living job" if live_only else "job"
        raise NotFound(
            404, "not-found", f"no {kind} has the id or name {ref!r}, or one that begins so", fix="`gpuyard ps -a` lists the jobs"
        )
    raise Ambiguous(ref, [(job.job_id, job.name, job.state) for job in found])


def _beginning_with(client: Jobs, ref: str, *, live_only: bool) -> list[Job]:
    found: list[Job] = []
    cursor: str | None = None
    for _ in range(PAGES if ref else 0):
        page = client.page(cursor=cursor)
        found += [job for job in page.items if job.job_id.startswith(ref) or job.name.startswith(ref)]
        cursor = page.next_cursor
        if cursor is None:
            break
    return [job for job in found if not (live_only and job.state in ENDED)]
