"""The rules, as data: thresholds by model, and how many samples in a row it takes.

Opening and closing have thresholds of their own with room between them (hysteresis), so that a card at the edge does not flap.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from gpuyard_contracts.models import ANY_MODEL, nearest_name

from gpuyard_monitor.domain.model import Action


@dataclass(frozen=True, slots=True)
class Heat:
    """Hot at or above `open_c` for `open_samples` in a row; over when below `close_c` for `close_samples` in a row. Degrees Celsius."""

    open_c: int = 85
    close_c: int = 75
    open_samples: int = 3
    close_samples: int = 5


@dataclass(frozen=True, slots=True)
class Rules:
    """All of them. `heat` is by model name and has one for ``*``; `xid_actions` replaces the table's answer for single XIDs."""

    heat: Mapping[str, Heat] = field(default_factory=lambda: {ANY_MODEL: Heat()})
    xid_actions: Mapping[int, Action] = field(default_factory=dict[int, Action])
    lost_samples: int = 3
    """A card missing for so many samples in a row is lost."""
    clean_samples: int = 5
    """A card there for so many samples in a row is back, and after a reboot it is well."""
    boot_grace: timedelta = timedelta(seconds=30)
    """So long after a boot nothing is made of what comes up late: cards and observers."""
    fresh: timedelta = timedelta(seconds=10)
    """Samples older than that are stale: shown as such, their values not at all."""
    silent: timedelta = timedelta(seconds=30)
    """Telemetry that stays away for so long, from a node that placement hears, is an incident."""

    def heat_of(self, model: str) -> Heat:
        """The thresholds for a card of this model: those of the nearest name, else of ``*``, else the default."""
        name = nearest_name(model, self.heat)
        return Heat() if name is None else self.heat[name]
