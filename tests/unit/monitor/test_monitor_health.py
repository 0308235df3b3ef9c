"""Health events: XIDs, ECC, lost cards, observers that hang, boots."""

from datetime import timedelta

import pytest
from gpuyard_contracts.messages.monitor import IncidentOpenedV1
from gpuyard_contracts.messages.node import HealthEventV1
from gpuyard_monitor.domain import xid

from tests.unit.monitor.monitor_world import START, Fleet, closed, enrolled, harness, lost, opened, sample


@pytest.mark.parametrize(
    ("number", "action"),
    [(79, "evict"), (48, "evict"), (95, "evict"), (119, "evict"), (109, "evict"), (94, "cordon"), (74, "cordon")],
)
def test_a_fatal_xid_is_an_incident_at_once(number: int, action: str) -> None:
    (event,) = Fleet(harness()).health("xid", xid=number, detail="pid 17")
    assert isinstance(event, IncidentOpenedV1)
    assert (event.kind, event.gpu_uuid, event.action) == ("xid-fatal", "GPU-a", action)
    assert f"XID {number} (" in event.evidence
    assert "pid 17" in event.evidence


@pytest.mark.parametrize("number", [13, 31, 43, 45, 63, 92, 137, 145, 999, 0])
def test_an_application_s_or_an_unknown_xid_is_counted_and_nothing_is_done(number: int) -> None:
    h = harness()
    node = Fleet(h)
    assert node.health("xid", xid=number, count=2) == []
    node.health("xid", xid=number)
    assert h.store.xids == {("n1", "GPU-a", number): 3}


def test_what_an_xid_means_can_be_set() -> None:
    node = Fleet(harness(monitor_xid_actions={109: "none", 13: "evict"}))
    assert node.health("xid", xid=109) == []
    assert opened(node.health("xid", xid=13)) == [("xid-fatal", "GPU-a", "evict")]


def test_every_xid_has_exactly_one_class() -> None:
    assert {xid.class_of(number) for number in range(200)} == {
        "application", "informational", "contained", "reset", "reboot", "link", "other", "unknown",
    }  # fmt: skip
    assert (xid.class_of(31), xid.class_of(63), xid.class_of(79), xid.class_of(12)) == ("application", "informational", "reboot", "unknown")


def test_a_fatal_xid_of_nobody_knows_which_card_keeps_new_work_away_and_evicts_nobody() -> None:
    assert opened(Fleet(harness()).health("xid", None, xid=79)) == [("xid-fatal", None, "cordon")]


def test_the_same_fault_of_the_same_card_is_open_once() -> None:
    node = Fleet(harness())
    said = [*node.health("xid", xid=79), *node.health("xid", xid=79), *node.health("xid", xid=48), *node.health("xid", "GPU-b", xid=79)]
    assert opened(said) == [("xid-fatal", "GPU-a", "evict"), ("xid-fatal", "GPU-b", "evict")]


def test_a_second_delivery_of_a_health_event_does_nothing() -> None:
    h = harness()
    told = h.envelope(HealthEventV1(node_id="n1", boot_id="b1", kind="xid", gpu_uuid="GPU-a", xid=13, at=START))
    h.feed(told, told)
    h.feed(told)
    assert h.store.xids["n1", "GPU-a", 13] == 1


def test_uncorrectable_errors_move_the_work_away_whether_told_as_event_or_seen_in_samples() -> None:
    assert opened(Fleet(harness()).health("ecc-uncorrectable", count=2)) == [("ecc-uncorrectable", "GPU-a", "evict")]
    node = Fleet(harness())
    assert node.tell(sample(ecc_uncorrectable=7)) == []  # old errors are history
    assert node.tell(sample(ecc_uncorrectable=7)) == []
    said = node.tell(sample(ecc_uncorrectable=9))
    assert opened(said) == [("ecc-uncorrectable", "GPU-a", "evict")]
    assert node.health("ecc-uncorrectable", count=2) == []


def test_a_counter_that_starts_anew_is_no_error_and_corrected_errors_are_none() -> None:
    node = Fleet(harness())
    for count in (9, 0, 0):
        assert node.tell(sample(ecc_uncorrectable=count)) == []
    assert node.health("ecc-corrected", count=1000) == []


def test_a_lost_card_is_an_incident_and_a_card_that_is_back_ends_it() -> None:
    node = Fleet(harness())
    assert opened(node.health("gpu-lost")) == [("gpu-lost", "GPU-a", "evict")]
    assert closed(node.health("gpu-back")) == [("gpu-lost", "GPU-a")]


def test_a_card_that_is_back_ends_the_xid_that_took_it_away() -> None:
    node = Fleet(harness())
    node.health("xid", xid=79)
    node.health("gpu-lost")
    assert closed(node.health("gpu-back")) == [("gpu-lost", "GPU-a"), ("xid-fatal", "GPU-a")]


def test_lost_and_back_are_also_found_in_samples_alone() -> None:
    node = Fleet(harness())
    said = [event for _ in range(3) for event in node.tell(lost(), sample(uuid="GPU-b"))]
    assert opened(said) == [("gpu-lost", "GPU-a", "evict")]
    said = [event for _ in range(5) for event in node.tell(sample(), sample(uuid="GPU-b"))]
    assert closed(said) == [("gpu-lost", "GPU-a")]


def test_what_comes_up_late_after_a_boot_is_no_fault_unless_it_lasts() -> None:
    """B47: eighteen nodes boot, each shows one bad poll; one card really is lost."""
    h = harness()
    nodes = [Fleet(h, f"n{number}") for number in range(18)]
    for node in nodes:
        node.tell(sample())
    said = []
    for node in nodes:
        node.reboot("b2", seconds=0)
        said += node.health("gpu-lost")
        said += node.health("observer-hung", None)
        said += node.tell(lost(), seconds=0.1)
        said += node.tell(sample(), seconds=0.1)
    assert said == []
    said = [event for _ in range(20) for event in nodes[3].tell(lost())]
    assert opened(said) == [("gpu-lost", "GPU-a", "evict")]


def test_a_card_that_is_missing_for_a_while_after_a_boot_and_then_comes_is_no_fault() -> None:
    node = Fleet(harness())
    node.tell(sample())
    node.reboot("b2")
    said = [event for _ in range(10) for event in node.tell(lost())]
    said += [event for _ in range(30) for event in node.tell(sample())]
    assert said == []


def test_every_boot_of_a_node_is_followed() -> None:
    h = harness()
    node = Fleet(h)
    node.tell(sample())
    for boot in ("b2", "b3", "b4"):
        node.reboot(boot)
        node.tell(sample(61))
    assert h.store.node("n1").boot_id == "b4"
    assert h.store.ignored == {}


def test_a_fatal_xid_counts_within_the_grace_after_a_boot_too() -> None:
    node = Fleet(harness())
    node.tell(sample())
    node.reboot("b2")
    assert opened(node.health("xid", xid=79)) == [("xid-fatal", "GPU-a", "evict")]


def test_a_boot_with_the_card_there_and_well_ends_its_xid_and_ecc_incidents() -> None:
    node = Fleet(harness())
    node.health("xid", xid=48)
    node.health("ecc-uncorrectable")
    assert [event for _ in range(20) for event in node.tell(sample())] == []  # well-looking samples of the same boot prove nothing
    node.reboot("b2")
    said = [event for _ in range(5) for event in node.tell(sample())]
    assert sorted(closed(said)) == [("ecc-uncorrectable", "GPU-a"), ("xid-fatal", "GPU-a")]


def test_an_event_from_before_the_boot_that_is_known_is_history() -> None:
    """A replayed fault must not take a repaired node out of service."""
    h = harness()
    node = Fleet(h)
    node.tell(sample())
    before = h.clock.now()
    node.reboot("b2")
    assert node.health("xid", xid=79, boot="b1", at=before) == []
    late = Fleet(h, boot="b1")
    late.sequence = 99
    assert h.feed(late.message(sample(99), at=before)) == []
    assert h.store.ignored == {"earlier-boot": 2}
    assert h.store.node("n1").boot_id == "b2"


def test_an_observer_that_hangs_keeps_new_work_away_until_it_answers() -> None:
    node = Fleet(harness())
    assert opened(node.health("observer-hung", None, detail="nvmlDeviceGetTemperature")) == [("observer-hung", None, "cordon")]
    assert closed(node.health("observer-back", None)) == [("observer-hung", None)]


def test_an_observer_that_hung_before_a_boot_is_well_when_samples_come_after_it() -> None:
    node = Fleet(harness())
    node.health("observer-hung", None)
    node.reboot("b2")
    assert closed(node.tell(sample())) == [("observer-hung", None)]


def test_an_incident_of_a_card_that_was_taken_out_ends() -> None:
    h = harness()
    h.feed(enrolled(("GPU-a", "T4"), ("GPU-b", "T4")))
    node = Fleet(h)
    node.health("ecc-uncorrectable")
    assert closed(h.feed(enrolled(("GPU-b", "T4")))) == [("ecc-uncorrectable", "GPU-a")]


def test_a_lost_card_does_not_end_its_incident_by_being_missing_but_a_boot_without_it_does() -> None:
    h = harness()
    h.feed(enrolled(("GPU-a", "T4"), ("GPU-b", "T4")))
    node = Fleet(h)
    node.tell(sample(), sample(uuid="GPU-b"))
    node.health("gpu-lost")
    assert h.feed(enrolled(("GPU-b", "T4"))) == []
    assert [event for _ in range(10) for event in node.tell(sample(uuid="GPU-b"))] == []
    node.reboot("b2")
    said = [event for _ in range(5) for event in node.tell(sample(uuid="GPU-b"))]
    assert closed(said) == [("gpu-lost", "GPU-a")]


def test_an_event_with_a_stamp_of_the_future_is_dated_now() -> None:
    h = harness()
    (event,) = Fleet(h).health("xid", xid=79, at=START + timedelta(days=30_000))
    assert isinstance(event, IncidentOpenedV1)
    assert event.opened_at == h.clock.now()
