"""A program of the stack as data, and the script that becomes it.

A script for each program keeps quoting in one place, notes who the process is (:mod:`gpuyard_local.processes`) and can be run by hand when
one wants to see a service start.
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuyard_local.layout import Layout
from gpuyard_local.private import write
from gpuyard_local.processes import RECORD_SELF


@dataclass(frozen=True, slots=True)
class Program:
    """One supervised program. `environment` is all of it besides PATH and the locale; secrets are named by their files, never given.

    `health_port`: where it answers ``/readyz`` on loopback, None where it has no such door.
    """

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    stop_signal: str = "TERM"
    stop_seconds: int = 15
    health_port: int | None = None


def script_text(program: Program, layout: Layout) -> str:
    """The shell script."""
    record = RECORD_SELF.format(file=shlex.quote(str(layout.record(program.name))))
    settings = [f"export {name}={shlex.quote(value)}" for name, value in sorted(program.environment.items())]
    return "\n".join(["#!/bin/sh", "umask 077", record, *settings, f"exec {shlex.join(program.command)}", ""])


def write_script(program: Program, layout: Layout) -> None:
    """Write the script, anew at each start."""
    write(layout.script(program.name), script_text(program, layout), mode=0o700)
