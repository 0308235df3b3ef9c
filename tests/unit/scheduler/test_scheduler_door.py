"""The door: requests are taken, turned away with a reason, or ignored because they were taken before."""

import json
from typing import Any

import pytest
from gpuyard_contracts.messages.requests import JobCancelV1, JobSubmitV1
from gpuyard_contracts.messages.scheduler import JobEndedV1, JobQueuedV1, JobRejectedV1, PlaceV1, ReleaseV1
from gpuyard_contracts.types import job_id_of
from gpuyard_scheduler.domain.policy import Policy

from tests.unit.scheduler.scheduler_world import Yard, spec, yard

SUBMIT = "gpuyard.req.acme.job.submit.v1"


def _rejected(found: Yard) -> JobRejectedV1:
    return found.h.said_of(JobRejectedV1)[-1]


def test_a_request_becomes_a_job_with_a_computed_id() -> None:
    """Without a request id the message's id stands for it; the trace goes on from the request."""
    found = yard()
    trace = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
    found.h.feed(found.h.envelope(JobSubmitV1(tenant="acme", spec=spec()), id="m-1", traceparent=trace))
    (queued,) = found.h.said_of(JobQueuedV1)
    assert (queued.job_id, queued.request_id) == (job_id_of("acme", "m-1"), "m-1")
    assert {said.traceparent[:36] for said in found.h.envelopes if said.traceparent} == {trace[:36]}
    assert {said.correlation_id for said in found.h.envelopes} == {queued.job_id}


def test_the_same_request_again_makes_no_second_job() -> None:
    """Under the same message id or another, before and after the end, and after a restart."""
    found = yard()
    job_id = found.submit(request_id="again")
    found.submit(request_id="again")
    found.start(job_id)
    found.release(job_id)
    found.submit(request_id="again")
    found.h.restart()
    found.rehear()
    found.tenant()
    found.submit(request_id="again")
    assert len(found.h.said_of(JobQueuedV1)) == 1
    assert found.state(job_id) == "succeeded"


def test_requests_of_one_unit_keep_their_order() -> None:
    """First come, first served, also where many come at once."""
    found = yard(cards=1)
    requests = [JobSubmitV1(tenant="acme", spec=spec(), request_id=f"r{number}") for number in range(20)]
    found.h.feed(*requests)
    in_line = [job_id for group in found.store.queue.groups.values() for _, job_id in group.line]
    assert in_line == [job_id_of("acme", f"r{number}") for number in range(1, 20)]
    assert found.state(job_id_of("acme", "r0")) == "placing"


def test_the_same_request_id_of_two_tenants_is_two_requests() -> None:
    """One tenant cannot swallow another's request by guessing its id."""
    found = yard()
    found.tenant("beta")
    assert found.submit(request_id="x") != found.submit(request_id="x", tenant="beta")
    assert len(found.h.said_of(JobQueuedV1)) == 2


@pytest.mark.parametrize(
    ("tenant", "request_of", "reason"),
    [
        ({"is_suspended": True}, {}, "tenant-suspended"),
        ({"max_requests_per_minute": 0}, {}, "too-many-requests"),
        ({"max_waiting": 0}, {}, "too-many-waiting"),
        ({"quota_gpu_milli": 3999}, {"gpu": 4}, "over-quota-for-ever"),
        ({"quota_gpu_memory_mib": 81_919}, {"gpu": 1}, "over-quota-for-ever"),
        ({"quota_gpu_milli": 0}, {"gpu": "A100:1MiB"}, "over-quota-for-ever"),
        ({}, {"gpu": "H100"}, "never-fits"),
        ({}, {"gpu": 9}, "never-fits"),
        ({}, {"gpu": 8, "ranks": 2}, "never-fits"),
        ({}, {"gpu": "mig-1g.5gb"}, "never-fits"),
    ],
)
def test_a_request_that_cannot_be_taken_is_told_why(tenant: dict[str, Any], request_of: dict[str, Any], reason: str) -> None:
    """With the reason from the closed list and numbers for people; nothing is stored of it."""
    found = yard(**tenant)
    found.submit(**request_of)
    assert (_rejected(found).reason, bool(_rejected(found).detail)) == (reason, True)
    assert _rejected(found).name == "test"
    assert found.h.rows("jobs") == found.h.rows("requests") == []


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"gpu": "A100:9"}, "asked for 9 cards on one node; no node has more than 8 of such a kind; ranks may lie on several nodes"),
        ({"gpu": "A100:4", "ranks": 3}, "2 of them would fit, even if nothing ran"),
        ({"gpu": "A100:1", "cpu_milli": 999_000}, "asked for 999 CPUs; no node with such cards has more than"),
        ({"gpu": "A100:1", "memory_mib": 9 * 1024 * 1024}, "asked for 9216 GiB of memory; no node with such cards has more than"),
        ({"gpu": "A100:1", "node_labels": {"disk": "ssd"}}, "asked for a node with disk=ssd; no node with such cards carries that"),
        ({"gpu": "100GB.."}, "asked for at least 100 GB; such cards have 80 GiB"),
    ],
)
def test_who_asks_for_too_much_is_told_what_would_fit(request_: dict[str, Any], words: str) -> None:
    """In the units that people ask in."""
    found = yard()
    found.h.clock.advance(10)
    found.submit(**request_)
    said = _rejected(found)
    assert said.reason == "never-fits" and words in said.detail


def test_what_fits_only_on_cards_above_the_quota_is_over_quota_for_ever() -> None:
    """One kind of card is within the quota and too small, the other large enough and above it: the job would wait for ever."""
    found = yard(quota_gpu_memory_mib=100_000)
    found.node("t", 2, "T4", 15_360)
    found.h.clock.advance(10)
    found.submit(4)
    assert _rejected(found).reason == "over-quota-for-ever"
    assert found.state(found.submit(2)) == "placing"


def test_a_lost_card_does_not_make_a_request_impossible() -> None:
    """It may come back: the request waits, as it would for a silent node."""
    found = yard(cards=3)
    found.change("a", lost_gpus=("GPU-a-3",))
    found.h.clock.advance(10)
    assert found.state(found.submit(4)) == "queued"
    found.submit(5)
    assert _rejected(found).reason == "never-fits"


def test_a_quota_by_memory_is_judged_when_all_kinds_are_known() -> None:
    """Just after the first node was heard another kind of card may be on its way that the quota allows."""
    found = Yard()
    found.tenant(quota_gpu_memory_mib=20_000)
    found.node("a")
    job_id = found.submit(1)
    assert found.state(job_id) == "queued"
    found.node("t", 2, "T4", 15_360)
    assert found.state(job_id) == "placing"


def test_a_rejected_request_may_be_made_again() -> None:
    """A rejection is no job: when the reason is gone the same request is taken."""
    found = yard(max_waiting=0)
    found.submit(request_id="r")
    found.tenant()
    job_id = found.submit(request_id="r")
    assert found.state(job_id) == "placing"


def test_a_flood_slows_its_tenant_only() -> None:
    """Requests above the rate are turned away until the minute is over."""
    found = yard(max_requests_per_minute=2)
    found.tenant("beta")
    for _ in range(4):
        found.submit("A100:0.01")
    found.submit("A100:0.01", "beta")
    assert [said.reason for said in found.h.said_of(JobRejectedV1)] == ["too-many-requests"] * 2
    assert len(found.h.said_of(JobQueuedV1)) == 3
    found.h.clock.advance(60)
    found.submit("A100:0.01")
    assert len(found.h.said_of(JobQueuedV1)) == 4


def test_a_unit_that_is_undone_does_not_count_against_the_rate() -> None:
    """The database was away; the same request comes again and is the first still."""
    found = yard(max_requests_per_minute=1)
    request = found.h.envelope(JobSubmitV1(tenant="acme", spec=spec(), request_id="r"))

    def refuse(database: Any) -> None:
        raise ValueError("a constraint")

    found.h.database.checks.append(refuse)
    found.h.is_strict = False
    found.h.feed(request)
    found.h.database.checks.clear()
    found.h.retry()
    assert [type(said) for said in found.h.said if isinstance(said, JobQueuedV1 | JobRejectedV1)] == [JobQueuedV1]


def test_a_request_waits_for_its_tenant_a_little() -> None:
    """A new tenant's state may come after its first request; then the request is taken. What is repeated meanwhile is one request."""
    found = yard()
    job_id = found.submit(tenant="new", request_id="r")
    found.submit(tenant="new", request_id="r")
    assert found.h.said == []
    found.h.restart()
    found.tenant("new")
    found.rehear()
    assert found.state(job_id) == "placing"
    assert len(found.h.said_of(JobQueuedV1)) == 1


def test_a_request_of_nobody_is_rejected() -> None:
    """After a few seconds, or at once where too many wait already."""
    found = yard(policy=Policy(most_parked=1))
    first = found.submit(tenant="nobody")
    second = found.submit(tenant="nobody")
    assert [said.job_id for said in found.h.said_of(JobRejectedV1)] == [second]
    found.h.tick("parked")
    found.h.clock.advance(5)
    found.h.tick("parked")
    assert _rejected(found).job_id == first
    assert {said.reason for said in found.h.said_of(JobRejectedV1)} == {"tenant-unknown"}


def test_what_fits_nowhere_waits_while_the_fleet_is_still_coming() -> None:
    """At a first start nodes enrol one after the other: a request is not rejected for the one that is a second late."""
    found = Yard()
    found.tenant()
    empty = found.submit("A100")
    found.node("t", 1, "T4", 15_360)
    early = found.submit("A100")
    found.node("a", 2)
    assert [found.state(job_id) for job_id in (empty, early)] == ["placing", "placing"]
    assert found.h.said_of(JobRejectedV1) == []


def test_a_waiting_job_that_is_cancelled_ends_at_once() -> None:
    """A second cancel does nothing, nor does a third after the end."""
    found = yard(cards=1)
    found.submit()
    waiting = found.submit()
    found.cancel(waiting, reason="changed my mind")
    assert found.cancel(waiting) == []
    (ended,) = found.h.said_of(JobEndedV1)
    assert (ended.state, ended.reason, ended.detail, ended.attempt) == ("cancelled", "cancelled-by-tenant", "changed my mind", 0)


def test_a_live_job_that_is_cancelled_is_stopped_first() -> None:
    """It ends when placement says that nothing runs any more; an operator's cancel is told apart."""
    found = yard()
    job_id = found.submit()
    found.start(job_id)
    found.cancel(job_id, by="operator")
    assert found.cancel(job_id) == []
    (release,) = found.h.said_of(ReleaseV1)
    assert (release.attempt, release.reason) == (1, "cancelled-by-operator")
    assert found.state(job_id) == "stopping"
    found.release(job_id, "stopped")
    assert (found.state(job_id), found.row(job_id).end_reason) == ("cancelled", "cancelled-by-operator")


def test_a_job_that_is_cancelled_before_its_plan_is_answered_ends_either_way() -> None:
    """Refused: it is over at once. Committed: it is let go of, and over when released."""
    for answer in ("refused", "committed"):
        found = yard()
        job_id = found.submit()
        found.cancel(job_id)
        if answer == "refused":
            found.h.feed(found.refused(job_id))
        else:
            found.commit(job_id)
            assert found.state(job_id) == "stopping"
            found.release(job_id, "stopped")
        assert found.state(job_id) == "cancelled"


def test_another_tenants_job_cannot_be_cancelled() -> None:
    """Nor does the answer tell that there is one."""
    found = yard()
    found.tenant("beta")
    job_id = found.submit()
    assert found.cancel(job_id, tenant="beta") == []
    assert found.state(job_id) == "placing"


@pytest.mark.parametrize(
    ("subject", "body"),
    [
        (SUBMIT, b"not json"),
        (SUBMIT, b"[1]"),
        (SUBMIT, b'{"spec": 7, "request_id": 5}'),
        (SUBMIT, json.dumps({"spec": {"name": "x\u0000", "command": ["true"], "gpu": 10**30}}).encode()),
        (SUBMIT, json.dumps({"tenant": "beta", "spec": {"name": "x", "command": ["true"]}}).encode()),
        ("gpuyard.req.acme.job.submit.v9", b"{}"),
        (SUBMIT, b"{" + b" " * 600_000 + b"}"),
    ],
)
def test_what_cannot_be_read_is_rejected_and_dead_lettered(subject: str, body: bytes) -> None:
    """Whatever a stranger puts on the bus: the tenant of the subject is told, nobody else is blocked."""
    found = yard()
    found.h.feed_raw(subject, body, {"ce-id": "bad id with spaces"})
    assert (_rejected(found).tenant, _rejected(found).reason) == ("acme", "malformed")
    assert len(found.h.dlq) == 1
    found.submit()
    assert len(found.h.said_of(PlaceV1)) == 1


@pytest.mark.parametrize(
    "subject", ["gpuyard.req.No Tenant.job.submit.v1", "gpuyard.req.acme.job.cancel.v1", "gpuyard.req.x.y.job.submit.v1"]
)
def test_what_nobody_can_be_told_of_is_only_dead_lettered(subject: str) -> None:
    """No tenant in the subject, or no job in question."""
    found = yard()
    found.h.feed_raw(subject, b"nonsense")
    assert found.h.said_of(JobRejectedV1) == []
    assert len(found.h.dlq) == 1


def test_a_garbled_repeat_of_a_taken_request_rejects_nothing() -> None:
    """It would look as if the job had been rejected."""
    found = yard()
    job_id = found.submit(request_id="r")
    found.h.feed_raw(SUBMIT, json.dumps({"request_id": "r", "spec": {}}).encode())
    assert found.h.said_of(JobRejectedV1) == []
    assert found.state(job_id) == "placing"


def test_a_cancel_of_a_request_that_waits_for_its_tenant_withdraws_it() -> None:
    """It is answered, and not taken later."""
    found = yard()
    job_id = found.submit(tenant="new")
    (said,) = found.h.feed(JobCancelV1(tenant="new", job_id=job_id))
    assert isinstance(said, JobRejectedV1)
    found.tenant("new")
    assert found.h.said_of(JobQueuedV1) == []


def test_a_request_that_the_scheduler_fails_on_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """INV-3: nobody waits for ever for a job that will never be; the dead letter and the answer are one unit."""
    found = yard()
    found.h.is_strict = False
    monkeypatch.setattr("gpuyard_scheduler.acts.take", lambda *given: 1 // 0)
    found.h.feed(JobSubmitV1(tenant="acme", spec=spec(), request_id="cursed"))
    for _ in range(3):
        found.h.retry()
    assert [letter.original_subject for letter in found.h.dlq] == [SUBMIT]
    told = _rejected(found)
    assert (told.reason, told.request_id, told.job_id) == ("internal-error", "cursed", job_id_of("acme", "cursed"))
