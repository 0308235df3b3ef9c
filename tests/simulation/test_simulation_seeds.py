"""All services in one process, with every fault that the simulation knows: INV-1…10 hold after each step, and in the end all is settled."""

import os
import subprocess
import sys
from pathlib import Path

from tests.simulation.history import History, run


def test_every_invariant_holds_in_every_history(seeds: range) -> None:
    """Whatever is delivered late, twice or out of order, and whoever dies; `--seed N` runs a failing one again."""
    for seed in seeds:
        run(seed)


def test_a_seed_gives_the_same_history_again() -> None:
    """In another process too, whatever the order in which its sets happen to be walked."""
    history = History(3)
    history.run()
    program = "from tests.simulation.history import run; print(hash_of := __import__('zlib').crc32('\\n'.join(run(3).world.log).encode()))"
    environment = {**os.environ, "PYTHONHASHSEED": "12345", "PYTHONPATH": os.pathsep.join(["."])}
    root = Path(__file__).parents[2]
    told = subprocess.run([sys.executable, "-c", program], cwd=root, env=environment, capture_output=True, text=True, check=True)
    from zlib import crc32

    assert int(told.stdout) == crc32("\n".join(history.world.log).encode())


def test_the_histories_are_worth_it() -> None:
    """Jobs come to good and bad ends, nodes are lost and cards evicted: a simulation in which nothing happens proves nothing."""
    ends: set[str] = set()
    for seed in range(4):
        checkers = run(seed).checkers
        ends |= {ended.state for ended in checkers.jobs.ended.values()}
    assert ends == {"succeeded", "failed", "cancelled", "expired"}
