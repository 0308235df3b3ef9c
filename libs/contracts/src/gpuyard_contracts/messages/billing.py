"""What billing says: money that was posted (``EVT_BILLING``)."""

from typing import ClassVar

from gpuyard_contracts.envelope import Payload
from gpuyard_contracts.types import AllocationId, Instant, JobId, Micros, Millis, TenantId


class LedgerPostedV1(Payload):
    """An allocation's money up to `until` is in the ledger. `is_final`: nothing more will come of it but corrections."""

    SUBJECT: ClassVar[str] = "gpuyard.evt.billing.ledger.posted.v1.{tenant}.{job_id}"

    tenant: TenantId
    job_id: JobId
    allocation_id: AllocationId
    transaction_id: str
    amount_micros: Micros
    total_micros: Micros
    gpu_ms: Millis
    currency: str
    price_version: int
    until: Instant
    is_final: bool
