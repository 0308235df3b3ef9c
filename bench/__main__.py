"""``python -m bench``: measure gpuyard on this machine; prints a table and writes one flat JSON object.

Three places are used, each only where a figure needs it: this process alone (`decide`), a bare bus and database with single services
(:mod:`bench.lab`), and the whole stack (:mod:`bench.stage`). Everything is on loopback, in temporary folders, and gone afterwards. A
measurement that fails is told, the others are still made, and the exit code is 1.
"""

import argparse
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench import deciding, hop, latency, ledger, limits, lives, packing, restarts, telemetry
from bench.figures import Figures
from bench.lab import a_lab
from bench.scale import FULL, QUICK, Scale
from bench.stage import a_stage


@dataclass(frozen=True, slots=True)
class Measurement:
    """One of them: what its figures' keys begin with, and how it is made. `work` takes figures, the place (if any) and the scale."""

    keys: str
    work: Callable[..., None]

    def is_wanted(self, prefix: str) -> bool:
        """Whether keys with this prefix come from it."""
        return self.keys.startswith(prefix) or prefix.startswith(self.keys)


ALONE = (
    Measurement("decide.", deciding.measure),
    Measurement("openb.", packing.measure),
    Measurement("openb_churn.", packing.measure_churn),
)
IN_THE_LAB = (
    Measurement("limit.", limits.measure),
    Measurement("hop.", hop.measure),
    Measurement("ledger.", ledger.measure),
    Measurement("telemetry.", telemetry.measure),
)
ON_STAGE = (
    Measurement("submit_to_running.", latency.measure),
    Measurement("job_lives.", lives.measure),
    Measurement("restart.", restarts.measure),
)


class Run:
    """One run of what is wanted."""

    def __init__(self, prefix: str, scale: Scale) -> None:
        self.figures = Figures()
        self.failed: list[str] = []
        self._prefix = prefix
        self._scale = scale

    def measure(self, made: Sequence[Measurement], place: Callable[[], Any] | None) -> None:
        """Make the wanted ones of these, in a place of their own."""
        wanted = [found for found in made if found.is_wanted(self._prefix)]
        if not wanted:
            return
        with ExitStack() as opened:
            places = () if place is None else (opened.enter_context(place()),)
            for found in wanted:
                self._one(found, places)

    def _one(self, found: Measurement, places: tuple[Any, ...]) -> None:
        print(f"{found.keys}*", flush=True)
        began = time.monotonic()
        try:
            found.work(self.figures, *places, self._scale)
        except Exception as error:  # the other figures are still wanted
            self.failed.append(f"{found.keys}*: {type(error).__name__}: {error}")
            print(f"  FAILED: {type(error).__name__}: {error}", flush=True)
        print(f"  ({time.monotonic() - began:.0f} s)", flush=True)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure gpuyard on this machine.")
    parser.add_argument("--quick", action="store_true", help="small numbers, about a minute: to see that it works, not to compare")
    parser.add_argument("--only", default="", metavar="PREFIX", help="only figures whose keys begin so, such as job_lives or hop.batch_20")
    parser.add_argument("--past", type=int, metavar="JOBS", help="how many past jobs services restart with")
    parser.add_argument("--out", type=Path, default=Path("bench.json"), metavar="FILE", help="where the figures go (default: bench.json)")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Measure, print, write. Returns the exit code."""
    options = _options(arguments)
    scale = QUICK if options.quick else FULL
    if options.past is not None:
        scale = replace(scale, past_jobs=options.past)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that everything is cleared away
    run = Run(options.only, scale)
    run.measure(ALONE, None)
    run.measure(IN_THE_LAB, a_lab)
    run.measure(ON_STAGE, a_stage)
    if not run.figures.values and not run.failed:
        print(f"no figure's key begins with {options.only!r}")
        return 2
    run.figures.write(options.out)
    print(f"\n{run.figures.table()}\n\nwritten to {options.out}")
    for failed in run.failed:
        print(f"FAILED {failed}")
    return 1 if run.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
