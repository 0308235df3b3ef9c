"""CPU time of process trees, read from /proc: what a job costs in each process."""

import os
from collections.abc import Mapping
from pathlib import Path

TICK_MS = 1000 / os.sysconf("SC_CLK_TCK")


def spent_ms(roots: Mapping[str, int]) -> dict[str, float]:
    """CPU milliseconds, user and system, that each root (a pid, by name) and all below it has used so far.

    What a child had used when it was waited for is in its parent's account. A root below another root counts for itself only.
    """
    times, parents = _processes()
    names = {pid: name for name, pid in roots.items()}
    found = dict.fromkeys(roots, 0.0)
    for pid, used in times.items():
        at = pid
        while at in parents and at not in names:
            at = parents[at]
        if at in names:
            found[names[at]] += used
    return found


def _processes() -> tuple[dict[int, float], dict[int, int]]:
    """CPU milliseconds by pid, and parents."""
    times: dict[int, float] = {}
    parents: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            text = (folder / "stat").read_text(errors="replace")
        except OSError:
            continue  # it has just ended
        after_name = text[text.rfind(")") + 2 :].split()
        parents[int(folder.name)] = int(after_name[1])
        times[int(folder.name)] = sum(map(int, after_name[11:15])) * TICK_MS
    return times, parents


def of_ourselves_ms() -> float:
    """CPU milliseconds of this process."""
    used = os.times()
    return (used.user + used.system) * 1000
