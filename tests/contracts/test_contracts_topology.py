"""Subjects, streams, durables and permissions agree with each other."""

import pytest
from gpuyard_contracts import catalog, permissions, subjects, topology
from gpuyard_contracts.subjects import wildcard
from gpuyard_contracts.topology import DURABLES, SERVICES, STREAMS, durables_of, kinds_of, stream_of


@pytest.mark.parametrize("kind", catalog.PAYLOADS, ids=lambda kind: kind.TYPE)
def test_every_message_has_exactly_one_stream(kind) -> None:
    """No subject is kept twice, none gets lost."""
    subject = wildcard(kind.SUBJECT).replace("*", "x")
    keeping = [stream.name for stream in STREAMS if permissions.is_allowed(stream.subjects, subject)]
    assert keeping == [stream_of(subject).name]


@pytest.mark.parametrize("kind", catalog.PAYLOADS, ids=lambda kind: kind.TYPE)
def test_a_subject_leads_back_to_its_class(kind) -> None:
    """What is built from a class is found as that class, with the same fields."""
    fields = {name: f"v{place}" for place, name in enumerate(subjects.fields_of(kind.SUBJECT))}
    subject = kind.SUBJECT.format(**fields)
    assert catalog.find(subject) == (kind, fields)


def test_an_unknown_version_is_not_found() -> None:
    """A message of tomorrow is not taken for one of today."""
    assert catalog.find("gpuyard.req.acme.job.submit.v2") == (None, {})
    assert catalog.find("gpuyard") == (None, {})


def test_durables_are_named_once() -> None:
    """Two services never share a durable."""
    assert len({durable.name for durable in DURABLES}) == len(DURABLES)


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_reads_only_what_its_durables_bring(service) -> None:
    """Every filter lies in its stream, and the service may pull and acknowledge it."""
    allowed = permissions.of_service(service)
    for durable in durables_of(service):
        stream = topology.stream_named(durable.stream)
        for pattern in durable.filters:
            assert permissions.is_allowed(stream.subjects, pattern.replace("*", "x").replace(">", "x"))
        assert kinds_of(durable)
        assert permissions.is_allowed(allowed.publish, f"$JS.API.CONSUMER.MSG.NEXT.{durable.stream}.{durable.name}")
        assert permissions.is_allowed(allowed.publish, f"$JS.ACK.{durable.stream}.{durable.name}.1.1.1.1.1")


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_publishes_nothing_of_another(service) -> None:
    """The owner of a fact is the only one that can say it."""
    allowed = permissions.of_service(service).publish
    for other in SERVICES:
        subject = f"gpuyard.evt.{other}.noun.done.v1.acme.key"
        assert permissions.is_allowed(allowed, subject) == (other == service and other != "api")
    for place in ("USAGE", "HEALTH", "TELEMETRY"):
        assert not any(pattern.startswith(topology.stream_named(place).subjects[0].removesuffix(">")) for pattern in allowed)


def test_a_node_speaks_for_itself_only() -> None:
    """A node's credentials are of no use for another node's facts or orders."""
    mine = permissions.of_node("a100-01")
    for template in ("gpuyard.usage.v1.{}", "gpuyard.hb.{}", "gpuyard.evt.node-agent.workload.ended.v1.acme.job-x.{}"):
        assert permissions.is_allowed(mine.publish, template.format("a100-01"))
        assert not permissions.is_allowed(mine.publish, template.format("a100-02"))
    assert not permissions.is_allowed(mine.publish, "gpuyard.cmd.node-agent.a100-01.start.v1")
    assert not permissions.is_allowed(mine.publish, "$JS.API.CONSUMER.MSG.NEXT.CMD_NODE.node-agent-a100-02")


def test_a_tenant_asks_for_itself_and_hears_itself() -> None:
    """Subjects are the isolation between tenants on the bus."""
    mine = permissions.of_tenant("acme")
    assert permissions.is_allowed(mine.publish, "gpuyard.req.acme.job.submit.v1")
    assert not permissions.is_allowed(mine.publish, "gpuyard.req.beta.job.submit.v1")
    assert not permissions.is_allowed(mine.publish, "$JS.API.STREAM.INFO.REQUESTS")
    assert permissions.is_allowed(mine.subscribe, "gpuyard.evt.scheduler.job.ended.v1.acme.job-x")
    assert permissions.is_allowed(mine.subscribe, "gpuyard.evt.node-agent.workload.ended.v1.acme.job-x.node") is True
    assert not permissions.is_allowed(mine.subscribe, "gpuyard.evt.scheduler.job.ended.v1.beta.job-x")
    assert not permissions.is_allowed(mine.subscribe, "gpuyard.log.v1.beta.job-x.0")


def test_private_inboxes_differ_even_for_likely_names() -> None:
    """Nobody's replies can be read by somebody else's pattern."""
    users = ["api", "node-a", "node-a-b", "tenant-a", "tenant-a-b", "node-tenant-a"]
    inboxes = [permissions.inbox_of(user) for user in users]
    assert len(set(inboxes)) == len(users)
