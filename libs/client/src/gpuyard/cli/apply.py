"""``gpuyard apply``: from job files to jobs, and on to their ends."""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

import typer

from gpuyard import errors
from gpuyard.cli.output import note, print_items, say
from gpuyard.cli.session import FAILED, AsJson, client, command, tell

if TYPE_CHECKING:
    from gpuyard.client import Client
    from gpuyard.jobfile import Job as FileJob
    from gpuyard.results import Job

NO_TENANT = "this is an operator's token, and it is not said whose job it is"
NAME_TENANT = "add --tenant NAME, or set GPUYARD_TENANT; `gpuyard tenant list` lists tenants, `gpuyard tenant create NAME` makes one"

STARTING_SECONDS = 2.0
"""How long `apply` alone looks whether the job starts at once, to say what became of it."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "apply")(apply)


def apply(
    file: Annotated[list[str], typer.Option("--file", "-f", help="A job file; '-' is standard input. May be given several times.")],
    follow: Annotated[
        bool, typer.Option("--follow", "-F", help="Show what the job writes until it ends. Its failure is exit code 1.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Wait for the end. A job that fails is exit code 1.")] = False,
    tenant: Annotated[
        str | None, typer.Option("--tenant", "-t", envvar="GPUYARD_TENANT", help="For which tenant; needed with an operator's token.")
    ] = None,
    key: Annotated[str | None, typer.Option("--key", help="Idempotency key: the same file again under it makes no second job.")] = None,
    as_json: AsJson = False,
) -> None:
    """Ask for the jobs of a file: one, or several divided by '---'. Nothing is sent unless the whole file can be read."""
    jobs = read_files(file)
    with client() as yard:
        made, is_whole = submit_all(yard, jobs, tenant, key, as_json=as_json)
        if follow or wait:
            made = finish(yard, made, follow=follow, as_json=as_json)
        elif not as_json:
            for job in made:
                _tell(yard, job)
    if as_json:
        print_items([job.raw for job in made])
    elif follow or wait:
        for job in made:
            say_end(job)
    if not is_whole or ((follow or wait) and not all(job.is_good for job in made)):
        raise typer.Exit(FAILED)


def read_files(names: Sequence[str]) -> "list[FileJob]":
    """The jobs of all files. Raises BadJobFile with every problem of every file."""
    from gpuyard import jobfile

    jobs: list[FileJob] = []
    problems: list[errors.FileProblem] = []
    for name in names:
        try:
            jobs += jobfile.read(_text(name), "job.yaml" if name == "-" else name)
        except errors.BadJobFile as bad:
            problems += bad.problems
    if problems:
        raise errors.BadJobFile(problems)
    return jobs


def _text(name: str) -> str:
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise errors.BadJobFile([errors.FileProblem(name, 0, "", "is not UTF-8 text", "save it as UTF-8")]) from None
    except OSError as error:
        raise errors.BadJobFile([errors.FileProblem(name, 0, "", f"cannot be read: {error.strerror}")]) from None


def submit_all(
    yard: "Client", jobs: "Sequence[FileJob]", tenant: str | None, key: str | None, *, as_json: bool
) -> "tuple[list[Job], bool]":
    """Ask for all jobs. Returns those that were taken, and whether that is all: a rejected one is told and does not hold up the others."""
    made: list[Job] = []
    is_whole = True
    try:
        for place, job in enumerate(jobs):
            try:
                made.append(submit(yard, job, tenant, key and f"{key}/{place}"))
            except errors.Rejected as rejected:
                is_whole = False
                tell(rejected, as_json=as_json)
    except errors.GpuyardError:
        for job in made:  # they are there, whatever comes of the rest
            note(f"{job.job_id}  {job.name} was asked for before that")
        raise
    return made, is_whole


def submit(yard: "Client", job: "FileJob", tenant: str | None, key: str | None) -> "Job":
    """Ask for one job; what the api finds wrong is told with its line in the file."""
    from gpuyard import jobfile

    try:
        return yard.submit_spec(job.spec, tenant=tenant, key=key or uuid4().hex)
    except errors.Rejected as rejected:
        rejected.args = (f"{job.name} was not taken ({rejected.reason}): {rejected}",)
        raise
    except errors.ApiError as error:
        if not error.fields:
            raise
        if any(part.field == "tenant" for part in error.fields):
            raise errors.ApiError(422, "no-tenant", NO_TENANT, fix=NAME_TENANT) from None
        raise errors.BadJobFile(jobfile.locate(job, error.fields)) from None


def _tell(yard: "Client", job: "Job") -> None:
    """What became of the job in its first moments."""
    from gpuyard.cli.progress import Progress

    def is_told(found: "Job") -> bool:
        return found.state not in ("submitted", "placing", "starting") and found.reason != "not-considered-yet"

    try:
        job = yard.wait(job.job_id, until=is_told, timeout_seconds=STARTING_SECONDS)
    except errors.WaitTimeout:
        job = yard.get(job.job_id)
    say(f"{job.job_id}  {Progress.line(job)}")
    if job.state == "submitted":
        note("  the scheduler has not answered yet; `gpuyard doctor` says whether it is there")
    elif job.state == "queued":
        note(f"  why it waits, and what would help: gpuyard explain {job.job_id}")
    elif not job.is_ended:
        note(f"  what it writes: gpuyard logs -f {job.job_id}")


def finish(yard: "Client", jobs: "Iterable[Job]", *, follow: bool, as_json: bool = False) -> "list[Job]":
    """Wait for the ends of all, with progress; with `follow` their output comes too."""
    from gpuyard.cli.progress import Progress
    from gpuyard.cli.streams import show_logs

    ended: list[Job] = []
    for job in jobs:
        note(f"{job.job_id}  {job.name}")
        with Progress() as progress:
            job = yard.wait(job.job_id, until=_has_begun if follow else _has_ended, seen=progress.seen)
        if follow:
            show_logs(yard, job, follow=True, as_json=as_json, to_error=as_json)
            job = yard.wait(job.job_id)
        ended.append(job)
    return ended


def _has_begun(job: "Job") -> bool:
    return job.is_ended or job.state in ("running", "stopping")


def _has_ended(job: "Job") -> bool:
    return job.is_ended


def say_end(job: "Job") -> None:
    """How a job ended, in one line."""
    took: Any = ""
    if job.started_at is not None and job.ended_at is not None:
        from gpuyard.amounts import show_duration

        seconds = (job.ended_at - job.started_at).total_seconds()
        took = f" after {show_duration(seconds) if seconds >= 10 else f'{seconds:.1f}s'}"
    why = job.detail or job.reason
    code = f", exit code {job.exit_code}" if job.exit_code not in (None, 0) and "exit code" not in why else ""
    say(f"{job.job_id}  {job.name}: {job.state}{took}" + (f": {why}{code}" if not job.is_good else ""))
