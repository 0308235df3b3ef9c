"""Why jobs wait: told when it changes, not to everybody at once, and answered whenever somebody asks."""

from gpuyard_contracts.messages.asks import QueueAskV1
from gpuyard_contracts.messages.explaining import ExplainAskV1
from gpuyard_contracts.messages.requests import JobSubmitV1
from gpuyard_contracts.messages.scheduler import JobWaitingV1
from gpuyard_contracts.types import job_id_of
from gpuyard_scheduler.domain.policy import Policy
from gpuyard_scheduler.metrics import gauges
from gpuyard_scheduler.settings import SchedulerSettings

from tests.unit.scheduler.scheduler_world import Yard, spec, yard


def _told(found: Yard) -> list[tuple[str, str]]:
    return [(said.job_id, said.reason) for said in found.h.said_of(JobWaitingV1)]


def test_a_reason_is_told_when_it_changes_and_only_then() -> None:
    """First the quota, then the cards; looking again changes nothing."""
    found = yard(cards=2, quota_gpu_milli=1000)
    found.submit()
    waiting = found.submit()
    found.h.tick("look")
    assert _told(found) == [(waiting, "quota")]
    found.tenant("beta")
    found.submit(tenant="beta")
    found.tenant("acme", quota_gpu_milli=8000)
    assert _told(found) == [(waiting, "quota"), (waiting, "no-free-gpus")]
    found.h.tick("look")
    found.h.restart()
    found.tenant("acme", quota_gpu_milli=8000)
    found.rehear()
    assert len(_told(found)) == 2, "what was told before a restart is not told again"


def test_a_long_line_is_not_told_all_at_once() -> None:
    """So many in a second, so deep into a line; the others have the same reason and learn it as they come nearer."""
    found = yard(cards=1, policy=Policy(told_per_second=5, told_depth=8))
    requests = [JobSubmitV1(tenant="acme", spec=spec(), request_id=f"r{number:02}") for number in range(30)]
    found.h.feed(*requests)
    assert len(_told(found)) == 5
    found.h.tick("look")
    assert len(_told(found)) == 5, "the second is not over"
    for _ in range(3):
        found.h.clock.advance(1)
        found.h.tick("look")
    assert len(_told(found)) == 8
    running = next(row.job_id for row in found.h.rows("jobs") if row.state == "placing")
    found.start(running)
    found.release(running)
    assert len(_told(found)) == 9
    assert found.store.queue.reasons() == {"no-free-gpus": 28}


def test_reasons_are_exclusive_and_total() -> None:
    """Each waiting job is counted once; the counts sum to the queue's length."""
    found = yard(cards=2)
    found.tenant("poor", quota_gpu_milli=1000)
    running = found.submit(1)
    found.submit(1, "poor")
    for gpu, tenant in ((1, "poor"), (2, "acme"), (1, "acme")):
        found.submit(gpu, tenant)
    found.start(running)
    found.h.clock.advance(1)
    failing = found.submit(1, retries=1, priority="high")
    found.release(running)
    found.start(failing)
    found.release(failing, exit_code=1)
    reply = found.h.ask(QueueAskV1())
    assert reply.waiting == len(found.store.queue) == sum(reply.reasons.values())
    assert reply.reasons["quota"] == 1
    assert reply.reasons["retry-pause"] == 1
    assert reply.reasons["no-free-gpus"] == 1
    mine = found.h.ask(QueueAskV1(tenant="poor"))
    assert (mine.waiting, mine.reasons, [row.tenant for row in mine.tenants]) == (1, {"quota": 1}, ["poor"])


def test_the_queue_knows_positions_and_shares() -> None:
    """Positions count over all tenants; shares are what is used of the whole fleet, in millionths."""
    found = yard(cards=4)
    found.tenant("beta")
    found.submit(3)
    first, second = found.submit(2), found.submit(2, "beta")
    reply = found.h.ask(QueueAskV1())
    assert reply.positions == {second: 1, first: 2}, "beta uses nothing yet"
    rows = {row.tenant: row for row in reply.tenants}
    assert (rows["acme"].dominant_share_ppm, rows["beta"].dominant_share_ppm) == (750_000, 0)
    assert (rows["acme"].running, rows["acme"].waiting, rows["acme"].used_gpu_milli) == (1, 1, 3000)


def test_explain_tells_place_reason_and_every_node() -> None:
    """The binding constraint of each node, the nearest first, with the versions that were looked at."""
    found = yard(nodes=2, cards=2)
    found.node("t", 1, "T4", 15_360)
    found.submit("A100:1")
    found.submit("A100:2")
    ahead = found.submit("A100:2")
    job_id = found.submit("A100:2")
    found.cordon("b", "GPU-b-1")
    reply = found.h.ask(ExplainAskV1(job_id=job_id))
    assert (reply.state, reply.reason, reply.position, reply.ahead, reply.waiting) == ("queued", "no-free-gpus", 2, (ahead,), 2)
    assert [(verdict.node_id, verdict.constraint) for verdict in reply.verdicts] == [("a", "gpus"), ("b", "gpus"), ("t", "model")]
    assert "1 of 2 cards free" in reply.verdicts[0].detail
    assert reply.fleet_versions == {"a": 1, "b": 2, "t": 1}


def test_explain_of_others_tells_nothing() -> None:
    """Another tenant's job, one that is over, one that never was: not found. A live one is told as it is."""
    found = yard()
    job_id = found.submit()
    assert not found.h.ask(ExplainAskV1(job_id=job_id, tenant="beta")).is_found
    assert not found.h.ask(ExplainAskV1(job_id=job_id_of("acme", "never"))).is_found
    assert found.h.ask(ExplainAskV1(job_id=job_id, tenant="acme")).state == "placing"
    parked = found.submit(tenant="new")
    assert found.h.ask(ExplainAskV1(job_id=parked)).reason == "tenant-unknown"
    found.start(job_id)
    found.release(job_id)
    assert not found.h.ask(ExplainAskV1(job_id=job_id)).is_found


def test_explain_of_a_pause_and_of_a_blind_fleet() -> None:
    """A job in a pause stands in no line; what keeps all waiting is said even before the next cycle."""
    found = yard()
    job_id = found.submit(retries=1)
    found.start(job_id)
    found.release(job_id, exit_code=1)
    reply = found.h.ask(ExplainAskV1(job_id=job_id))
    assert (reply.reason, reply.position) == ("retry-pause", None)
    assert [verdict.is_fit for verdict in reply.verdicts] == [True]


def test_a_verdict_follows_a_cordon() -> None:
    """The reason is about the fleet as it is: when the only node closes, so does the reason change."""
    found = yard(cards=1)
    found.submit()
    waiting = found.submit()
    found.cordon("a")
    assert _told(found) == [(waiting, "no-free-gpus"), (waiting, "no-fit-place")]


def test_metrics_count_the_queue_by_reason() -> None:
    """The sum over the reasons is the length of the queue, also of an empty one."""
    found = yard(cards=1)
    assert gauges(found.store)["scheduler_queue_length"] == 0
    for _ in range(3):
        found.submit()
    numbers = gauges(found.store)
    assert numbers["scheduler_waiting_jobs"] == {(("reason", "no-free-gpus"),): 2.0}
    assert numbers["scheduler_jobs"] == {(("state", "placing"),): 1.0, (("state", "queued"),): 2.0}
    assert numbers["scheduler_used_gpu_milli"] == {(("tenant", "acme"),): 1000.0}


def test_settings_make_the_policy() -> None:
    """Without any setting it is the product's own policy; each number can be set."""
    assert SchedulerSettings().policy() == Policy()
    assert SchedulerSettings(promised_wait_gold_seconds=5).policy().promised_wait["gold"] == 5
