"""``gpuyard``: the command. Parts that take long to load are loaded by the commands that need them."""

import io
import sys
from collections.abc import Mapping
from importlib import import_module

import typer

from gpuyard.cli.session import EXIT_CODES

PARTS: Mapping[str, str] = {
    "apply": "apply",
    "jobs": "ps logs stop events cost trace",
    "explaining": "explain plan",
    "fleet": "nodes gpus incidents queue node",
    "tenants": "tenant",
    "ledger": "ledger",
    "access": "login whoami doctor",
}
"""The modules of commands, and which each has."""


def build(wanted: str = "") -> typer.Typer:
    """The command with all its parts, or where `wanted` is the name of a command only with the part that has it, which takes less time."""
    app = typer.Typer(
        name="gpuyard",
        help=f"Ask for GPUs, watch what becomes of it, see what it costs.\n\n{EXIT_CODES}",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    only = [part for part, names in PARTS.items() if wanted in names.split()]
    for part in only or PARTS:
        import_module(f"gpuyard.cli.{part}").register(app)
    if only:
        app.callback()(_nothing_before)  # so that one command alone is still called by its name
    return app


def _nothing_before() -> None:
    pass


def main() -> None:
    """The entry point."""
    # httpx brings a command of its own, whose import takes longer than ours: this process does without it.
    sys.modules.setdefault("httpx._main", None)  # pyright: ignore[reportArgumentType] (None is how the import system marks what is not there)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show a sign shows '?'
    build(sys.argv[1] if len(sys.argv) > 1 else "")()
