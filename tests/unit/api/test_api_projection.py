"""The projection: what is remembered of what the services tell, delivered twice, late, or out of order."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from gpuyard_api.app import handled, make_service
from gpuyard_api.hub import Hub
from gpuyard_api.store import ENDED_KEPT_SECONDS, RESERVED, ApiStore
from gpuyard_contracts import topology
from gpuyard_contracts.envelope import Payload
from gpuyard_contracts.messages.billing import LedgerPostedV1
from gpuyard_contracts.messages.monitor import IncidentClosedV1, IncidentOpenedV1
from gpuyard_contracts.messages.node import WorkloadStartedV1
from gpuyard_contracts.messages.scheduler import JobRejectedV1, JobRequeuedV1, JobRunningV1, JobStoppingV1, JobUnknownV1, JobWaitingV1
from gpuyard_contracts.spec import JobSpec
from gpuyard_contracts.types import incident_id_of, job_id_of
from gpuyard_runtime.testing import Crash, Harness

from tests.support.api_yard import ended, node_state, placing, queued

JOB = job_id_of("acme", "r1")
LABELLED = JobSpec(name="train", command=("true",), ranks=2, labels={"team": "vision"})


async def _never(before: Any) -> None:
    raise AssertionError("nothing is pruned here")


@pytest.fixture
def harness() -> Iterator[Harness[ApiStore]]:
    yield Harness(make_service(Hub(), _never))


def _queued(harness: Harness[ApiStore]) -> Payload:
    return queued(JOB, "acme", LABELLED, "r1", harness.clock.now())


def _running(harness: Harness[ApiStore]) -> Payload:
    return JobRunningV1(tenant="acme", job_id=JOB, attempt=1, started_at=harness.clock.now())


def _feed_at(harness: Harness[ApiStore], sequence: int, payload: Payload) -> None:
    """Deliver with this place in the stream."""
    harness._sequence = sequence - 1
    harness.feed(payload)


def _states(harness: Harness[ApiStore]) -> list[str]:
    return [job.state for job in harness.rows("jobs")]


def test_every_event_of_every_durable_is_kept(harness: Harness[ApiStore]) -> None:
    """Whatever the topology brings has a handler."""
    kinds = {kind for durable in topology.durables_of("api") for kind in topology.kinds_of(durable)}
    assert kinds <= set(handled())
    assert len(kinds) > 20


def test_a_job_goes_through_its_life(harness: Harness[ApiStore]) -> None:
    """Queued, waiting, placing, running, ended: the row tells where the job is and why."""
    now = harness.clock.now()
    harness.feed(_queued(harness))
    harness.feed(JobWaitingV1(tenant="acme", job_id=JOB, reason="quota", detail="8 of 8 used", at=now))
    waiting = harness.store.jobs[JOB]
    assert (waiting.state, waiting.reason, waiting.detail, waiting.ranks) == ("queued", "quota", "8 of 8 used", 2)
    harness.feed(placing(JOB, "acme", now), _running(harness))
    running = harness.store.jobs[JOB]
    assert (running.state, running.reason, running.attempt) == ("running", "", 1)
    assert '"node_id":"a100-01"' in running.placement
    harness.feed(ended(JOB, "acme", now))
    assert harness.rows("jobs")[0].exit_code == 0
    assert _states(harness) == ["succeeded"]


def test_events_are_kept_in_the_order_of_commits(harness: Harness[ApiStore]) -> None:
    """Events of a job from all services, with what caused them, under rising numbers."""
    now = harness.clock.now()
    harness.feed(_queued(harness), placing(JOB, "acme", now))
    harness.feed(
        WorkloadStartedV1(node_id="a100-01", tenant="acme", job_id=JOB, allocation_id=f"{JOB}-1", attempt=1, rank=0, pid=7, started_at=now)
    )
    rows = harness.journal("job_events")
    assert [row.name for row in rows] == ["job.queued", "job.placing", "workload.started"]
    assert [row.seq for row in rows] == sorted({row.seq for row in rows})
    assert {row.job_id for row in rows} == {JOB}
    assert harness.store.jobs[JOB].state == "placing"


def test_a_second_delivery_changes_nothing(harness: Harness[ApiStore]) -> None:
    """The same event again leaves one row."""
    event = harness.envelope(_queued(harness))
    harness.feed(event)
    harness.feed(event)
    assert len(harness.journal("job_events")) == 1
    assert len(harness.journal("job_asks")) == 1


def test_a_late_event_does_not_turn_a_job_back(harness: Harness[ApiStore]) -> None:
    """B60: what was told before and is delivered after changes nothing but the list of events."""
    _feed_at(harness, 1, _queued(harness))
    _feed_at(harness, 5, _running(harness))
    _feed_at(harness, 3, JobWaitingV1(tenant="acme", job_id=JOB, reason="quota", detail="", at=harness.clock.now()))
    assert harness.store.jobs[JOB].state == "running"
    assert len(harness.journal("job_events")) == 3


def test_a_late_start_does_not_reopen_a_finished_job(harness: Harness[ApiStore]) -> None:
    """B60: finish before start."""
    _feed_at(harness, 1, _queued(harness))
    _feed_at(harness, 9, ended(JOB, "acme", harness.clock.now()))
    _feed_at(harness, 7, _running(harness))
    assert _states(harness) == ["succeeded"]
    _feed_at(harness, 11, _running(harness))
    assert _states(harness) == ["succeeded"], "an end is final even against younger events"


def test_a_job_whose_end_comes_first_stays_ended_and_gets_its_name(harness: Harness[ApiStore]) -> None:
    """B60: the end is delivered before the beginning."""
    _feed_at(harness, 9, ended(JOB, "acme", harness.clock.now()))
    assert _states(harness) == ["succeeded"]
    _feed_at(harness, 2, _queued(harness))
    (job,) = harness.rows("jobs")
    assert (job.state, job.name, job.ranks) == ("succeeded", "train", 2)
    assert harness.journal("job_asks")[0].labels == '{"team":"vision"}'


def test_a_rejected_request_may_be_taken_later(harness: Harness[ApiStore]) -> None:
    """The same request again, when there is room, makes the job under the same id."""
    harness.feed(JobRejectedV1(tenant="acme", job_id=JOB, request_id="r1", reason="too-many-waiting", detail="cap 0", name="train"))
    assert _states(harness) == ["rejected"]
    harness.feed(_queued(harness))
    (job,) = harness.rows("jobs")
    assert (job.state, job.ended_at) == ("queued", None)


def test_a_rejected_request_that_is_taken_later_lives_whatever_tells_so_first(harness: Harness[ApiStore]) -> None:
    """The reason why it waits overtakes its acceptance: it has no end any more, or it would leave the memory and never change again."""
    rejected = JobRejectedV1(tenant="acme", job_id=JOB, request_id="r1", reason="too-many-waiting", detail="cap 0", name="train")
    _feed_at(harness, 1, rejected)
    _feed_at(harness, 3, JobWaitingV1(tenant="acme", job_id=JOB, reason="quota", detail="", at=harness.clock.now()))
    _feed_at(harness, 2, _queued(harness))
    (job,) = harness.rows("jobs")
    assert (job.state, job.reason, job.ended_at) == ("queued", "quota", None)


def test_a_requeue_clears_the_place_and_keeps_the_attempt(harness: Harness[ApiStore]) -> None:
    """What ran is not running any more; the reason says why."""
    now = harness.clock.now()
    harness.feed(_queued(harness), placing(JOB, "acme", now), _running(harness))
    harness.feed(JobRequeuedV1(tenant="acme", job_id=JOB, attempt=1, reason="gpu-fault", detail="91 °C", at=now))
    job = harness.store.jobs[JOB]
    assert (job.state, job.reason, job.placement, job.started_at, job.attempt) == ("queued", "gpu-fault", "[]", None, 1)


def test_a_silent_node_is_a_flag_and_no_state(harness: Harness[ApiStore]) -> None:
    """Not knowing is not failing."""
    now = harness.clock.now()
    harness.feed(_queued(harness), _running(harness))
    harness.feed(JobUnknownV1(tenant="acme", job_id=JOB, attempt=1, is_unknown=True, at=now))
    assert (harness.store.jobs[JOB].state, harness.store.jobs[JOB].is_unknown) == ("running", True)
    harness.feed(JobStoppingV1(tenant="acme", job_id=JOB, attempt=1, reason="cancelled-by-tenant", at=now))
    assert harness.store.jobs[JOB].state == "stopping"


def test_money_and_workloads_only_join_the_list(harness: Harness[ApiStore]) -> None:
    """An event of billing after the end moves no state."""
    harness.feed(_queued(harness), ended(JOB, "acme", harness.clock.now()))
    harness.feed(
        LedgerPostedV1(
            tenant="acme", job_id=JOB, allocation_id=f"{JOB}-1", transaction_id="t", amount_micros=1, total_micros=1, gpu_ms=1,
            currency="EUR", price_version=1, until=harness.clock.now(), is_final=True,
        )
    )  # fmt: skip
    assert _states(harness) == ["succeeded"]
    assert harness.journal("job_events")[-1].name == "ledger.posted"


def test_ended_jobs_leave_the_memory_but_not_the_database(harness: Harness[ApiStore]) -> None:
    """After a while; a late event then still does not reopen them in the table of the past."""
    harness.feed(_queued(harness), ended(JOB, "acme", harness.clock.now()))
    harness.tick("forget")
    assert JOB in harness.store.jobs, "a redelivery may still come"
    harness.clock.advance(ENDED_KEPT_SECONDS + 1)
    harness.tick("forget")
    assert JOB not in harness.store.jobs
    assert _states(harness) == ["succeeded"]


def test_past_jobs_are_not_loaded(harness: Harness[ApiStore]) -> None:
    """A start costs what lives, not what has been; live jobs are there again."""
    harness.feed(_queued(harness))
    other = job_id_of("acme", "r2")
    harness.feed(queued(other, "acme", LABELLED, "r2", harness.clock.now()), ended(other, "acme", harness.clock.now()))
    harness.clock.advance(ENDED_KEPT_SECONDS + 1)
    harness.tick("forget")
    harness.restart()
    assert JOB in harness.store.jobs
    assert harness.store.jobs[JOB].state == "queued"


@pytest.mark.parametrize("point", ["before_commit", "after_commit"])
def test_numbers_of_events_rise_over_a_crash(harness: Harness[ApiStore], point: str) -> None:
    """A cursor that a reader has seen is never given to another event."""
    harness.feed(_queued(harness))
    harness.crash_at(point)
    lost = harness.envelope(_running(harness))
    with pytest.raises(Crash):
        harness.feed(lost)
    harness.restart()
    harness.feed(lost)
    seqs = [row.seq for row in harness.journal("job_events")]
    assert seqs == sorted(set(seqs))
    assert len(seqs) == 2


def test_numbers_do_not_repeat_after_a_whole_block(harness: Harness[ApiStore]) -> None:
    """Blocks are reserved in the database before they are used."""
    store = harness.store
    given = harness.act(lambda tx: [tx.store.next_number("job_events") for _ in range(RESERVED + 5)])
    assert given == list(range(1, RESERVED + 6))
    harness.restart()
    assert harness.act(lambda tx: tx.store.next_number("job_events")) > given[-1]
    assert harness.store is not store


def test_an_incident_opens_and_closes_in_any_order(harness: Harness[ApiStore]) -> None:
    """A late opening adds what it saw and does not reopen."""
    at = harness.clock.now()
    incident = incident_id_of("a100-01", "gpu-hot", "GPU-1", at)
    opened = IncidentOpenedV1(
        incident_id=incident, kind="gpu-hot", node_id="a100-01", gpu_uuid="GPU-1", action="evict", evidence="91 °C", opened_at=at
    )
    closed = IncidentClosedV1(
        incident_id=incident, kind="gpu-hot", node_id="a100-01", gpu_uuid="GPU-1", evidence="70 °C", opened_at=at, closed_at=at
    )
    harness.feed(closed)
    harness.feed(opened)
    row = harness.store.incidents[incident]
    assert (row.closed_at, row.action, row.evidence, row.closing_evidence) == (at, "evict", "91 °C", "70 °C")
    harness.restart()
    assert incident in harness.store.incidents


def test_the_highest_version_of_a_node_wins(harness: Harness[ApiStore]) -> None:
    """A node's older state, heard late, changes nothing; a removed one is gone; the database is not touched."""
    at = harness.clock.now()
    harness.feed(node_state(version=2, at=at, status="unknown"))
    harness.feed(node_state(version=1, at=at))
    assert harness.store.nodes["a100-01"].status == "unknown"
    harness.database.is_away = True
    harness.feed(node_state(version=3, at=at, is_removed=True))
    assert harness.store.nodes == {}


def test_old_incidents_and_events_are_pruned() -> None:
    """After thirty days, by the tick; open incidents stay."""
    pruned: list[Any] = []

    async def prune(before: Any) -> None:
        pruned.append(before)

    harness: Harness[ApiStore] = Harness(make_service(Hub(), prune))
    at = harness.clock.now()
    for node, is_closed in (("n1", True), ("n2", False)):
        incident = incident_id_of(node, "gpu-lost", "GPU-1", at)
        harness.feed(IncidentOpenedV1(incident_id=incident, kind="gpu-lost", node_id=node, action="evict", evidence="", opened_at=at))
        if is_closed:
            harness.feed(IncidentClosedV1(incident_id=incident, kind="gpu-lost", node_id=node, evidence="", opened_at=at, closed_at=at))
    harness.clock.advance(31 * 86400)
    harness.tick("prune")
    assert [row.node_id for row in harness.store.incidents.values()] == ["n2"]
    assert pruned == [harness.clock.now() - timedelta(days=30)]


def test_what_a_service_told_is_kept_as_it_told_it(harness: Harness[ApiStore]) -> None:
    """With fields that this version does not know; of what a node told only what was understood."""
    running = _running(harness)
    started = WorkloadStartedV1.model_validate_json(
        b'{"node_id":"n1","tenant":"acme","job_id":"%b","allocation_id":"%b-1","attempt":1,"rank":0,"pid":7,"started_at":"2030-01-01T00:00:00Z"}'
        % (JOB.encode(), JOB.encode())
    )
    for told in (running, started):
        harness.feed_raw(told.subject(), b'{"news":1,%b' % told.model_dump_json(exclude_none=True).encode()[1:])
    assert ["news" in row.body for row in harness.journal("job_events")] == [True, False]
