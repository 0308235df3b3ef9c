"""What api owns and tells: tenants with what they may use (``TENANTS``, last per subject)."""

from typing import Annotated, ClassVar

from pydantic import Field

from gpuyard_contracts.envelope import Payload
from gpuyard_contracts.types import Line, SlaClass, TenantId


class TenantStateV1(Payload):
    """A tenant as the other services need it. A quota of None is no limit; 0 is nothing."""

    SUBJECT: ClassVar[str] = "gpuyard.state.tenant.v1.{tenant}"

    tenant: TenantId
    version: int
    name: Line
    sla: SlaClass = "bronze"
    weight: Annotated[int, Field(ge=0, le=1_000_000)] = 100
    """Share of the fleet against the others' weights; 0 runs only on what nobody else wants."""
    quota_gpu_milli: Annotated[int, Field(ge=0)] | None = None
    quota_gpu_memory_mib: Annotated[int, Field(ge=0)] | None = None
    guarantee_gpu_milli: Annotated[int, Field(ge=0)] = 0
    """What the tenant can always have; what it holds above that is borrowed and may be taken back by those who are below theirs."""
    max_waiting: Annotated[int, Field(ge=0)] = 10_000
    max_requests_per_minute: Annotated[int, Field(ge=0)] = 60_000
    is_suspended: bool = False
