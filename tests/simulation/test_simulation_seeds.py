"""All services in one process, with every fault that the simulation knows: INV-1…10 hold after each step, and in the end all is settled."""

import os
import subprocess
import sys
from pathlib import Path
from zlib import crc32

from gpuyard_contracts.messages.placement import AllocationReleasedV1

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
    """A simulation in which nothing happens proves nothing: jobs end in every way, services and nodes die, work is moved."""
    ends: set[str] = set()
    releases: set[str] = set()
    dead: set[str] = set()
    for seed in range(8):
        history = run(seed)
        ends |= {ended.state for ended in history.checkers.lives.ended.values()}
        releases |= {data.reason for data in history.checkers.record.said_of("placement", AllocationReleasedV1)}
        dead |= {line.split(" dies at ")[0] for line in history.world.log if " dies at " in line}
    assert ends == {"succeeded", "failed", "cancelled", "expired"}
    assert releases >= {"exited", "stopped", "start-refused", "start-timeout", "node-lost"}
    assert dead >= {"scheduler", "placement", "billing", "api"}
