"""What all commands share: the client, the way errors are told, and the exit codes.

A command raises errors of :mod:`gpuyard.errors`; here they become words on standard error and an exit code that scripts can rely on.
Nobody sees a traceback for what is not our own mistake.
"""

import functools
import json
import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuyard import errors

if TYPE_CHECKING:
    from gpuyard.client import Client
    from gpuyard.results import Job

OK, FAILED, USAGE, DENIED, UNREACHABLE, INTERRUPTED = 0, 1, 2, 3, 4, 130

EXIT_CODES = (
    "Exit codes: 0 done, 1 the job failed or a check found something wrong, 2 bad usage or file, 3 not found or not allowed, "
    "4 the api cannot be reached."
)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, as the api gives it, for programs.")]


def code_of(error: errors.GpuyardError) -> int:
    """The exit code that an error stands for."""
    if isinstance(error, errors.Unreachable | errors.NotConfigured):
        return UNREACHABLE
    if isinstance(error, errors.NotFound | errors.Denied):
        return DENIED
    if isinstance(error, errors.BadJobFile | errors.Ambiguous):
        return USAGE
    if isinstance(error, errors.ApiError) and not isinstance(error, errors.Rejected):
        return UNREACHABLE if error.status >= 500 else USAGE if error.status in (400, 405, 413, 415, 422) else FAILED
    return FAILED


def command(app: typer.Typer, name: str | None = None, **settings: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a function as a command whose errors are told and not thrown."""

    def register(run: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(run)
        def told(*arguments: Any, **given: Any) -> None:
            try:
                run(*arguments, **given)
            except errors.GpuyardError as error:
                tell(error, as_json=bool(given.get("as_json")))
                raise typer.Exit(code_of(error)) from None
            except KeyboardInterrupt:
                raise typer.Exit(INTERRUPTED) from None
            except BrokenPipeError:  # whoever read has seen enough
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                raise typer.Exit(OK) from None
            except typer.Exit:
                raise
            except Exception as error:
                if os.environ.get("GPUYARD_DEBUG"):
                    raise
                print(f"gpuyard: a mistake of gpuyard's own: {type(error).__name__}: {error}", file=sys.stderr)
                print("  to see where: set GPUYARD_DEBUG=1 and do it again", file=sys.stderr)
                raise typer.Exit(FAILED) from None

        return app.command(name, **settings)(told)

    return register


def whole(at_least: int, at_most: int = 10**9) -> Callable[[str], int]:
    """A reader of an option's whole number within its bounds, whose refusal is a sentence for people."""

    def read(text: str) -> int:
        from gpuyard.amounts import whole as of

        try:
            return of(str(text), at_least=at_least, at_most=at_most)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None

    return read


def tell(error: errors.GpuyardError, *, as_json: bool = False) -> None:
    """Say what went wrong and what to do, on standard error."""
    if as_json:
        code = getattr(error, "code", type(error).__name__.lower())
        fields = [{"field": part.field, "message": part.message, "fix": part.fix} for part in getattr(error, "fields", ())]
        content = {"error": {"code": code, "message": str(error), "fix": error.fix, "fields": fields, "exit": code_of(error)}}
        print(json.dumps(content), file=sys.stderr)
        return
    print(f"gpuyard: {error}", file=sys.stderr)
    for part in getattr(error, "fields", ()):
        line = f"  {part.field}: {part.message}" + (f"; {part.fix}" if part.fix else "")
        if part.message not in str(error):
            print(line, file=sys.stderr)
    if error.fix:
        print(f"  to fix it: {error.fix}", file=sys.stderr)


@contextmanager
def client() -> Generator["Client", None, None]:
    """The client of this command."""
    from gpuyard.client import Client

    with Client() as found:
        yield found


def meant(yard: "Client", ref: str) -> "Job":
    """The job that is to be shown. Says so where there are others of its name."""
    from gpuyard import naming
    from gpuyard.cli import output

    def chosen(job: "Job", others: int) -> None:
        kind = "living job" if not job.is_ended else "job"
        several = f"{others} more are" if others > 1 else "one more is"
        output.note(f"{job.job_id}: the youngest {kind} of this name; {several} called {job.name}, see `gpuyard ps -a`")

    return naming.find(yard, ref, chosen=chosen)
