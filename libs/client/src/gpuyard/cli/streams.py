"""Showing what a job writes, also over breaks: what was shown is not shown again."""

import re
import sys
from typing import TYPE_CHECKING

from gpuyard.cli.output import print_json_line

if TYPE_CHECKING:
    from gpuyard.client import Client
    from gpuyard.results import Job, LogLine

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\\\)?|\x1b.?")
"""Terminal sequences: colours, movements, titles."""


def show_logs(
    yard: "Client",
    job: "Job",
    *,
    follow: bool,
    rank: int | None = None,
    tail: int | None = None,
    as_json: bool = False,
    to_error: bool = False,
) -> None:
    """Print a job's output; of a gang each line behind its rank. `to_error`: on standard error, which leaves the other for a document."""
    attempt = 0
    for line in yard.logs(job.job_id, follow=follow, rank=rank, tail=tail):
        if as_json and not to_error:
            print_json_line(line.raw)
            continue
        if line.attempt > attempt > 0:
            print(f"--- attempt {line.attempt} ---", file=sys.stderr, flush=True)
        attempt = max(attempt, line.attempt)
        if line.dropped_lines:
            of_rank = f"rank {line.rank}: " if job.ranks > 1 else ""
            print(f"--- {of_rank}{line.dropped_lines} lines were dropped here ---", file=sys.stderr, flush=True)
            continue
        print(_shown(job, line), file=sys.stderr if to_error else sys.stdout, flush=True)


def _shown(job: "Job", line: "LogLine") -> str:
    """The line as it may be shown: a workload cannot move the cursor, retitle the terminal or ring."""
    plain = _ESCAPES.sub("", line.text)
    text = "".join(sign if sign.isprintable() or sign == "\t" else " " if sign.isspace() else "\N{REPLACEMENT CHARACTER}" for sign in plain)
    return f"[{line.rank}] {text}" if job.ranks > 1 else text
