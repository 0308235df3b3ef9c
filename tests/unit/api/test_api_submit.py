"""Asking for jobs: well-formed or not, once or again, with and without waiting."""

import asyncio
import json
from typing import Any

import httpx
import pytest
from gpuyard_api.http.door import Door
from gpuyard_api.web import web
from gpuyard_contracts.types import job_id_of

from tests.support.api_yard import ROUTES, SPEC, ApiWorld

WAITING = 5


async def _until(condition: Any) -> None:
    """Give way to the loop until the condition holds."""
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0)


async def test_a_job_can_be_found_at_once(world: ApiWorld) -> None:
    """202 with the job, before the scheduler has heard of it."""
    client = world.as_("acme")
    answer = await client.post("/v1/jobs", json=SPEC | {"gpu": "A100:2", "labels": {"team": "vision"}})
    job = answer.json()
    assert (answer.status_code, job["state"], job["tenant"]) == (202, "submitted", "acme")
    assert job["spec"]["gpu"] == {"count": 2, "milli": 1000, "models": ["A100"]}
    assert answer.headers["location"] == f"/v1/jobs/{job['job_id']}"
    assert (await client.get(answer.headers["location"])).json() == job
    (submit,) = world.submitted()
    assert (submit.tenant, submit.spec.name, job_id_of("acme", submit.request_id or "")) == ("acme", "train", job["job_id"])


async def test_without_a_key_each_request_is_a_job(world: ApiWorld) -> None:
    """Two requests, two jobs."""
    client = world.as_("acme")
    ids = {(await client.post("/v1/jobs", json=SPEC)).json()["job_id"] for _ in range(2)}
    assert len(ids) == 2


async def test_the_same_key_and_body_are_the_same_job(world: ApiWorld) -> None:
    """However the body is written; the repeat is answered with the job as it is by then."""
    client = world.as_("acme")
    key = {"idempotency-key": "my key 1"}
    first = await client.post("/v1/jobs", json=SPEC, headers=key)
    world.accept(world.submitted()[0])
    again = await client.post("/v1/jobs", content=json.dumps(dict(reversed(SPEC.items())), indent=8), headers=key)
    assert (first.status_code, again.status_code) == (202, 200)
    assert again.json()["job_id"] == first.json()["job_id"]
    assert (again.json()["state"], again.headers["idempotent-replayed"]) == ("queued", "true")
    assert len(world.submitted()) == 1


async def test_twenty_at_once_make_one_job(world: ApiWorld) -> None:
    """Repeats that do not wait for each other's answer."""
    client = world.as_("acme")
    answers = await asyncio.gather(*(client.post("/v1/jobs", json=SPEC, headers={"idempotency-key": "k"}) for _ in range(20)))
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["job_id"] for answer in answers}) == 1
    assert len(world.submitted()) == 1
    assert len(world.yard.turns) == 0


async def test_a_key_with_another_body_is_a_conflict(world: ApiWorld) -> None:
    """409, the first job stays as it is, and the audit log knows."""
    client = world.as_("acme")
    first = await client.post("/v1/jobs", json=SPEC, headers={"idempotency-key": "k"})
    other = await client.post("/v1/jobs", json=SPEC | {"name": "other"}, headers={"idempotency-key": "k"})
    assert (other.status_code, other.json()["code"]) == (409, "idempotency-conflict")
    assert other.json()["job_id"] == first.json()["job_id"]
    assert len(world.submitted()) == 1
    assert [row.result for row in world.harness.journal("audit") if row.action == "job.submit"] == ["done", "idempotency-conflict"]


async def test_two_bodies_at_once_under_one_key_are_a_job_and_a_conflict(world: ApiWorld) -> None:
    """The second is never taken for a repeat of the first."""
    client = world.as_("acme")
    answers = await asyncio.gather(
        *(client.post("/v1/jobs", json=SPEC | {"name": name}, headers={"idempotency-key": "k"}) for name in ("one", "two"))
    )
    assert sorted(answer.status_code for answer in answers) == [202, 409]
    assert len(world.submitted()) == 1


async def test_keys_belong_to_their_tenant(world: ApiWorld) -> None:
    """Two tenants with the same key have two jobs."""
    ids = {
        (await world.as_(who).post("/v1/jobs", json=SPEC, headers={"idempotency-key": "k"})).json()["job_id"] for who in ("acme", "beta")
    }
    assert len(ids) == 2


async def test_waiting_answers_with_the_schedulers_yes(world: ApiWorld) -> None:
    """201 with the queued job."""
    asking = asyncio.ensure_future(world.as_("acme").post(f"/v1/jobs?wait={WAITING}", json=SPEC))
    await _until(world.submitted)
    assert not asking.done()
    world.accept(world.submitted()[0])
    answer = await asking
    assert (answer.status_code, answer.json()["state"]) == (201, "queued")
    assert world.hub.watchers == 0


async def test_waiting_answers_with_the_schedulers_no(world: ApiWorld) -> None:
    """422 with reason and detail; asking again with the same key gives the same no."""
    client = world.as_("acme")
    key = {"idempotency-key": "k"}
    asking = asyncio.ensure_future(client.post(f"/v1/jobs?wait={WAITING}", json=SPEC, headers=key))
    await _until(world.submitted)
    world.reject(world.submitted()[0])
    answer = await asking
    assert (answer.status_code, answer.json()["code"], answer.json()["reason"]) == (422, "job-rejected", "never-fits")
    assert answer.json()["detail"] == "no node has 900 GPUs"
    again = await client.post("/v1/jobs", json=SPEC, headers=key)
    assert (again.status_code, again.json()["reason"]) == (422, "never-fits")


async def test_waiting_ends_with_the_time(world: ApiWorld) -> None:
    """202: the request is kept, nobody has answered yet."""
    answer = await world.as_("acme").post("/v1/jobs?wait=0.01", json=SPEC)
    assert (answer.status_code, answer.json()["state"]) == (202, "submitted")


async def test_a_repeat_waits_too(world: ApiWorld) -> None:
    """The second of two that wait is answered by the same yes."""
    client = world.as_("acme")
    asking = [asyncio.ensure_future(client.post(f"/v1/jobs?wait={WAITING}", json=SPEC, headers={"idempotency-key": "k"})) for _ in range(2)]
    await _until(lambda: world.hub.watchers == 2 and world.submitted())
    for _ in range(20):
        await asyncio.sleep(0)
    world.accept(world.submitted()[0])
    assert sorted([answer.status_code for answer in await asyncio.gather(*asking)]) == [200, 201]


async def test_a_request_that_the_bus_brought_before_is_the_same_job(world: ApiWorld) -> None:
    """The scheduler told of it before api's own request was committed: no second request is said."""
    client = world.as_("acme")
    first = (await client.post("/v1/jobs", json=SPEC, headers={"idempotency-key": "k"})).json()["job_id"]
    world.accept(world.submitted()[0])
    world.harness.database.journals["job_asks"].clear()  # as if only the bus had brought it
    again = await client.post("/v1/jobs", json=SPEC, headers={"idempotency-key": "k"})
    assert (again.status_code, again.json()["job_id"], len(world.submitted())) == (200, first, 1)


async def test_an_operator_says_for_whom(world: ApiWorld) -> None:
    """A job needs a tenant that exists; a tenant's token asks for nobody else."""
    admin = world.as_("admin")
    assert (await admin.post("/v1/jobs", json=SPEC)).json()["errors"][0]["field"] == "tenant"
    assert (await admin.post("/v1/jobs?tenant=nobody", json=SPEC)).status_code == 404
    assert (await admin.post("/v1/jobs?tenant=acme", json=SPEC)).json()["tenant"] == "acme"
    assert (await world.as_("acme").post("/v1/jobs?tenant=beta", json=SPEC)).status_code == 404


async def test_the_callers_trace_goes_on(world: ApiWorld) -> None:
    """The request that is said is in the trace of the HTTP request."""
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    await world.as_("acme").post("/v1/jobs", json=SPEC, headers={"traceparent": trace})
    assert (world.harness.envelopes[-1].traceparent or "").split("-")[1] == "0af7651916cd43dd8448eb211c80319c"


@pytest.mark.parametrize(
    ("changes", "field", "says"),
    [
        ({"priority": "urgent"}, "priority", "'urgent' is not one of low, normal, high"),
        ({"gpus": 2}, "gpus", "is not a known field"),
        ({"gpu": {"cuont": 2}}, "gpu.cuont", "is not a known field"),
        ({"ranks": 0}, "ranks", "must be at least 1, but is 0"),
        ({"ranks": "many"}, "ranks", "must be a whole number, but is 'many'"),
        ({"name": "a\u0000b"}, "name", "control characters"),
        ({"command": ["a\u0000b"]}, "command.0", "NUL"),
        ({"command": []}, "command", "must not be empty"),
        ({"name": ""}, "name", "must not be empty"),
        ({"env": {"A B": "x"}}, "env.A B", "is not a name of a variable"),
        ({"gpu": "0.0001"}, "gpu", "thousandths"),
        ({"env": {"CUDA_VISIBLE_DEVICES": "0"}}, "env", "set by gpuyard"),
        ({"labels": {"ключ": "x"}}, "labels", "label key"),
        ({"max_seconds": 1e400}, "max_seconds", "finite number"),
    ],
)
async def test_a_bad_field_is_named_with_what_is_wrong(world: ApiWorld, changes: dict[str, Any], field: str, says: str) -> None:
    """422 in plain English, for programs and for people."""
    body = json.dumps(SPEC | changes)
    answer = await world.as_("acme").post("/v1/jobs", content=body, headers={"content-type": "application/json"})
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (422, "invalid-request")
    assert answer.headers["content-type"] == "application/problem+json"
    assert problem["errors"][0]["field"].startswith(field)
    assert says in problem["errors"][0]["message"] and "[" not in problem["errors"][0]["field"]
    assert says in problem["detail"]
    assert not world.submitted()


async def test_one_fault_is_told_once(world: ApiWorld) -> None:
    """A list whose only entry is refused is not called empty, too; one that is empty is."""
    client = world.as_("acme")
    for command, field in (([1], "command.0"), ([], "command")):
        problem = (await client.post("/v1/jobs", json=SPEC | {"command": command})).json()
        assert [error["field"] for error in problem["errors"]] == [field]


@pytest.mark.parametrize(
    ("query", "headers", "body"),
    [
        ("", {}, json.dumps(SPEC)),
        ("?wait=0&tenant=acme", {}, json.dumps(SPEC | {"gpu": "T4:0.25", "labels": {"a": "ü"}})),
        ("?wait=61", {}, json.dumps(SPEC)),
        ("?wait=nan", {}, json.dumps(SPEC)),
        ("?wait=0&wait=99", {}, json.dumps(SPEC)),
        ("?tenant=beta", {}, json.dumps(SPEC)),
        ("?tenant=§", {}, json.dumps(SPEC)),
        ("?other=1", {}, json.dumps(SPEC)),
        ("", {"idempotency-key": "a key"}, json.dumps(SPEC)),
        ("", {"idempotency-key": "x" * 256}, json.dumps(SPEC)),
        ("", {"authorization": "Bearer nonsense"}, json.dumps(SPEC)),
        ("", {"authorization": "Bearer nonsense"}, json.dumps(SPEC | {"ranks": 0})),
        ("", {"traceparent": "nonsense"}, json.dumps(SPEC)),
        ("", {}, json.dumps(SPEC | {"ranks": "2", "max_seconds": 5.0})),
        ("", {}, json.dumps(SPEC | {"ranks": 0, "priority": "urgent"})),
        ("", {}, json.dumps(SPEC).encode("utf-16")),
        ("", {}, '{"name":'),
        ("", {}, "[]"),
        ("", {}, ""),
    ],
)
async def test_both_ways_of_reading_a_request_understand_it_alike(world: ApiWorld, query: str, headers: dict[str, str], body: Any) -> None:
    """The short way and the route give the same answer, but for the ids of two jobs."""
    answers: list[tuple[int, Any, Any]] = []
    for short in (world.app, Door(ROUTES)):
        client = httpx.AsyncClient(transport=httpx.ASGITransport(app=short), base_url="http://api")
        given = {"authorization": f"Bearer {world.tokens['acme']}", "content-type": "application/json"} | headers
        answer = await client.post(f"/v1/jobs{query}", content=body, headers=given)
        content = {name: value for name, value in answer.json().items() if name not in ("job_id", "submitted_at", "changed_at")}
        answers.append((200 if answer.status_code == 202 else answer.status_code, content, answer.headers["content-type"]))
        await client.aclose()
    assert answers[0] == answers[1]


async def test_a_request_is_counted_under_its_route(world: ApiWorld) -> None:
    """Whichever way it took."""
    seen: list[tuple[str, str, int]] = []
    app = web(world.yard, app=ROUTES, observe=lambda method, route, status, seconds: seen.append((method, route, status)))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://api") as client:
        for query in ("", "?other=1"):
            await client.post(f"/v1/jobs{query}", json=SPEC, headers={"authorization": f"Bearer {world.tokens['acme']}"})
    assert seen == [("POST", "/v1/jobs", 202)] * 2


async def test_a_guess_is_offered(world: ApiWorld) -> None:
    """By meaning and by spelling."""
    client = world.as_("acme")
    urgent = await client.post("/v1/jobs", json=SPEC | {"priority": "urgent"})
    assert urgent.json()["errors"][0]["fix"] == "did you mean high?"
    typed = await client.post("/v1/jobs", json=SPEC | {"retires": 1, "timeout": 5})
    assert {error["fix"] for error in typed.json()["errors"]} == {"did you mean 'retries'?", "did you mean 'max_seconds'?"}


async def test_secrets_are_not_repeated(world: ApiWorld) -> None:
    """Values of env and command appear in no problem and no audit line."""
    client = world.as_("acme")
    for changes in ({"env": {"KEY": 4711}}, {"env": {"KEY": "4711\u0000"}}, {"command": [4711]}, {"command": "4711"}):
        answer = await client.post("/v1/jobs", json=SPEC | changes)
        assert answer.status_code == 422
        assert "4711" not in answer.text
    await client.post("/v1/jobs", json=SPEC | {"env": {"KEY": "4711"}})
    assert "4711" not in str(world.harness.journal("audit"))


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, "bad-json"),
        (b"", 422, "invalid-request"),
        (b"[]", 422, "invalid-request"),
        (b'"text"', 422, "invalid-request"),
        (b"\xff\xfe", 400, "bad-json"),
        (b"[" * 200_000, 400, "bad-json"),
        (b'{"ranks": ' + b"9" * 5000 + b"}", 400, "bad-json"),
        (b'{"name": "\\ud800", "command": ["x"]}', 422, "invalid-request"),
    ],
)
async def test_a_body_that_is_no_request_is_a_problem(world: ApiWorld, body: bytes, status: int, code: str) -> None:
    """Whatever bytes come, a problem goes back."""
    answer = await world.as_("acme").post("/v1/jobs", content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["code"]) == (status, code)


@pytest.mark.parametrize("key", ["", " ", "a" * 256, "schlüssel", "tab\tkey"])
async def test_a_key_is_printable_ascii(world: ApiWorld, key: str) -> None:
    """B58: other bytes in the header are refused by name, not misread."""
    answer = await world.as_("acme").post("/v1/jobs", json=SPEC, headers=[(b"idempotency-key", key.encode())])
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "Idempotency-Key"


async def test_a_database_that_is_away_is_a_503(world: ApiWorld) -> None:
    """Nothing is said, and the caller may try again."""
    world.engine.is_hung = True
    answer = await world.as_("acme").post("/v1/jobs", json=SPEC)
    assert (answer.status_code, answer.json()["code"], answer.json()["retryable"]) == (503, "database-unavailable", True)
    assert answer.headers["retry-after"]
