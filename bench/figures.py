"""Figures: collected under dotted keys, printed as a table, written as one flat JSON object."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Figures:
    """The figures of one run. Units are the last part of the key."""

    values: dict[str, float] = field(default_factory=dict[str, float])

    def put(self, key: str, value: float) -> None:
        """Keep and print one figure."""
        self.values[key] = round(value, 3)
        print(f"  {key:<52} {_shown(value):>14}", flush=True)

    def write(self, path: Path) -> None:
        """Write them as one flat object."""
        path.write_text(json.dumps(self.values, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _shown(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.2f}"


def percentile(values: Sequence[float], percent: float) -> float:
    """The value below which `percent` of the values lie (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, round(percent / 100 * len(ordered) + 0.5) - 1))]


def median(values: Sequence[float]) -> float:
    """The middle one: one slow round of a busy machine does not count."""
    return statistics.median(values)
