"""All services in one process, with every fault that the simulation knows: INV-1…10 hold after each step, and in the end all is settled."""

import os
import subprocess
import sys
from pathlib import Path
from zlib import crc32

from gpuyard_contracts.messages.placement import AllocationReleasedV1
from gpuyard_contracts.messages.scheduler import JobRequeuedV1

from tests.simulation.history import run

ROOT = Path(__file__).parents[2]
TELL = "from tests.simulation.history import run; from zlib import crc32; print(crc32('\\n'.join(run({seed}).world.log).encode()))"


def test_every_invariant_holds_in_every_history(seeds: range) -> None:
    """Whatever is delivered late, twice or out of order, and whoever dies; `--seed N` runs a failing one again."""
    for seed in seeds:
        run(seed)


def test_a_seed_gives_the_same_history_again() -> None:
    """In another process too, in whatever order its sets happen to be walked."""
    here = crc32("\n".join(run(3).world.log).encode())
    environment = {**os.environ, "PYTHONHASHSEED": "12345", "PYTHONPATH": str(ROOT)}
    program = [sys.executable, "-c", TELL.format(seed=3)]
    told = subprocess.run(program, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert int(told.stdout) == here


def test_histories_are_full_of_trouble() -> None:
    """A simulation in which nothing happens proves nothing: jobs end in every way, services and nodes die, work is moved and evicted."""
    wanted = {
        "end": {"succeeded", "failed", "cancelled", "expired"},
        "release": {"exited", "stopped", "start-refused", "start-timeout", "node-lost"},
        "requeue": {"preempted", "retry", "start-failed"},
        "death": {"scheduler", "placement", "billing", "api"},
    }
    for seed in range(40):
        history = run(seed)
        record = history.checkers.record
        wanted["end"] -= {ended.state for ended in history.checkers.lives.ended.values()}
        wanted["release"] -= {data.reason for data in record.said_of("placement", AllocationReleasedV1)}
        wanted["requeue"] -= {data.reason for data in record.said_of("scheduler", JobRequeuedV1)}
        wanted["death"] -= {line.split(" dies at ")[0] for line in history.world.log if " dies at " in line}
        if not any(wanted.values()):
            return
    raise AssertionError(f"in 40 histories there never was {wanted}")
