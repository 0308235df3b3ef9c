"""What monitor answers: questions that only read."""

from gpuyard_contracts.messages.asks import GpusAskV1, GpusReplyV1, IncidentsAskV1, IncidentsReplyV1
from gpuyard_runtime.service import Reading

from gpuyard_monitor import mapping
from gpuyard_monitor.domain.rules import Rules
from gpuyard_monitor.store import INCIDENTS, MonitorStore, incident_of


async def read_gpus(ask: GpusAskV1, reading: Reading[MonitorStore], rules: Rules) -> GpusReplyV1:
    """The last sample of each card, by node. A stale one is named without its values: an old value is not a value."""
    watches = reading.store.watches
    wanted = sorted(watches) if ask.node_id is None else [ask.node_id] if ask.node_id in watches else []
    return GpusReplyV1(
        gpus=tuple(
            mapping.watched_of(node_id, watches[node_id], sample, is_stale=reading.now - watches[node_id].heard_at > rules.fresh)
            for node_id in wanted
            for sample in watches[node_id].samples.values()
        )
    )


async def read_incidents(ask: IncidentsAskV1, reading: Reading[MonitorStore]) -> IncidentsReplyV1:
    """Incidents, the youngest first. What is open is in memory; what is over is read from the database, where there is one."""
    if not ask.open_only and reading.db is not None:
        return mapping.incidents_reply(map(incident_of, await reading.db.fetch(INCIDENTS, ask.node_id, ask.open_only, ask.limit)))
    rows = [row for row in reading.store.incidents.values() if ask.node_id in (None, row.node_id)]
    rows.sort(key=lambda row: (-row.opened_at.timestamp(), row.incident_id))
    return mapping.incidents_reply(rows[: ask.limit])
