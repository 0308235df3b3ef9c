"""What billing is told from outside."""

from typing import Annotated

from gpuyard_runtime.settings import ServiceSettings
from pydantic import Field


class BillingSettings(ServiceSettings):
    """Billing's own settings; prefix ``GPUYARD_``."""

    unit_size: Annotated[int, Field(ge=1, le=5000)] = 1000
    """Larger than elsewhere: nobody waits for billing, and ticks of one node that are folded together cost the database one write."""

    billing_settle_seconds: Annotated[float, Field(gt=0, le=86_400)] = 60.0
    """How long an allocation runs on before it is billed again up to its last confirmed instant."""
