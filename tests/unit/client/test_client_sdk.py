"""The SDK: results, waiting and following."""

import httpx
import pytest
from gpuyard.client import Client
from gpuyard.errors import GpuyardError, Unreachable, WaitTimeout
from gpuyard.results import Job, build

from tests.unit.client.client_api import Api, job, problem


def broken(request: httpx.Request) -> httpx.Response:
    """A connection that breaks."""
    raise httpx.ReadError("reset", request=request)


def test_a_job_is_built_with_instants_places_and_whatever_else_the_api_says() -> None:
    """Fields of a newer api are kept in `raw` and do no harm."""
    content = job(
        "a", placement=[{"rank": 0, "node_id": "n1", "gpus": ["G1"]}, {"rank": 1, "node_id": "n1", "gpus": []}],
        submitted_at="2030-01-31T12:00:00Z", started_at=None, colour="blue",
    )  # fmt: skip
    made = build(Job, content)
    assert made.nodes == ("n1",) and made.submitted_at is not None and made.submitted_at.year == 2030 and made.started_at is None
    assert made.raw["colour"] == "blue"


@pytest.mark.parametrize("content", [None, [], "x", {"job_id": "a"}])
def test_an_answer_without_what_must_be_there_is_an_error_with_a_hint(content: object) -> None:
    """Not a KeyError somewhere later."""
    with pytest.raises(GpuyardError) as caught:
        build(Job, content)
    assert "as new as the api" in caught.value.fix


def test_submit_sends_the_spec_once_and_waits_for_the_schedulers_answer(api: Api) -> None:
    """The shorthand goes as it is: the api reads it."""
    api.on("POST", "/v1/jobs", httpx.Response(201, json=job("a", state="queued")))
    made = api.client().submit("train", ["python3", "train.py"], gpu="A100:2", ranks=2, tenant="acme", key="k1", wait_seconds=5)
    assert made.state == "queued"
    assert api.sent() == [{"name": "train", "command": ["python3", "train.py"], "gpu": "A100:2", "ranks": 2}]
    assert dict(api.requests[0].url.params) == {"wait": "5", "tenant": "acme"} and api.requests[0].headers["idempotency-key"] == "k1"


def test_listing_takes_all_pages(api: Api) -> None:
    """As they are needed."""
    api.on("GET", "/v1/jobs", {"jobs": [job("a")], "next_cursor": "c1"}, {"jobs": [job("b")], "next_cursor": None})
    assert [found.job_id for found in api.client().list(tenant="acme")] == [job("a")["job_id"], job("b")["job_id"]]
    assert [request.url.params.get("cursor") for request in api.requests] == [None, "c1"]


def test_waiting_sees_every_state_and_ends_with_the_job(api: Api) -> None:
    """Between looks it pauses."""
    path = "/v1/jobs/" + job("a")["job_id"]
    api.on("GET", path, job("a", state="queued"), job("a"), job("a", state="succeeded"))
    seen: list[str] = []
    assert api.client().wait(job("a")["job_id"], seen=lambda found: seen.append(found.state)).is_good
    assert seen == ["queued", "running", "succeeded"] and len(api.pauses) == 2


def test_waiting_bears_an_api_that_is_away_for_a_while(api: Api) -> None:
    """A restart of the api does not end a wait."""
    path = "/v1/jobs/" + job("a")["job_id"]
    api.on("GET", path, job("a"), broken, broken, broken, broken, job("a", state="succeeded"))
    assert api.client().wait(job("a")["job_id"]).is_good


def test_waiting_no_longer_than_asked(api: Api) -> None:
    """The job itself goes on."""
    api.jobs(job("a", state="queued"))
    with pytest.raises(WaitTimeout, match="has not come so far within 0 s"):
        api.client().wait(job("a")["job_id"], timeout_seconds=0)


def lines(*rows: tuple[int, int, str]) -> httpx.Response:
    """Log lines (rank, number, text) as NDJSON."""
    text = "".join(f'{{"attempt":1,"rank":{rank},"stream":"stdout","number":{number},"text":"{said}"}}\n' for rank, number, said in rows)
    return httpx.Response(200, text=text)


def test_following_logs_over_a_break_shows_every_line_once(api: Api) -> None:
    """What was shown is known by attempt, rank, stream and number."""
    path = "/v1/jobs/" + job("a")["job_id"]
    api.on("GET", path, *[job("a")] * 6, job("a", state="succeeded"))
    whole = lines((0, 0, "one"), (1, 0, "other"), (0, 1, "two"), (0, 2, "three"))
    api.on("GET", path + "/logs", lines((0, 0, "one")), broken, lines((0, 0, "one"), (1, 0, "other"), (0, 1, "two")), whole)
    shown = [line.text for line in api.client().logs(job("a")["job_id"], follow=True)]
    assert shown == ["one", "other", "two", "three"]


def test_following_logs_of_an_ended_job_reads_them_once(api: Api) -> None:
    """There is nothing to wait for."""
    api.jobs(job("a", state="failed"))
    api.on("GET", f"/v1/jobs/{job('a')['job_id']}/logs", lines((0, 0, "one")))
    assert [line.text for line in api.client().logs(job("a")["job_id"], follow=True)] == ["one"] and api.pauses == []


def event(seq: int, name: str = "job.queued") -> dict[str, object]:
    """One event."""
    return {"seq": seq, "name": name, "at": "2030-01-31T12:00:00Z", "data": {}}


def test_events_are_read_page_by_page(api: Api) -> None:
    """By `seq`."""
    path = f"/v1/jobs/{job('a')['job_id']}/events"
    api.on("GET", path, {"events": [event(3), event(4)], "next_after": 4}, {"events": [event(9)], "next_after": None})
    assert [found.seq for found in api.client().events(job("a")["job_id"])] == [3, 4, 9]
    assert [request.url.params.get("after") for request in api.requests] == [None, "4"]


def test_following_events_goes_on_behind_the_last_one_seen(api: Api) -> None:
    """A break neither repeats nor skips any."""
    path = "/v1/jobs/" + job("a")["job_id"]
    api.on("GET", path, job("a"), job("a"), job("a", state="succeeded"))
    frames = ['data: {"seq":3,"name":"a","at":"2030-01-31T12:00:00Z"}\n\n', 'data: {"seq":5,"name":"b","at":"2030-01-31T12:00:00Z"}\n\n']
    api.on("GET", path + "/events", *(httpx.Response(200, text=frame) for frame in frames))
    assert [found.seq for found in api.client().events(job("a")["job_id"], follow=True)] == [3, 5]
    assert [request.url.params.get("after") for request in api.requests if request.url.path.endswith("/events")] == [None, "3"]


def test_a_tenant_is_changed_at_the_version_that_was_seen(api: Api) -> None:
    """So that nobody's change is overwritten unseen."""
    api.on("GET", "/v1/tenants/acme", {"tenant": "acme", "version": 3})
    api.on("PATCH", "/v1/tenants/acme", {"tenant": "acme", "version": 4, "weight": 7})
    assert api.client().set_tenant("acme", weight=7).version == 4
    assert api.sent("PATCH") == [{"weight": 7, "version": 3}]


def test_an_operators_acts_name_the_node_and_the_card(api: Api) -> None:
    """Only what was given is sent."""
    for verb in ("cordon", "drain", "uncordon"):
        api.on("POST", f"/v1/nodes/n1/{verb}", {"order": verb})
    yard = api.client()
    yard.cordon("n1", "new fan", gpu_uuid="GPU-1")
    yard.drain("n1")
    yard.uncordon("n1", holder="operator/b")
    assert api.sent() == [{"reason": "new fan", "gpu_uuid": "GPU-1"}, {"reason": ""}, {"holder": "operator/b"}]


def test_verifying_is_asked_for_and_its_differences_are_kept(api: Api) -> None:
    """To the unit."""
    row = {"where": "tenant:acme", "expected": "5", "found": "6"}
    api.on("POST", "/v1/ledger/verify", {"is_right": False, "differences": [row], "expected_micros": 5, "ledger_micros": 6})
    found = api.client().verify_ledger()
    assert not found.is_right and found.differences == (row,)


def test_a_client_without_an_api_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    """At once, before any request."""
    monkeypatch.chdir(str(tmp_path))
    for name in ("GPUYARD_URL", "GPUYARD_TOKEN", "GPUYARD_TENANT", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(GpuyardError, match="no gpuyard api is known"):
        Client()


def test_problems_while_following_that_are_no_break_are_raised(api: Api) -> None:
    """A job that is not there does not come back."""
    with pytest.raises(GpuyardError, match="there is no"):
        list(api.client().logs("job-" + "a" * 16, follow=True))
    api.jobs(job("a"))
    api.on("GET", f"/v1/jobs/{job('a')['job_id']}/logs", problem(403, "forbidden", "not yours"))
    with pytest.raises(GpuyardError, match="not yours") as caught:
        list(api.client().logs(job("a")["job_id"], follow=True))
    assert not isinstance(caught.value, Unreachable)
