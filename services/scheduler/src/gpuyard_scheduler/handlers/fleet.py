"""What is heard of nodes, of placement's sight, and of tenants."""

from dataclasses import replace

from gpuyard_contracts.envelope import Envelope
from gpuyard_contracts.messages.api import TenantStateV1
from gpuyard_contracts.messages.placement import FleetSightChangedV1, NodeStateV1, NodeStatusChangedV1
from gpuyard_runtime.service import Tx

from gpuyard_scheduler import acts
from gpuyard_scheduler.domain.model import Job
from gpuyard_scheduler.mapping import heard, told
from gpuyard_scheduler.mapping.rows import Sight
from gpuyard_scheduler.store import SchedulerStore


def on_node_state(event: Envelope[NodeStateV1], tx: Tx[SchedulerStore]) -> None:
    """Take the node's state in. Twice: nothing changes. Late: a lower version than the known one is ignored."""
    if tx.store.fleet.put(heard.node_facts(event.data)):
        tx.store.shaped_at = tx.now


def on_tenant_state(event: Envelope[TenantStateV1], tx: Tx[SchedulerStore]) -> None:
    """Take the tenant's state in, and its requests that waited for it. Twice: nothing changes. Late: a lower version is ignored."""
    store = tx.store
    tenant = heard.tenant_of(event.data)
    known = store.tenants.get(tenant.tenant)
    if known is not None and tenant.version < known.version:
        return
    store.tenants[tenant.tenant] = tenant
    if not len(store.parked):
        return
    for request in sorted(store.parked.values(), key=lambda row: (row.submitted_at, row.job_id)):
        if request.tenant == tenant.tenant:
            store.parked.drop(request.job_id)
            acts.take(request, tenant, tx)


def on_node_status_changed(event: Envelope[NodeStatusChangedV1], tx: Tx[SchedulerStore]) -> None:
    """Flag the jobs of a silent node; take the flag away when all nodes of a job are heard again. The jobs themselves go on.

    Twice: the flag is as it should be. Late: the next change puts it right.
    """
    data, store = event.data, tx.store
    if data.status == "lost":
        return  # its allocations are released one by one, and that moves the jobs
    for job in list(store.by_node.get(data.node_id)):
        is_unknown = data.status == "unknown" or _has_silent_node(job, store, but=data.node_id)
        if job.is_unknown != is_unknown:
            flagged = replace(job, is_unknown=is_unknown)
            store.jobs.put(flagged)
            tx.say(told.unknown(flagged, data.at), key=job.job_id, traceparent=job.traceparent)


def on_fleet_sight_changed(event: Envelope[FleetSightChangedV1], tx: Tx[SchedulerStore]) -> None:
    """While placement is blind nothing is planned. Twice: as before. Late: older news than the known one are ignored."""
    known = tx.store.sight.get(True)
    if known is None or event.data.at >= known.at:
        tx.store.sight.put(Sight(event.data.is_blind, event.data.at))


def _has_silent_node(job: Job, store: SchedulerStore, but: str) -> bool:
    nodes = (store.fleet.nodes.get(plan.node_id) for plan in job.ranks if plan.node_id != but)
    return any(node is not None and node.facts.status == "unknown" for node in nodes)
