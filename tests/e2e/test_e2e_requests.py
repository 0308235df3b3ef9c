"""What comes through the doors: repeated, wrong, hostile, foreign."""

import json
import threading

import httpx
import pytest
from gpuyard.errors import GpuyardError, NotFound, Rejected

from tests.support.yard import Yard

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

HOSTILE = [
    b"",
    b"{",
    b"[1]",
    b"\xff\xfe\x00",
    b"[" * 5000,
    b'{"spec": {"name": "x", "command": ["a"], "ranks": 1e308}}',
    b'{"spec": {"name": "x", "command": ["a"], "ranks": 99999999999999999999999}}',
    json.dumps({"spec": {"name": "a\u0000b", "command": ["a\u0000"]}}).encode(),
    json.dumps({"spec": {"name": "../../etc", "command": ["a"], "zone": "'; drop table jobs; --"}}).encode(),
    json.dumps({"tenant": "beta", "spec": {"name": "x", "command": ["a"]}}).encode(),
    json.dumps({"spec": {"name": "\u202e\U0001f4a9", "command": ["true"], "env": {"LD_PRELOAD=x": "y"}}}).encode(),
]


def test_twenty_at_once_with_one_key_make_one_job(yard: Yard) -> None:
    """The same key and body is the same job; another body with that key is a conflict."""
    url, headers = f"{yard.stack.api_url}/v1/jobs", {"Authorization": f"Bearer {yard.tokens['acme']}", "Idempotency-Key": "twenty"}
    body = {"name": "once", "command": ["true"], "gpu": "A100:1", "cpu_milli": 100, "memory_mib": 64}
    answers: list[httpx.Response] = []
    threads = [threading.Thread(target=lambda: answers.append(httpx.post(url, headers=headers, json=body, timeout=30))) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({answer.json()["job_id"] for answer in answers}) == 1, [answer.text for answer in answers]
    other = httpx.post(url, headers=headers, json=body | {"name": "other"}, timeout=30)
    assert other.status_code == 409
    assert other.headers["content-type"].startswith("application/problem+json")
    job_id = answers[0].json()["job_id"]
    assert yard.ended(job_id).state == "succeeded"
    assert [job.job_id for job in yard.client("acme").list(name="once")] == [job_id]


def test_hostile_events_on_the_bus_block_nobody(yard: Yard) -> None:
    """Each is rejected or dead-lettered; the job behind them runs."""
    for number, body in enumerate(HOSTILE):
        yard.publish("gpuyard.req.acme.job.submit.v1", body, {"ce-id": f"hostile-{number}", "traceparent": "x", "ce-time": "never"})
    yard.publish("gpuyard.req.acme.job.submit.v99", b"{}")
    yard.publish("gpuyard.req.acme.job.cancel.v1", b'{"job_id": "job-aaaaaaaaaaaaaaaa", "reason": "\\u0000"}')
    yard.publish("gpuyard.evt.placement.allocation.started.v1.acme.x", b"{")
    yard.publish("gpuyard.usage.v1.sim-a100", b'{"boot_id": "b", "sequence": -1, "at": "2099-01-01T00:00:00Z", "held": []}')
    yard.publish("gpuyard.cmd.placement.place.v1.job-aaaaaaaaaaaaaaaa", b'{"ranks": "x"}')
    yard.publish("gpuyard.cmd.node-agent.sim-a100.start.v1", b"nonsense")
    assert yard.ended(yard.shell("true")).state == "succeeded"
    yard.stack.wait_ready(seconds=20)


def test_a_request_on_the_bus_that_cannot_be_read_is_answered(yard: Yard) -> None:
    """The tenant hears which field is wrong."""
    yard.publish(
        "gpuyard.req.beta.job.submit.v1", b'{"spec": {"name": "x", "command": ["a"], "priority": "urgent"}, "request_id": "bad-1"}'
    )

    def rejected() -> list[str]:
        return [str(event.data) for event in yard.client("beta").all_events() if event.name == "job.rejected"]

    told = yard.until("the rejection", rejected)
    assert "priority" in told[-1]
    assert "urgent" in told[-1]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"gpu": "H100:1"}, "H100"),
        ({"gpu": "A100:64"}, "64"),
        ({"priority": "urgent"}, "priority"),
        ({"nmae": "x"}, "nmae"),
        ({"gpu": "A100:0.0001"}, "gpu"),
        ({"ranks": 0}, "ranks"),
        ({"env": {"RANK": "1"}}, "RANK"),
        ({"command": []}, "command"),
        ({"name": "a\u0000"}, "name"),
    ],
)
def test_a_request_that_can_never_run_is_refused_at_the_door(yard: Yard, change: dict, says: str) -> None:
    """The error names the field or the card, and what to do."""
    spec = {"name": "x", "command": ["true"], "gpu": "A100:1", **change}
    with pytest.raises(GpuyardError) as caught:
        yard.client("acme").submit_spec(spec)
    assert says in str(caught.value)


def test_tenants_do_not_see_each_other(yard: Yard) -> None:
    """A foreign job is not there: not to see, cancel, read or bill."""
    job = yard.shell("sleep 5")
    beta = yard.client("beta")
    for look in (
        beta.get,
        beta.cancel,
        beta.explain,
        beta.trace,
        beta.cost,
        lambda job_id: list(beta.logs(job_id)),
        lambda job_id: list(beta.events(job_id)),
    ):
        with pytest.raises(NotFound):
            look(job.job_id)
    assert job.job_id not in [found.job_id for found in beta.list()]
    with pytest.raises(GpuyardError):
        beta.create_tenant("gamma", name="Gamma")
    yard.client("acme").cancel(job.job_id)
    assert yard.ended(job).state == "cancelled"


def test_jobs_that_cannot_start_fail_with_the_reason_and_hold_nothing(yard: Yard) -> None:
    """B33, B51: no such program is permanent; an early death is told with its last words."""
    missing = yard.client("acme").submit("missing", ["/no/such/program"], gpu="A100:1")
    early = yard.shell("echo 'ImportError: no module named torch' >&2; exit 3")
    ended = yard.ended(missing)
    assert (ended.state, ended.reason) == ("failed", "start-failed")
    assert "/no/such/program" in ended.detail
    ended = yard.ended(early)
    assert (ended.state, ended.reason, ended.exit_code) == ("failed", "exit-code", 3)
    assert "no module named torch" in ended.detail
    yard.nothing_is_held()


def test_a_job_is_tried_again_as_often_as_it_asks(yard: Yard) -> None:
    """Two retries are three attempts; then the exit code is the reason."""
    tally = yard.tally()
    ended = yard.ended(yard.shell(f"echo x >> {tally}; exit 1", retries=2))
    assert (ended.state, ended.attempt) == ("failed", 3)
    assert tally.read_text().split() == ["x"] * 3


def test_a_job_past_its_time_limit_expires(yard: Yard) -> None:
    """max_seconds is kept, and told as the reason."""
    ended = yard.ended(yard.shell("sleep 60", max_seconds=2, grace_seconds=1))
    assert (ended.state, ended.reason) == ("expired", "time-limit")


def test_quota_is_never_passed(yard: Yard) -> None:
    """B34: of four one-card jobs of a tenant with two cards, two run; when one stops, exactly one starts."""
    jobs = [yard.shell("sleep 30", tenant="beta", grace_seconds=0) for _ in range(4)]
    beta = yard.client("beta")

    def states() -> list[str]:
        return [beta.get(job.job_id).state for job in jobs]

    yard.until("two running", states, lambda found: found.count("running") == 2 and found.count("queued") == 2)
    first = next(job for job in jobs if beta.get(job.job_id).state == "running")
    beta.cancel(first.job_id)
    beta.cancel(first.job_id)
    yard.until("the third", states, lambda found: found.count("cancelled") == 1 and found.count("running") == 2)
    assert states().count("queued") == 1
    for job in jobs:
        beta.cancel(job.job_id)
    for job in jobs:
        yard.ended(job, tenant="beta")


def test_a_full_card_takes_no_share_more(yard: Yard) -> None:
    """B35 on a T4 (15360 MiB): of eight shares of 5000 MiB on four cards all run, three to a card at most."""
    jobs = [yard.shell("sleep 4", gpu="T4:5000MiB") for _ in range(8)]
    for job in jobs:
        yard.running(job)
    for gpu in yard.admin.gpus():
        assert gpu.used_memory_mib <= gpu.memory_mib
    for job in jobs:
        assert yard.ended(job).state == "succeeded"


def test_rejected_jobs_say_why_to_the_sdk(yard: Yard) -> None:
    """A rejection is an error of its own kind."""
    with pytest.raises(Rejected):
        yard.client("acme").submit("big", ["true"], gpu="B300:1")


def test_events_can_be_resumed_where_they_broke_off(yard: Yard) -> None:
    """The cursor of one stream is where the next begins: nothing is missed, nothing comes twice."""
    job = yard.shell("true")
    yard.ended(job)
    client = yard.client("acme")
    events = yard.until(
        "the bill", lambda: list(client.events(job.job_id)), lambda seen: any(event.name == "ledger.posted" for event in seen)
    )
    assert [event.seq for event in events] == sorted({event.seq for event in events})
    again = list(client.events(job.job_id, after=events[2].seq))
    assert [event.seq for event in again] == [event.seq for event in events[3:]]
    trace = client.trace(job.job_id)
    assert trace.is_complete
    assert {step.name for step in trace.steps[-2:]} == {"job.ended", "ledger.posted"}, "two services tell of the end, in either order"
