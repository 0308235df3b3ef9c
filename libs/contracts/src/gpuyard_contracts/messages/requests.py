"""What tenants (and api, on their behalf) put on ``REQUESTS``. Nothing here is trusted: the tenant is the subject's."""

from typing import ClassVar

from pydantic import ConfigDict

from gpuyard_contracts.envelope import Payload
from gpuyard_contracts.spec import JobSpec
from gpuyard_contracts.types import JobId, Reason, RequestId, TenantId


class JobSubmitV1(Payload):
    """A job is asked for. Its id is ``job_id_of(tenant, request_id)``; without a `request_id` the message's id is taken.

    The same `request_id` again is the same request: it makes no second job.
    """

    SUBJECT: ClassVar[str] = "gpuyard.req.{tenant}.job.submit.v1"
    model_config = ConfigDict(frozen=True, extra="forbid")

    tenant: TenantId
    spec: JobSpec
    request_id: RequestId | None = None


class JobCancelV1(Payload):
    """An end is asked for. A job that has ended already stays as it is."""

    SUBJECT: ClassVar[str] = "gpuyard.req.{tenant}.job.cancel.v1"
    model_config = ConfigDict(frozen=True, extra="forbid")

    tenant: TenantId
    job_id: JobId
    reason: Reason = ""
    by: str = "tenant"
    """Who asked: ``tenant``, or ``operator`` where api lets an operator act."""
