"""Incidents on a real PostgreSQL: kept over a restart, told when they are over, once for each fault."""

import asyncpg
import pytest
from gpuyard_contracts.messages.asks import IncidentsAskV1
from gpuyard_contracts.messages.node import HealthEventV1
from gpuyard_monitor.app import service
from gpuyard_monitor.settings import MonitorSettings
from gpuyard_monitor.store import MonitorStore

from tests.support.on_postgres import OnPostgres, on_postgres
from tests.unit.monitor.monitor_world import START, enrolled, status

Monitor = OnPostgres[MonitorStore]


def health(kind: str, gpu: str = "GPU-a", xid: int | None = None) -> HealthEventV1:
    return HealthEventV1.model_validate({"node_id": "n1", "boot_id": "b1", "kind": kind, "gpu_uuid": gpu, "xid": xid, "at": START})


def test_incidents_and_cards_outlive_a_restart_and_are_told_when_they_are_over(dsn: str) -> None:
    async def story(monitor: Monitor) -> None:
        await monitor.feed(enrolled(("GPU-a", "T4")), health("gpu-lost"), status("unknown"))
        before = await monitor.ask(IncidentsAskV1())
        await monitor.restart()
        assert await monitor.ask(IncidentsAskV1()) == before
        assert monitor.store.node("n1").cards[0].model == "T4"
        monitor.clock.advance(60)
        await monitor.feed(health("gpu-back"))
        assert [row.kind for row in (await monitor.ask(IncidentsAskV1())).incidents] == ["node-silent"]
        told = (await monitor.ask(IncidentsAskV1(open_only=False))).incidents
        assert {row.kind: row.closed_at is None for row in told} == {"node-silent": True, "gpu-lost": False}
        assert len((await monitor.ask(IncidentsAskV1(open_only=False, limit=1))).incidents) == 1
        assert (await monitor.ask(IncidentsAskV1(open_only=False, node_id="n2"))).incidents == ()
        assert monitor.errors == []

    on_postgres(service(MonitorSettings()), dsn, START, story)


def test_a_fault_that_ends_and_comes_again_in_one_unit_is_two_incidents(dsn: str) -> None:
    async def story(monitor: Monitor) -> None:
        await monitor.feed(health("gpu-lost"))
        monitor.clock.advance(60)
        again = health("gpu-lost").model_copy(update={"at": monitor.clock.now()})
        await monitor.feed(health("gpu-back"), again)
        told = (await monitor.ask(IncidentsAskV1(open_only=False))).incidents
        assert [row.closed_at is None for row in told] == [True, False]
        assert monitor.errors == []

    on_postgres(service(MonitorSettings()), dsn, START, story)


def test_the_database_holds_one_open_incident_for_each_fault(dsn: str) -> None:
    async def story(monitor: Monitor) -> None:
        await monitor.feed(health("gpu-lost"))
        others = "kind, node_id, gpu_uuid, action, evidence, boot_id, opened_at, closed_at, closing_evidence"
        copy = f"insert into incidents (incident_id, {others}) select 'inc-other', {others} from incidents"
        with pytest.raises(asyncpg.UniqueViolationError, match="incidents_one_open_per_fault"):
            await monitor.db.execute(copy)

    on_postgres(service(MonitorSettings()), dsn, START, story)
