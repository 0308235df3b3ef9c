"""What a decision is made on."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuyard_scheduler.domain.fleet import Fleet
from gpuyard_scheduler.domain.lives import Lives
from gpuyard_scheduler.domain.model import Reservation, Slot, Tenant
from gpuyard_scheduler.domain.queue import Queue
from gpuyard_scheduler.domain.quota import Usage
from gpuyard_scheduler.domain.scoring import Scoring

DEFAULT_SCORING = Scoring()


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything a decision depends on. `reservations` are the last plan's; `reservations_version` changes with them."""

    now_ms: int
    fleet: Fleet
    queue: Queue
    tenants: Mapping[str, Tenant]
    usage: Usage
    lives: Lives = field(default_factory=Lives)
    reservations: Mapping[Slot, Reservation] = field(default_factory=dict[Slot, Reservation])
    reservations_version: int = 0
    is_blind: bool = False
    scoring: Scoring = DEFAULT_SCORING
