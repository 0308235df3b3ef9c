"""Nodes that fall silent, telemetry that stays away, and what is shown of it all."""

from gpuyard_contracts.messages.asks import GpusAskV1, IncidentsAskV1
from gpuyard_contracts.messages.node import TelemetryV1
from gpuyard_monitor.metrics import gauges

from tests.unit.monitor.monitor_world import Fleet, closed, enrolled, harness, lost, opened, sample, status


def test_a_silent_node_is_an_incident_until_it_is_heard_again() -> None:
    h = harness()
    assert opened(h.feed(status("unknown"))) == [("node-silent", None, "none")]
    assert h.feed(status("lost", "unknown", after_seconds=17)) == []
    assert closed(h.feed(status("ready", "lost", after_seconds=60))) == [("node-silent", None)]


def test_a_status_that_comes_late_changes_nothing() -> None:
    h = harness()
    h.feed(status("ready", "unknown", after_seconds=60))
    assert h.feed(status("unknown", after_seconds=10)) == []


def test_telemetry_that_stays_away_from_a_node_that_is_heard_is_an_incident() -> None:
    h = harness()
    for number in range(4):
        h.feed(enrolled((f"GPU-{number}", "T4"), node_id=f"n{number}"))
    nodes = [Fleet(h, f"n{number}") for number in range(4)]
    said = []
    for _ in range(20):
        for node in nodes[1:]:
            node.tell(sample(), seconds=0.7)
        said += h.tick("look")
    assert opened(said) == [("telemetry-stale", None, "none")]
    assert closed(nodes[0].tell(sample())) == [("telemetry-stale", None)]


def test_if_much_of_the_fleet_tells_nothing_it_is_we_who_do_not_hear() -> None:
    h = harness()
    for number in range(3):
        h.feed(enrolled((f"GPU-{number}", "T4"), node_id=f"n{number}"))
    h.clock.advance(600)
    assert h.tick("look") == []


def test_a_silent_node_is_not_blamed_for_telemetry_too() -> None:
    h = harness()
    h.feed(enrolled(("GPU-a", "T4")), status("unknown"))
    h.clock.advance(600)
    assert h.tick("look") == []


def test_the_time_before_our_own_start_is_nobodys_silence() -> None:
    h = harness()
    h.feed(enrolled(("GPU-a", "T4")))
    h.clock.advance(600)
    h.restart()
    assert h.tick("look") == []
    h.clock.advance(31)
    assert opened(h.tick("look")) == [("telemetry-stale", None, "none")]


def test_an_old_sample_is_marked_stale_and_its_values_are_not_repeated() -> None:
    """B45: during a hang the last values are dropped, not served for ever."""
    h = harness()
    Fleet(h).tell(sample(61))
    (fresh,) = h.ask(GpusAskV1()).gpus
    assert (fresh.is_stale, fresh.sample.temperature_c) == (False, 61)
    h.clock.advance(11)
    (stale,) = h.ask(GpusAskV1(node_id="n1")).gpus
    assert (stale.is_stale, stale.sample.temperature_c) == (True, None)
    h.tick("look")
    assert not any(name.startswith("DCGM") for name in gauges(h.store))


def test_one_bad_card_never_hides_the_others() -> None:
    """B45: one card complete, one without ECC, one lost."""
    h = harness()
    h.feed(enrolled(("GPU-a", "A100-80GB"), ("GPU-b", "T4"), ("GPU-c", "T4")))
    Fleet(h).tell(sample(50, ecc_uncorrectable=0, power_mw=61_500), sample(51, "GPU-b"), lost("GPU-c"))
    shown = gauges(h.store)
    a = (("gpu", "0"), ("UUID", "GPU-a"), ("modelName", "A100-80GB"), ("Hostname", "n1"))
    b = (("gpu", "1"), ("UUID", "GPU-b"), ("modelName", "T4"), ("Hostname", "n1"))
    assert shown["DCGM_FI_DEV_GPU_TEMP"] == {a: 50, b: 51}
    assert shown["DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"] == {a: 0}
    assert shown["DCGM_FI_DEV_POWER_USAGE"] == {a: 61.5}
    assert "DCGM_FI_DEV_SM_CLOCK" not in shown


def test_a_value_that_cannot_be_never_reaches_an_average_or_a_rule() -> None:
    """B44: the agent drops it; what comes through nevertheless is refused as a whole and the last good sample stays."""
    h = harness()
    Fleet(h).tell(sample(50, utilization_percent=13))
    bad = b'{"gpu_uuid": "GPU-a", "utilization_percent": 4294967295}'
    body = b'{"node_id": "n1", "boot_id": "b1", "sequence": 9, "at": "2030-01-01T12:00:09Z", "gpus": [%b]}' % bad
    h.feed_raw(TelemetryV1.SUBJECT.format(node_id="n1"), body)
    assert len(h.dlq) == 1
    assert h.ask(GpusAskV1()).gpus[0].sample.utilization_percent == 13


def test_xids_are_counters_under_our_own_name() -> None:
    h = harness()
    Fleet(h).health("xid", xid=31)
    labels = (("node", "n1"), ("gpu", "GPU-a"), ("xid", "31"), ("class", "application"))
    assert gauges(h.store)["monitor_xids"] == {labels: 1}


def test_open_incidents_are_told_the_youngest_first() -> None:
    h = harness()
    node = Fleet(h)
    node.health("xid", xid=79)
    h.clock.advance(5)
    node.health("gpu-lost", "GPU-b")
    told = h.ask(IncidentsAskV1()).incidents
    assert [(row.kind, row.gpu_uuid) for row in told] == [("gpu-lost", "GPU-b"), ("xid-fatal", "GPU-a")]
    assert h.ask(IncidentsAskV1(node_id="n2")).incidents == ()
    assert len(h.ask(IncidentsAskV1(limit=1)).incidents) == 1
