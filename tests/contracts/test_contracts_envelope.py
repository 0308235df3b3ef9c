"""Decoding: what a stranger may put on the bus, and what comes of it."""

import json
from datetime import UTC, datetime

import pytest
from gpuyard_contracts.envelope import MAX_BODY_BYTES, Envelope, Malformed, decode
from gpuyard_contracts.messages.node import GpuSampleV1, TelemetryV1
from gpuyard_contracts.messages.requests import JobCancelV1, JobSubmitV1
from gpuyard_contracts.messages.scheduler import JobRunningV1
from gpuyard_contracts.types import job_id_of, short_hash
from gpuyard_contracts.upcast import up

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
SUBMIT = "gpuyard.req.acme.job.submit.v1"
SPEC = {"name": "train", "command": ["python", "train.py"], "gpu": "A100:2"}


def read(body, subject=SUBMIT, headers=None):
    """Decode a body as the stream would bring it."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return decode(subject, headers, raw, sequence=7, arrived=NOW)


def test_a_request_needs_nothing_but_its_body() -> None:
    """Tenant, id and time come from the subject and the stream, the same at every delivery."""
    first, second = read({"spec": SPEC}), read({"spec": SPEC})
    assert first.data.tenant == "acme"
    assert (first.id, first.time) == (second.id, NOW)


def test_what_is_written_is_read() -> None:
    """Headers and body carry everything of an envelope."""
    said = Envelope(
        id="e1",
        source="scheduler",
        time=NOW,
        data=JobRunningV1(tenant="acme", job_id=job_id_of("acme", "r"), attempt=1, started_at=NOW),
        correlation_id="c",
        causation_id="b",
        traceparent="00-" + "1" * 32 + "-" + "2" * 16 + "-01",
    )
    heard = decode(said.data.subject(), said.headers(), said.body(), sequence=1, arrived=NOW)
    assert heard.data == said.data
    assert (heard.id, heard.source, heard.time, heard.correlation_id) == ("e1", "scheduler", NOW, "c")
    assert (heard.causation_id, heard.traceparent) == ("b", said.traceparent)


def test_a_body_is_read_the_same_whether_it_repeats_its_subject_or_not() -> None:
    """The short way (everything is in the body) and the careful way (the subject fills in) lead to the same message, repeated names too."""
    spec = json.dumps(SPEC | {"gpu": "24GB..80GB:0.5", "labels": {"team": "vision"}})
    told = f'"spec": {{"name": "x"}}, "request_id": "r", "spec": {spec}'
    short = read(f'{{"tenant": "acme", {told}}}'.encode())
    careful = read(f"{{{told}}}".encode())
    assert short.data == careful.data
    assert careful.data.spec.name == "train"


def test_a_request_carries_no_message_id() -> None:
    """The stream must not compare ids of tenants: one could swallow another's request by guessing its id."""
    request = read({"spec": SPEC}, headers={"ce-id": "mine"})
    other = decode("gpuyard.req.beta.job.submit.v1", {"ce-id": "mine"}, json.dumps({"spec": SPEC}).encode(), sequence=8, arrived=NOW)
    assert "Nats-Msg-Id" not in request.headers()
    assert request.inbox_key != other.inbox_key


@pytest.mark.parametrize(
    ("body", "reason", "says"),
    [
        (b"{", "bad-json", "not JSON"),
        (b"[1]", "bad-json", "object is wanted"),
        (b"\xff\xfe", "bad-json", "not JSON"),
        (b"[" * 100_000, "bad-json", "not JSON"),
        (b'{"spec": {"name": NaN}}', "bad-json", "not JSON"),
        ({"tenant": "beta", "spec": SPEC}, "subject-mismatch", "tenant"),
        ({}, "invalid", "spec: is missing"),
        ({"spec": SPEC, "extra": 1}, "invalid", "extra: is not a known field"),
        ({"spec": SPEC | {"ranks": 10**30}}, "invalid", "spec.ranks"),
        ({"spec": SPEC | {"ranks": "2; drop"}}, "invalid", "spec.ranks"),
        ({"spec": SPEC | {"max_seconds": 1e400}}, "bad-json", "not JSON"),
        ({"spec": SPEC | {"name": "a\u0000b"}}, "invalid", "spec.name"),
        ({"spec": SPEC | {"command": ["a\u0000b"]}}, "invalid", "spec.command"),
        ({"spec": SPEC | {"env": {"RANK": "1"}}}, "invalid", "RANK is set by gpuyard"),
        ({"spec": SPEC | {"env": {"GPUYARD_X": "1"}}}, "invalid", "GPUYARD_X is set by gpuyard"),
        ({"spec": SPEC | {"gpu": "x:y"}}, "invalid", "spec.gpu"),
        ({"spec": SPEC | {"zone": "../.."}}, "invalid", "spec.zone: '../..' is not a name of 1 to 63"),
        ({"spec": SPEC | {"zone": "a\n"}}, "invalid", "spec.zone: 'a\\n' is not a name"),
        ({"spec": SPEC | {"labels": {"a b": "x"}}}, "invalid", "'a b' is not a label key"),
        ({"spec": SPEC | {"labels": {"a": "x\u007f"}}}, "invalid", "spec.labels.a: must be one line"),
        ({"spec": SPEC, "request_id": "a b"}, "invalid", "request_id"),
        (b"x" * (MAX_BODY_BYTES + 1), "too-large", "bytes"),
    ],
)
def test_bad_requests_are_malformed_with_the_field_and_the_reason(body, reason, says) -> None:
    """Nothing but Malformed comes out, and it names what is wrong."""
    with pytest.raises(Malformed) as caught:
        read(body)
    assert caught.value.reason == reason
    assert says in caught.value.detail


@pytest.mark.parametrize("subject", ["gpuyard.req.acme.job.submit.v2", "gpuyard.req.acme.job", "x", "gpuyard.req.UPPER!.job.submit.v1"])
def test_unknown_or_hostile_subjects_are_malformed(subject) -> None:
    """A version that nobody knows, or a tenant that cannot be one, is not guessed at."""
    with pytest.raises(Malformed):
        read({"spec": SPEC}, subject)


@pytest.mark.parametrize(
    "headers",
    [
        {"ce-id": "x" * 500, "ce-time": "yesterday", "traceparent": "nonsense"},
        {"ce-id": "a b", "ce-time": "2026-01-01T00:00:00"},
        {"ce-id": "ä", "ce-time": ""},
        {"ce-time": "0001-01-01T00:00:00+14:00"},
        {"ce-time": "9999-12-31T23:59:59-14:00"},
    ],
)
def test_bad_headers_are_replaced_not_believed(headers) -> None:
    """An id that is no id, a time without offset and a broken trace fall back to the stream's."""
    found = read({"spec": SPEC}, headers=headers)
    assert found.id == read({"spec": SPEC}).id
    assert found.time == NOW
    assert found.traceparent is None


@pytest.mark.parametrize("instant", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "2026-01-01T00:00:00"])
def test_an_instant_that_has_no_date_in_utc_is_refused(instant) -> None:
    """No database could keep it: it must not come past the door."""
    job_id = job_id_of("acme", "r")
    with pytest.raises(Malformed, match="started_at"):
        read({"attempt": 1, "started_at": instant}, f"gpuyard.evt.scheduler.job.running.v1.acme.{job_id}")


def test_a_cancel_reason_with_nul_is_refused() -> None:
    """What no database can keep must not come past the door."""
    body = {"job_id": job_id_of("acme", "r"), "reason": "a\u0000b"}
    with pytest.raises(Malformed, match="reason"):
        read(body, "gpuyard.req.acme.job.cancel.v1")
    assert isinstance(read(body | {"reason": "ok"}, "gpuyard.req.acme.job.cancel.v1").data, JobCancelV1)


def test_an_out_of_range_sample_does_not_pass_as_a_value() -> None:
    """B44: 4294967295 percent is not a utilisation."""
    with pytest.raises(ValueError, match="utilization_percent"):
        TelemetryV1(node_id="n", boot_id="b", sequence=1, at=NOW, gpus=(GpuSampleV1(gpu_uuid="GPU-1", utilization_percent=4294967295),))


def test_job_ids_belong_to_their_tenant() -> None:
    """The same request id of two tenants names two jobs, and parts cannot be shifted between the fields."""
    assert job_id_of("acme", "r") != job_id_of("beta", "r")
    assert job_id_of("ac", "mer") != job_id_of("acm", "er")
    assert len(short_hash("x")) == 16


def test_an_upcaster_lifts_an_old_body_before_it_is_validated() -> None:
    """Old bodies are read as today's class; a body that is already lifted stays."""

    def lift(body):
        return {**{name: value for name, value in body.items() if name != "job"}, "spec": body.get("job", body.get("spec"))}

    upcasters = {JobSubmitV1.TYPE: (lift,)}
    old = up(JobSubmitV1, {"tenant": "acme", "job": SPEC}, upcasters)
    assert up(JobSubmitV1, old, upcasters) == old
    assert JobSubmitV1.model_validate(old).spec.name == "train"
