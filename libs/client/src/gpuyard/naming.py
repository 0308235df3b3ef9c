"""Which job a person means: an id, a name, or the beginning of either.

A name that was used again means its youngest job, first of those that live: it is the last run that people look at. Where a job is to be
ended, and where only a beginning was given, more than one means that nothing is done and all are told.
"""

import re
from collections.abc import Callable
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


def find(client: Jobs, ref: str, *, live_only: bool = False, chosen: Callable[[Job, int], None] = lambda job, others: None) -> Job:
    """The one job that is meant. An exact name goes before beginnings. `live_only`: ended jobs are not meant, nor one of two living.

    `chosen` hears of a job that was taken before others of its name, and how many they are. Raises NotFound and Ambiguous.
    """
    if _ID.fullmatch(ref):
        return client.get(ref)
    named = [job for job in client.page(name=ref).items if job.name == ref and not (live_only and job.is_ended)] if ref else []
    living = [job for job in named if not job.is_ended]
    if len(named) > 1 and not live_only:
        youngest = (living or named)[0]
        chosen(youngest, len(named) - 1)
        return youngest
    found = named or _beginning_with(client, ref, live_only=live_only)
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
