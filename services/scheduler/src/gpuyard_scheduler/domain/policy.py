"""The numbers of the scheduling policy, as data: no decision has a constant of its own."""

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from gpuyard_scheduler.domain.scoring import Weights

PRIORITY_RANK = MappingProxyType({"high": 2, "normal": 1, "low": 0})
"""Priority classes; a higher number goes first."""
SPOT_RANK = -1
"""Spot jobs go after all others and yield to them, whatever priority they give themselves."""


def rank_of(priority: str, *, is_spot: bool) -> int:
    """How strong a job is; a higher number goes first."""
    return SPOT_RANK if is_spot else PRIORITY_RANK[priority]


def _promised() -> dict[str, int]:
    return {"gold": 60, "silver": 300, "bronze": 1800}


def _reserve_after() -> dict[str, int]:
    return {"high": 0, "normal": 60, "low": 300}


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How the queue is ordered, what pauses are kept and where patience ends. Seconds unless the name says otherwise.

    - `weights`: of the terms that tell places from each other, see :mod:`gpuyard_scheduler.domain.scoring`.
    - `promised_wait`: by SLA class; urgency is waited / promised in quarters, at most `urgency_cap` of them: beyond it shares decide.
    - `reserve_after`: by priority class, how long a head waits before room is kept for it; `replan`: how long such a plan is trusted, and
      how rarely one is made for each kind of card; `reserve_nodes`: how many nodes it looks at; `start_slack`: from a plan to running.
    - `preempt`: whose lower priorities a job may evict: nobody's, its own tenant's, or the whole fleet's (never against a guarantee). Spot
      and spare jobs yield, and guarantees are reclaimed, in any case but "none". `min_run`: nobody is evicted before having run so long,
      spot jobs `min_run_spot`; `claims_per_cycle`: for so many jobs victims are looked for in one cycle.
    - `starts_per_cycle`: at most so many jobs are planned at once; the others follow in the next unit.
    - `told_per_second` and `told_depth`: how many changes of waiting reasons are said, and how deep in each line.
    - `parked`: how long a request of a tenant that was never heard of is kept before it is rejected: the tenant's state may be on its way.
    - `most_moves`: what merely happened to a job (a sick card, a lost node) moves it so often; a job whose processes vanish unseen may be
      what ends them and whatever watches them, its neighbours' included: `most_moves_of_vanishing`.
    - `settle`: how long the fleet's shape must have stood still before a request is rejected because it could never fit, and how long after
      a start no waiting reasons are said.
    """

    weights: Weights = field(default_factory=Weights)
    promised_wait: dict[str, int] = field(default_factory=_promised)
    urgency_cap: int = 16
    reserve_after: dict[str, int] = field(default_factory=_reserve_after)
    replan: int = 5
    reserve_nodes: int = 512
    start_slack: int = 10
    preempt: Literal["none", "tenant", "fleet"] = "tenant"
    min_run: int = 60
    min_run_spot: int = 10
    claims_per_cycle: int = 4
    starts_per_cycle: int = 500
    told_per_second: int = 100
    told_depth: int = 100
    retry_first: int = 1
    retry_longest: int = 300
    move_longest: int = 60
    refused_first_ms: int = 200
    refused_longest_ms: int = 30_000
    most_moves: int = 50
    most_moves_of_vanishing: int = 5
    most_start_failures: int = 3
    resend: int = 30
    parked: int = 5
    most_parked: int = 1000
    settle: int = 3

    def retry_pause_ms(self, failures: int) -> int:
        """The pause before the try after this many failures (1, 2, …): doubling."""
        return doubling(self.retry_first * 1000, failures, self.retry_longest * 1000)

    def move_pause_ms(self, moves: int) -> int:
        """The pause before the job goes on elsewhere: none the first time, then doubling from a second."""
        return 0 if moves <= 1 else doubling(1000, moves - 1, self.move_longest * 1000)

    def refused_pause_ms(self, refusals: int) -> int:
        """The pause after this many refused plans in a row."""
        return doubling(self.refused_first_ms, refusals, self.refused_longest_ms)


def doubling(first: int, times: int, longest: int) -> int:
    """`first` for the first time, doubled for each further one, at most `longest`."""
    return min(first << min(max(times - 1, 0), 40), longest)
