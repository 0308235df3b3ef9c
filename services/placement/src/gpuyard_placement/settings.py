"""What placement is told from outside: ``GPUYARD_…`` variables beside those of every service."""

from datetime import timedelta
from typing import Annotated

from gpuyard_runtime.settings import ServiceSettings
from pydantic import Field, model_validator

from gpuyard_placement.domain.model import Policy


class PlacementSettings(ServiceSettings):
    """Leases and limits. A lease must be longer than a node may be silent before it is `unknown`."""

    lease_ms: Annotated[int, Field(ge=1000, le=600_000)] = 15_000
    unknown_after_seconds: Annotated[float, Field(gt=0)] = 5.0
    lost_margin_seconds: Annotated[float, Field(ge=0)] = 2.0
    drain_at_once: Annotated[int, Field(ge=1)] = 8
    keep_released_days: Annotated[float, Field(gt=0)] = 30.0
    rendezvous_first_port: Annotated[int, Field(ge=1024, le=65535)] = 20_000
    rendezvous_last_port: Annotated[int, Field(ge=1024, le=65535)] = 29_999

    @model_validator(mode="after")
    def _agree(self) -> "PlacementSettings":
        if self.unknown_after_seconds * 1000 >= self.lease_ms:
            raise ValueError("unknown_after_seconds must be shorter than lease_ms")
        if self.rendezvous_first_port > self.rendezvous_last_port:
            raise ValueError("rendezvous_first_port must not be above rendezvous_last_port")
        return self

    def policy(self) -> Policy:
        """The periods and limits as the domain knows them."""
        return Policy(
            lease=timedelta(milliseconds=self.lease_ms),
            unknown_after=timedelta(seconds=self.unknown_after_seconds),
            lost_margin=timedelta(seconds=self.lost_margin_seconds),
            drain_at_once=self.drain_at_once,
            keep_released=timedelta(days=self.keep_released_days),
            first_port=self.rendezvous_first_port,
            last_port=self.rendezvous_last_port,
        )
