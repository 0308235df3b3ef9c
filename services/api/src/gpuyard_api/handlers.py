"""The projection: what is remembered of every event that a service tells.

Each event becomes one row of `job_events`; the scheduler's move a job's present state by :mod:`gpuyard_api.domain.states`, monitor's
open and close incidents. Deliveries may repeat (the inbox and this unit commit together) and may come late (a version decides).
"""

from typing import Any

from gpuyard_contracts.envelope import Envelope
from gpuyard_contracts.messages.monitor import IncidentClosedV1, IncidentOpenedV1
from gpuyard_contracts.messages.placement import NodeStateV1
from gpuyard_contracts.messages.scheduler import JobQueuedV1
from gpuyard_runtime.service import Tx

from gpuyard_api import mapping
from gpuyard_api.domain import states
from gpuyard_api.domain.model import Event
from gpuyard_api.hub import Hub
from gpuyard_api.store import ApiStore

EVENTS = "job_events"


def on_told(event: Envelope[Any], tx: Tx[ApiStore]) -> Event:
    """Keep the event. Twice: the inbox. Late: it is listed when it came and carries its own time."""
    row = mapping.event_row(event, tx.store.next_number(EVENTS))
    tx.store.events.add(row)
    return row


def on_job_told(event: Envelope[Any], tx: Tx[ApiStore]) -> None:
    """Move the job's present state. Twice: the inbox. Late: older than the job's version, or after its end, changes nothing."""
    on_told(event, tx)
    known = tx.store.jobs.get(event.data.job_id) or mapping.job_of_stranger(event)
    moved = states.after(known, mapping.change_of(event, tx.sequence))
    if moved is not known:
        tx.store.jobs.put(moved)


def on_job_queued(event: Envelope[JobQueuedV1], tx: Tx[ApiStore]) -> None:
    """Introduce the job; it may be known from its own submission here, or from later events. Twice, Late: as in `on_job_told`."""
    on_told(event, tx)
    data = event.data
    known = tx.store.jobs.get(data.job_id)
    if known is None:
        known = mapping.job_of_spec(data.job_id, data.tenant, data.spec, data.submitted_at)
        tx.store.asks.add(mapping.ask_of(data.job_id, data.tenant, data.spec, data.submitted_at))
    elif known.version > 0:
        tx.store.asks.add(mapping.ask_of(data.job_id, data.tenant, data.spec, data.submitted_at))
        spec = data.spec
        known = states.introduced(known, spec.name, data.submitted_at, spec.ranks, spec.priority, mapping.gpu_json(spec))
    tx.store.jobs.put(states.after(known, mapping.change_of(event, tx.sequence)))


def on_incident_opened(event: Envelope[IncidentOpenedV1], tx: Tx[ApiStore]) -> None:
    """Show the fault. Twice: the inbox. Late: one that is over already stays over."""
    on_told(event, tx)
    tx.store.incidents.put(mapping.incident_opened(event.data, tx.store.incidents.get(event.data.incident_id)))


def on_incident_closed(event: Envelope[IncidentClosedV1], tx: Tx[ApiStore]) -> None:
    """Show that it is over. Twice: the inbox. Late: its opening may still come and adds what it saw."""
    on_told(event, tx)
    tx.store.incidents.put(mapping.incident_closed(event.data, tx.store.incidents.get(event.data.incident_id)))


def on_node_state(event: Envelope[NodeStateV1], tx: Tx[ApiStore]) -> None:
    """Know the node as placement knows it. Twice, Late: the highest version wins."""
    data = event.data
    known = tx.store.nodes.get(data.node_id)
    if known is not None and known.version > data.version:
        return
    if data.is_removed:
        tx.store.nodes.pop(data.node_id, None)
    else:
        tx.store.nodes[data.node_id] = data


class Broadcast:
    """Hands what a unit committed to those who watch, after the commit and in its order."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def after_unit(self, tx: Tx[ApiStore]) -> None:
        """Note what was told in this unit."""
        if tx.store.events.added:
            told = tuple(tx.store.events.added)

            async def publish() -> None:
                self._hub.publish(told)

            tx.after_commit(publish)
