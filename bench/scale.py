"""How much is measured: the numbers of a full and of a quick run, as data."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scale:
    """Counts of one run. `rounds`: the middle one of so many is reported. `past_jobs`: so many are in the past when services restart.

    `openb_…`: how many variants of the trace, seeds of each, mean lifetimes, loads in per cent, and policies it is held against."""

    rounds: int
    limit_messages: int
    hop_events: int
    ledger_ticks: int
    telemetry_messages: int
    decide_cycles: int
    idle_jobs: int
    steady_seconds: int
    life_jobs: int
    past_jobs: int
    openb_variants: int
    openb_seeds: int
    openb_churn_seeds: int
    openb_lifetimes: float
    openb_loads: tuple[int, ...]
    openb_policies: tuple[str, ...]


FULL = Scale(
    rounds=3,
    limit_messages=20_000,
    hop_events=10_000,
    ledger_ticks=10_000,
    telemetry_messages=4_000,
    decide_cycles=40,
    idle_jobs=200,
    steady_seconds=20,
    life_jobs=3_000,
    past_jobs=100_000,
    openb_variants=4,
    openb_seeds=10,
    openb_churn_seeds=1,
    openb_lifetimes=4.0,
    openb_loads=(85, 92, 97),
    openb_policies=("", "best_fit.", "lightest_load."),
)

QUICK = Scale(
    rounds=1,
    limit_messages=4_000,
    hop_events=2_000,
    ledger_ticks=2_000,
    telemetry_messages=1_000,
    decide_cycles=8,
    idle_jobs=30,
    steady_seconds=4,
    life_jobs=500,
    past_jobs=5_000,
    openb_variants=1,
    openb_seeds=1,
    openb_churn_seeds=1,
    openb_lifetimes=2.0,
    openb_loads=(97,),
    openb_policies=("", "best_fit."),
)
