"""What the design asks of gpuyard on two cores of one machine, as data: shown beside the figures, never asserted."""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Budget:
    """`at_least` must be reached, `aim` is wanted. `is_most`: smaller is better."""

    at_least: float
    aim: float | None = None
    is_most: bool = False

    def verdict(self, value: float) -> str:
        """How a value stands."""
        if self.aim is not None and self._reaches(value, self.aim):
            return "aim reached"
        return "within budget" if self._reaches(value, self.at_least) else "BELOW BUDGET"

    def _reaches(self, value: float, wanted: float) -> bool:
        return value <= wanted if self.is_most else value >= wanted


BUDGETS: tuple[tuple[str, Budget], ...] = (
    (r"submit_to_running\.idle\.p50_ms", Budget(40, 15, is_most=True)),
    (r"submit_to_running\.idle\.p99_ms", Budget(120, is_most=True)),
    (r"job_lives\.per_s", Budget(200, 500)),
    (r"decide\.n10000\.placements_per_s", Budget(2_000, 20_000)),
    (r"openb\.default\.allocated_percent", Budget(95.88)),
    (r"openb\.multigpu20\.allocated_percent", Budget(96.29)),
    (r"openb\.gpushare40\.allocated_percent", Budget(94.43)),
    (r"openb\.gpuspec10\.allocated_percent", Budget(95.69)),
    (r"ledger\.ticks_per_s", Budget(3_000, 10_000)),
    (r"telemetry\.one_core_every_2_s\.gpus", Budget(10_000, 40_000)),
    (r"restart\.[a-z-]+\.ready_ms", Budget(3_000, 1_000, is_most=True)),
)
"""By the form of the key."""


def budget_of(key: str) -> Budget | None:
    """The budget of a figure; None where the design names none."""
    return next((budget for form, budget in BUDGETS if re.fullmatch(form, key)), None)
