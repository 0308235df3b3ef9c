"""What tenants ask, judged as if it came from strangers: whose request it is, the subject says."""

import re
from typing import Any

from gpuyard_contracts.envelope import MAX_BODY_BYTES, Envelope
from gpuyard_contracts.messages.requests import JobCancelV1, JobSubmitV1
from gpuyard_contracts.types import TenantId, job_id_of
from gpuyard_runtime.service import Tx, Unreadable
from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from gpuyard_scheduler import acts
from gpuyard_scheduler.domain.ending import Ending
from gpuyard_scheduler.mapping.rows import Request
from gpuyard_scheduler.store import SchedulerStore

_SUBMIT = re.compile(r"gpuyard\.req\.([^.]+)\.job\.submit\.v[0-9]+")
_REQUEST_ID = re.compile(r"[!-~]{1,128}")
_TENANT: TypeAdapter[str] = TypeAdapter(TenantId)


def on_job_submitted(event: Envelope[JobSubmitV1], tx: Tx[SchedulerStore]) -> None:
    """Queue the job, or reject the request.

    Twice: the job's id is computed from tenant and request id; a known one is ignored, whatever the message's id. Late: no matter.
    """
    data, store = event.data, tx.store
    request_id = data.request_id or event.id
    job_id = job_id_of(data.tenant, request_id)
    if job_id in store.requests or job_id in store.parked:
        return
    request = Request(job_id, data.tenant, request_id, data.spec, store.next_instant(tx.now), tx.traceparent)
    tenant = store.tenants.get(data.tenant)
    if tenant is not None:
        acts.take(request, tenant, tx)
    elif len(store.parked) < store.policy.most_parked:
        store.parked.put(request)  # its tenant may be new, and the tenant's state on its way
    else:
        acts.reject(request, "tenant-unknown", f"there is no tenant {data.tenant!r}", tx)


def on_job_cancelled(event: Envelope[JobCancelV1], tx: Tx[SchedulerStore]) -> None:
    """End a waiting job, stop a live one.

    Twice, and late: what is stopping or over stays as it is. Another tenant's job is not touched, nor is it told that there is one.
    """
    data, store = event.data, tx.store
    parked = store.parked.get(data.job_id)
    if parked is not None and parked.tenant == data.tenant:
        store.parked.drop(data.job_id)
        acts.reject(parked, "tenant-unknown", "cancelled before its tenant was known", tx)
    job = store.jobs.get(data.job_id)
    if job is None or job.tenant != data.tenant:
        return
    reason = "cancelled-by-operator" if data.by == "operator" else "cancelled-by-tenant"
    if job.state == "queued":
        acts.finish(job, Ending("cancel", reason, data.reason), tx.now, tx)
    else:
        acts.stop(job, reason, data.reason, tx)


def on_malformed(found: Unreadable, tx: Tx[SchedulerStore]) -> None:
    """Answer a job request that cannot be read with a rejection, where its tenant can be read from the subject.

    A request whose id is known already is not answered: it would look as if the job had been rejected.
    """
    tenant = _tenant_of(found.subject)
    if tenant is None:
        return
    body = _object(found.body)
    given = body.get("request_id")
    candidates = (given, found.event_id, f"{found.stream}#{found.sequence}")
    request_id = next(text for text in candidates if isinstance(text, str) and _REQUEST_ID.fullmatch(text))
    job_id = job_id_of(tenant, request_id)
    if job_id in tx.store.requests or job_id in tx.store.parked:
        return
    request = Request(job_id, tenant, request_id, None, tx.now, None)
    acts.reject(request, "malformed", f"{found.reason}: {found.detail}", tx, name=_name_of(body))


def on_given_up(event: Envelope[Any], tx: Tx[SchedulerStore]) -> None:
    """Answer a job request that this service failed on: nobody waits for ever for a job that will never be."""
    if not isinstance(event.data, JobSubmitV1):
        return
    request_id = event.data.request_id or event.id
    job_id = job_id_of(event.data.tenant, request_id)
    if job_id in tx.store.requests or job_id in tx.store.parked:
        return
    request = Request(job_id, event.data.tenant, request_id, None, tx.now, tx.traceparent)
    detail = "gpuyard failed on this request; it is kept for the operators, who find it among the dead letters"
    acts.reject(request, "internal-error", detail, tx, name=event.data.spec.name)


def _tenant_of(subject: str) -> str | None:
    matched = _SUBMIT.fullmatch(subject)
    if matched is None:
        return None
    try:
        return _TENANT.validate_python(matched[1])
    except ValidationError:
        return None


def _object(body: bytes) -> dict[str, Any]:
    if len(body) > MAX_BODY_BYTES:
        return {}
    try:
        content: Any = from_json(body, allow_inf_nan=False)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _name_of(body: dict[str, Any]) -> str:
    """The job's name as far as it can be shown."""
    spec = body.get("spec")
    name: Any = spec.get("name") if isinstance(spec, dict) else None
    return "".join(letter for letter in name[:120] if letter.isprintable()) if isinstance(name, str) else ""
