"""Figures: collected under dotted keys, printed as a table beside their budgets, written as one flat JSON object."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.budgets import budget_of


@dataclass
class Figures:
    """The figures of one run. Units are the last part of the key."""

    values: dict[str, float] = field(default_factory=dict[str, float])

    def put(self, key: str, value: float) -> None:
        """Keep and print one figure."""
        self.values[key] = round(value, 3)
        print(f"  {key:<56} {_shown(value):>14}", flush=True)

    def put_latencies(self, key: str, milliseconds: Sequence[float]) -> None:
        """Keep `<key>.p50_ms` and `<key>.p99_ms`."""
        self.put(f"{key}.p50_ms", percentile(milliseconds, 50))
        self.put(f"{key}.p99_ms", percentile(milliseconds, 99))

    def write(self, path: Path) -> None:
        """Write them as one flat object."""
        path.write_text(json.dumps(self.values, indent=1, sort_keys=True) + "\n", encoding="utf-8")

    def table(self) -> str:
        """All of them, with what the design asks for at least and aims at, and how each stands."""
        rows = [("figure", "measured", "at least", "aim", "")]
        rows += [self._row(key, value) for key, value in self.values.items()]
        wide = [max(len(row[column]) for row in rows) for column in range(4)]
        lines = [f"{row[0]:<{wide[0]}}  {row[1]:>{wide[1]}}  {row[2]:>{wide[2]}}  {row[3]:>{wide[3]}}  {row[4]}".rstrip() for row in rows]
        return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])

    def _row(self, key: str, value: float) -> tuple[str, str, str, str, str]:
        budget = budget_of(key)
        if budget is None:
            return key, _shown(value), "", "", ""
        return key, _shown(value), _shown(budget.at_least), "" if budget.aim is None else _shown(budget.aim), budget.verdict(value)


def _shown(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:,.2f}"


def percentile(values: Sequence[float], percent: float) -> float:
    """The value below which `percent` of the values lie (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, round(percent / 100 * len(ordered) + 0.5) - 1))]


def median(values: Sequence[float]) -> float:
    """The middle one: one slow round of a busy machine does not count."""
    return statistics.median(values)
