"""What a killed supervisor leaves behind: programs that nobody restarts or stops any more.

Each wrote down who it is when it started. They are ended by that identity alone, so that a pid which the kernel has given to another
program meanwhile is never touched.
"""

import signal

from gpuyard_local import processes
from gpuyard_local.layout import Layout
from gpuyard_local.processes import ProcessId

SUPERVISOR = "supervisord"
LAST = ("nats", "postgres")
"""What the others stand on ends after them."""

_GRACE_SECONDS = {SUPERVISOR: 45.0, "postgres": 20.0}


def found(layout: Layout) -> dict[str, ProcessId]:
    """By program, who still runs of what this state folder started."""
    recorded = {file.stem: processes.recorded(file) for file in sorted(layout.run.glob("*.stat"))}
    return {name: who for name, who in recorded.items() if who is not None and processes.is_alive(who)}


def end(layout: Layout) -> list[str]:
    """End all of it, in order. Returns the names of what was ended."""
    alive = found(layout)
    if SUPERVISOR in alive:  # it stops its programs itself
        processes.end([alive[SUPERVISOR]], grace_seconds=_GRACE_SECONDS[SUPERVISOR])
    processes.end((who for name, who in alive.items() if name not in LAST), grace_seconds=15.0)
    for name in LAST:
        if name in alive:
            how = signal.SIGINT if name == "postgres" else signal.SIGTERM
            processes.end([alive[name]], grace_seconds=_GRACE_SECONDS.get(name, 10.0), signal_number=how)
    return sorted(alive)
