"""What billing is told from outside."""

from typing import Annotated

from gpuyard_runtime.settings import ServiceSettings
from pydantic import Field


class BillingSettings(ServiceSettings):
    """Billing's own settings; prefix ``GPUYARD_``."""

    billing_settle_seconds: Annotated[float, Field(gt=0, le=86_400)] = 60.0
    """How long an allocation runs on before it is billed again up to its last confirmed instant."""
