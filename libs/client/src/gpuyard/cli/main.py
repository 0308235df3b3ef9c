"""``gpuyard``: the command. Parts that take long to load are loaded by the commands that need them."""

import io
import sys

import typer

from gpuyard.cli import access, apply, fleet, jobs, ledger, tenants
from gpuyard.cli.session import EXIT_CODES


def build() -> typer.Typer:
    """The command with all its parts."""
    app = typer.Typer(
        name="gpuyard",
        help=f"Ask for GPUs, watch what becomes of it, see what it costs.\n\n{EXIT_CODES}",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    for part in (apply, jobs, fleet, tenants, ledger, access):
        part.register(app)
    return app


def main() -> None:
    """The entry point."""
    # httpx brings a command of its own, whose import takes longer than ours: this process does without it.
    sys.modules.setdefault("httpx._main", None)  # pyright: ignore[reportArgumentType] (None is how the import system marks what is not there)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show a sign shows '?'
    build()()
