"""What a service shows and is told: settings, health, metrics, spans, asks, ids."""

from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid5

import pytest
from gpuyard_contracts.envelope import Malformed
from gpuyard_runtime.asks import read_answer, read_ask, refusal_of, write_answer, write_refusal
from gpuyard_runtime.clock import ManualClock
from gpuyard_runtime.faults import Poison, Refused, RetryLater, Unavailable
from gpuyard_runtime.health import Health, HealthServer
from gpuyard_runtime.ids import NAMESPACE, child_of, derive
from gpuyard_runtime.metrics import Metrics
from gpuyard_runtime.settings import ServiceSettings
from gpuyard_runtime.traces import Spans, context_of
from pydantic import ValidationError

from tests.unit.runtime.runtime_toy import AskTotal, ParcelSeenV1, TotalV1, toy


def test_a_secret_can_come_from_a_file_and_is_never_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dsn").write_text("postgresql://u:hidden@h/d\n")
    monkeypatch.setenv("GPUYARD_POSTGRES_DSN_FILE", str(tmp_path / "dsn"))
    settings = ServiceSettings()
    assert settings.postgres_dsn.get_secret_value() == "postgresql://u:hidden@h/d"
    assert "hidden" not in repr(settings)


def test_a_secret_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="nats_password_file: No such file"):
        ServiceSettings(nats_password_file=tmp_path / "none")


def test_ready_means_that_no_part_has_a_reason() -> None:
    health = Health()
    server = HealthServer(health, lambda: b"metrics")
    assert server.answer("GET", "/readyz")[0] == 200
    health.tell("bus", "away")
    code, _, body = server.answer("GET", "/readyz")
    assert (code, body) == (503, b'{"status":"not ready","reasons":{"bus":"away"}}')
    assert server.answer("GET", "/livez")[0] == 200
    health.tell("bus", None)
    assert server.answer("HEAD", "/readyz")[0] == 200
    health.is_draining = True
    assert server.answer("GET", "/readyz")[0] == 503
    assert server.answer("GET", "/metrics")[2] == b"metrics"
    assert server.answer("GET", "/x")[0] == 404
    assert server.answer("POST", "/livez")[0] == 405


def test_metrics_have_types_as_labels_and_gauges_of_the_service() -> None:
    metrics = Metrics("toy")
    metrics.count(metrics.handled, ["a.v1", "b.v1", "a.v1"])
    metrics.add_gauges(lambda: {"queue_length": 3.0, "waiting": {(("reason", "quota"),): 2.0, (("reason", "room"),): 1.0}, "nothing": {}})
    text = metrics.render().decode()
    assert 'gpuyard_handled_total{type="a.v1"} 2.0' in text
    assert "gpuyard_queue_length 3.0" in text
    assert 'gpuyard_waiting{reason="room"} 1.0' in text


def test_computed_ids_are_uuid5_and_a_span_is_named_by_its_event() -> None:
    event_id = derive("cause", "type", "#0")
    assert event_id == str(uuid5(NAMESPACE, "cause|type|#0"))
    root = child_of(None, event_id)
    child = child_of(root, derive(event_id, "type", "#0"))
    found, parent = context_of(child), context_of(root)
    assert found is not None
    assert parent is not None
    assert found.trace_id == parent.trace_id
    assert found.span_id != parent.span_id


def test_a_span_is_the_events_own_and_a_child_of_its_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.unit.runtime.runtime_toy import ParcelSentV1

    ended: list[Any] = []
    spans = Spans("toy", "http://127.0.0.1:1")
    monkeypatch.setattr(spans._processor, "on_end", ended.append)
    from gpuyard_runtime.saying import enveloped

    at = ManualClock().now()
    cause = enveloped(ParcelSeenV1(parcel="a"), source="t", at=at, event_id=derive("a", "b", "c"))
    effect = enveloped(ParcelSentV1(parcel="a", total=1), source="t", at=at, event_id=derive("d", "b", "c"), traceparent=cause.traceparent)
    spans.committed([cause.traceparent], [effect], at, at + timedelta(seconds=1))
    [span] = ended
    assert span.name == ParcelSentV1.TYPE
    assert span.context == context_of(effect.traceparent)
    assert span.parent == context_of(cause.traceparent)
    assert span.end_time - span.start_time == 1_000_000_000
    spans._processor.shutdown()


def test_an_ask_takes_fields_from_its_subject_and_refuses_contradictions() -> None:
    assert read_ask(AskTotal, "gpuyard.ask.toy.total.a", b"") == AskTotal(parcel="a")
    for body, reason in (
        (b"nonsense", "bad-json"),
        (b"[]", "bad-json"),
        (b'{"parcel":"b"}', "subject-mismatch"),
        (b" " * 600_000, "too-large"),
    ):
        with pytest.raises(Malformed) as caught:
            read_ask(AskTotal, "gpuyard.ask.toy.total.a", body)
        assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("error", "reason", "detail"),
    [
        (Poison("why", "that"), "why", "that"),
        (RetryLater("soon"), "unavailable", "cannot be done just now; try again"),
        (Unavailable("database: secret"), "unavailable", "cannot be done just now; try again"),
        (KeyError("secret"), "internal", "failed with KeyError"),
    ],
)
def test_a_refusal_tells_its_reason_and_nothing_of_our_inside(error: Exception, reason: str, detail: str) -> None:
    headers, body = write_refusal(refusal_of(error))
    with pytest.raises(Refused) as caught:
        read_answer(AskTotal, headers, body)
    assert (caught.value.reason, caught.value.detail) == (reason, detail)


def test_an_answer_comes_back_as_its_class_or_is_refused() -> None:
    assert read_answer(AskTotal, *write_answer(TotalV1(total=3))) == TotalV1(total=3)
    with pytest.raises(Refused, match="bad-answer"):
        read_answer(AskTotal, None, b"{}")


def test_a_manual_clock_does_not_go_back() -> None:
    clock = ManualClock()
    before = clock.now()
    assert clock.advance(2) - before == timedelta(seconds=2)
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(-1)


def test_a_service_knows_its_ticks_by_name() -> None:
    assert toy().tick("sweep").seconds == 5.0
    with pytest.raises(KeyError):
        toy().tick("none")
