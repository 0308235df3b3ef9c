"""What monitor is told from outside: its rules."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Literal

from gpuyard_contracts.models import ANY_MODEL
from gpuyard_runtime.settings import ServiceSettings
from pydantic import BaseModel, ConfigDict, Field, model_validator

from gpuyard_monitor.domain.rules import Heat, Rules

Degrees = Annotated[int, Field(ge=0, le=150)]
Samples = Annotated[int, Field(ge=1, le=1000)]
Seconds = Annotated[float, Field(ge=0, le=86_400)]


class HeatSettings(BaseModel):
    """Thresholds of one model, as JSON: ``{"open_c": 90, "close_c": 80}``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    open_c: Degrees = 85
    close_c: Degrees = 75
    open_samples: Samples = 3
    close_samples: Samples = 5

    @model_validator(mode="after")
    def _has_room(self) -> "HeatSettings":
        if self.close_c > self.open_c:
            raise ValueError("close_c must not be above open_c")
        return self


class MonitorSettings(ServiceSettings):
    """Monitor's own settings; prefix ``GPUYARD_``. Mappings are JSON."""

    monitor_heat: Mapping[str, HeatSettings] = {}
    """Thresholds by model name, such as ``{"*": {"open_c": 85}, "T4": {"open_c": 80, "close_c": 70}}``."""
    monitor_xid_actions: Mapping[int, Literal["none", "cordon", "evict"]] = {}
    """What is done about single XIDs where it shall not be what the table says."""
    monitor_lost_samples: Samples = 3
    monitor_clean_samples: Samples = 5
    monitor_boot_grace_seconds: Seconds = 30.0
    monitor_fresh_seconds: Seconds = 10.0
    monitor_silent_seconds: Seconds = 30.0


def rules_of(settings: MonitorSettings) -> Rules:
    """The rules that these settings make."""
    heat = {
        name: Heat(found.open_c, found.close_c, found.open_samples, found.close_samples) for name, found in settings.monitor_heat.items()
    }
    return Rules(
        heat={ANY_MODEL: Heat()} | heat,
        xid_actions=dict(settings.monitor_xid_actions),
        lost_samples=settings.monitor_lost_samples,
        clean_samples=settings.monitor_clean_samples,
        boot_grace=timedelta(seconds=settings.monitor_boot_grace_seconds),
        fresh=timedelta(seconds=settings.monitor_fresh_seconds),
        silent=timedelta(seconds=settings.monitor_silent_seconds),
    )
