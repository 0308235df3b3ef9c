"""Heat: opened and closed by samples in a row, by thresholds of the model."""

import pytest
from gpuyard_contracts.messages.monitor import IncidentOpenedV1
from gpuyard_runtime.testing import Crash

from tests.unit.monitor.monitor_world import Fleet, closed, enrolled, harness, opened, sample


def test_a_card_that_stays_hot_is_an_incident_with_numbers_as_evidence() -> None:
    h = harness()
    h.feed(enrolled(("GPU-a", "A100-80GB")))
    node = Fleet(h)
    assert node.tell(sample(91)) == []
    assert node.tell(sample(92)) == []
    (event,) = node.tell(sample(93))
    assert isinstance(event, IncidentOpenedV1)
    assert (event.kind, event.gpu_uuid, event.action, event.boot_id) == ("gpu-hot", "GPU-a", "evict", "b1")
    assert "93 °C" in event.evidence
    assert "85 °C for 3 samples" in event.evidence
    assert "A100-80GB" in event.evidence


def test_what_is_seen_fewer_times_in_a_row_than_the_rule_says_is_nothing() -> None:
    """B47: one bad poll, or two, and a good one between them."""
    node = Fleet(harness())
    for celsius in (99, 99, 84, 99, 99, 80, 99):
        assert node.tell(sample(celsius)) == []


def test_an_open_incident_is_not_opened_again() -> None:
    node = Fleet(harness())
    said = [event for _ in range(20) for event in node.tell(sample(99))]
    assert opened(said) == [("gpu-hot", "GPU-a", "evict")]


def test_it_is_over_only_when_cool_for_as_long_as_the_rule_says() -> None:
    h = harness()
    node = Fleet(h)
    for _ in range(3):
        node.tell(sample(90))
    said = [event for celsius in (74, 74, 74, 74, 76, 74, 74, 74, 74) for event in node.tell(sample(celsius))]
    assert said == []
    assert closed(node.tell(sample(74))) == [("gpu-hot", "GPU-a")]
    assert len(h.store.incidents) == 0
    assert [row.closing_evidence for row in h.rows("incidents")] == ["GPU-a: 74 °C, below 75 °C for 5 samples in a row"]


def test_a_card_at_the_edge_neither_opens_nor_closes() -> None:
    node = Fleet(harness())
    for _ in range(3):
        node.tell(sample(85))
    assert [event for _ in range(20) for event in node.tell(sample(80))] == []


def test_a_temperature_that_is_not_told_changes_nothing() -> None:
    node = Fleet(harness())
    node.tell(sample(90))
    node.tell(sample(None))
    node.tell(sample(90))
    assert opened(node.tell(sample(90))) == [("gpu-hot", "GPU-a", "evict")]


def test_thresholds_are_those_of_the_nearest_model_name() -> None:
    h = harness(monitor_heat={"A100": {"open_c": 95, "close_c": 90, "open_samples": 1}, "*": {"open_samples": 1}})
    h.feed(enrolled(("GPU-a", "A100-80GB"), ("GPU-b", "T4")))
    node = Fleet(h)
    assert opened(node.tell(sample(90, "GPU-a"), sample(90, "GPU-b"))) == [("gpu-hot", "GPU-b", "evict")]
    assert opened(node.tell(sample(95, "GPU-a"))) == [("gpu-hot", "GPU-a", "evict")]


def test_each_card_of_a_node_is_judged_for_itself() -> None:
    node = Fleet(harness())
    said = [event for _ in range(3) for event in node.tell(sample(90, "GPU-a"), sample(50, "GPU-b"), sample(90, "GPU-c"))]
    assert [card for _, card, _ in opened(said)] == ["GPU-a", "GPU-c"]


def test_a_repeated_message_counts_once() -> None:
    h = harness()
    node = Fleet(h)
    node.sequence = 1
    message = node.message(sample(99), at=h.clock.now())
    for _ in range(10):
        assert h.feed(message) == []


def test_an_agent_that_starts_again_is_heard_at_once_though_its_numbers_start_again() -> None:
    node = Fleet(harness())
    for _ in range(50):
        node.tell(sample(50))
    node.sequence = 0
    said = [event for _ in range(3) for event in node.tell(sample(90))]
    assert len(opened(said)) == 1


def test_a_clock_ahead_of_ours_does_not_date_an_incident_into_the_future() -> None:
    h = harness(monitor_heat={"*": {"open_samples": 1}})
    node = Fleet(h)
    (event,) = h.feed(node.message(sample(99), at=h.clock.now().replace(year=2099)))
    assert isinstance(event, IncidentOpenedV1)
    assert event.opened_at == h.clock.now()


def test_a_restart_keeps_the_incident_and_goes_on_to_its_end() -> None:
    h = harness()
    node = Fleet(h)
    for _ in range(3):
        node.tell(sample(90))
    h.restart()
    assert [event for _ in range(5) for event in node.tell(sample(90))] == []
    said = [event for _ in range(5) for event in node.tell(sample(60))]
    assert closed(said) == [("gpu-hot", "GPU-a")]


def test_a_decision_that_did_not_commit_is_made_again_by_the_next_sample() -> None:
    h = harness()
    node = Fleet(h)
    node.tell(sample(90))
    node.tell(sample(90))
    h.crash_at("before_commit")
    with pytest.raises(Crash):
        node.tell(sample(90))
    assert opened(node.tell(sample(90))) == [("gpu-hot", "GPU-a", "evict")]


def test_telemetry_without_fault_writes_nothing() -> None:
    h = harness()
    node = Fleet(h)
    node.tell(sample(50))
    h.database.is_away = True  # whatever touches the database now fails
    for _ in range(10):
        assert node.tell(sample(50)) == []
    assert h.waiting == []
