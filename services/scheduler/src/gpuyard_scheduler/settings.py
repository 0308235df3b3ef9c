"""What the scheduler is told from outside, beside what every service is told: the numbers of its policy."""

from typing import Annotated, Literal

from gpuyard_runtime.settings import ServiceSettings
from pydantic import Field

from gpuyard_scheduler.domain.policy import Policy
from gpuyard_scheduler.domain.scoring import Weights

Seconds = Annotated[int, Field(ge=0, le=366 * 86400)]
Number = Annotated[int, Field(ge=1, le=1_000_000)]
Weight = Annotated[int, Field(ge=0, le=1_000_000)]


class SchedulerSettings(ServiceSettings):
    """Environment variables ``GPUYARD_…``; what each number does is said at :class:`gpuyard_scheduler.domain.policy.Policy`."""

    promised_wait_gold_seconds: Seconds = 60
    promised_wait_silver_seconds: Seconds = 300
    promised_wait_bronze_seconds: Seconds = 1800
    reserve_after_high_seconds: Seconds = 0
    reserve_after_normal_seconds: Seconds = 60
    reserve_after_low_seconds: Seconds = 300
    preempt: Literal["none", "tenant", "fleet"] = "tenant"
    min_run_seconds: Seconds = 60
    min_run_spot_seconds: Seconds = 10
    starts_per_cycle: Number = 500
    told_per_second: Number = 100
    retry_first_seconds: Seconds = 1
    retry_longest_seconds: Seconds = 300
    most_moves: Number = 50
    resend_seconds: Number = 30
    parked_seconds: Seconds = 5
    settle_seconds: Seconds = 3
    weight_waste: Weight = Weights().waste
    weight_starved: Weight = Weights().starved
    weight_kept: Weight = Weights().kept
    weight_apart: Weight = Weights().apart
    weight_fragment: Weight = Weights().fragment
    weight_pack: Weight = Weights().pack
    weight_spread: Weight = Weights().spread
    score_step: Number = Weights().step

    def policy(self) -> Policy:
        """The policy that these settings make."""
        return Policy(
            weights=Weights(
                waste=self.weight_waste,
                starved=self.weight_starved,
                kept=self.weight_kept,
                apart=self.weight_apart,
                fragment=self.weight_fragment,
                pack=self.weight_pack,
                spread=self.weight_spread,
                step=self.score_step,
            ),
            promised_wait={
                "gold": self.promised_wait_gold_seconds,
                "silver": self.promised_wait_silver_seconds,
                "bronze": self.promised_wait_bronze_seconds,
            },
            reserve_after={
                "high": self.reserve_after_high_seconds,
                "normal": self.reserve_after_normal_seconds,
                "low": self.reserve_after_low_seconds,
            },
            preempt=self.preempt,
            min_run=self.min_run_seconds,
            min_run_spot=self.min_run_spot_seconds,
            starts_per_cycle=self.starts_per_cycle,
            told_per_second=self.told_per_second,
            retry_first=self.retry_first_seconds,
            retry_longest=self.retry_longest_seconds,
            most_moves=self.most_moves,
            resend=self.resend_seconds,
            parked=self.parked_seconds,
            settle=self.settle_seconds,
        )
