"""The outermost layer: bounds on bodies, an answer for every fault, and what is served to everybody."""

import asyncio
import json
from typing import Any

import pytest
from gpuyard_api.deadlines import within
from gpuyard_api.http.door import Door
from gpuyard_api.http.turns import Turns
from gpuyard_runtime.faults import Unavailable

from tests.support.api_yard import SPEC, ApiWorld


async def _call(
    app: Any, messages: list[dict[str, Any]], headers: list[tuple[bytes, bytes]] | None = None, **options: Any
) -> tuple[int, dict[str, Any]]:
    """One POST through a door; after the messages the client says nothing more."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        if not messages:
            await asyncio.Event().wait()
        return messages.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/", "headers": headers or []}
    await Door(app, **options)(scope, receive, send)
    if not sent:
        return 0, {}
    return sent[0]["status"], json.loads(sent[1]["body"])


async def _never(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError("the route must not be reached")


async def test_a_body_that_is_said_to_be_too_large_is_not_read() -> None:
    """413 from the header alone."""
    status, problem = await _call(_never, [], [(b"content-length", b"1025")], max_body_bytes=1024)
    assert (status, problem["code"]) == (413, "too-large")


async def test_a_body_that_turns_out_too_large_is_dropped() -> None:
    """413 where the header says nothing."""
    parts = [{"type": "http.request", "body": b"x" * 600, "more_body": True} for _ in range(3)]
    status, problem = await _call(_never, parts, max_body_bytes=1024)
    assert (status, problem["code"], len(parts)) == (413, "too-large", 1)


async def test_a_body_that_dribbles_is_given_up() -> None:
    """408, so that nobody can hold a request open without sending it."""
    status, problem = await _call(_never, [{"type": "http.request", "body": b"x", "more_body": True}], body_seconds=0.01)
    assert (status, problem["code"]) == (408, "body-timeout")


async def test_a_client_that_leaves_gets_nothing() -> None:
    """And no route runs for it."""
    assert await _call(_never, [{"type": "http.disconnect"}]) == (0, {})


async def test_another_type_than_json_is_refused(world: ApiWorld) -> None:
    """With what to send instead; a body without a type is taken for JSON."""
    client = world.as_("acme")
    form = await client.post("/v1/jobs", content=json.dumps(SPEC), headers={"content-type": "application/x-www-form-urlencoded"})
    assert (form.status_code, form.json()["code"]) == (415, "not-json")
    assert (await client.post("/v1/jobs", content=json.dumps(SPEC))).status_code == 202
    merge = await client.post("/v1/jobs", content=json.dumps(SPEC), headers={"content-type": "application/merge-patch+json; charset=utf-8"})
    assert merge.status_code == 202


async def test_a_fault_of_ours_is_a_problem_without_our_inside(world: ApiWorld, monkeypatch: Any, capsys: Any) -> None:
    """500, and neither the answer nor the log repeats what the exception says."""

    async def broken(*args: Any) -> Any:
        raise KeyError("secret-4711")

    monkeypatch.setattr(world.reads, "jobs", broken)
    answer = await world.as_("acme").get("/v1/jobs")
    assert (answer.status_code, answer.json()["code"]) == (500, "internal")
    written = "".join(capsys.readouterr())
    assert "4711" not in answer.text + written
    assert "request_failed" in written


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [("get", "/v2/jobs", 404, "no-such-path"), ("put", "/v1/jobs", 405, "method-not-allowed"), ("get", "/v1/jobs/", 404, "not-found")],
)
async def test_wrong_addresses_are_problems(world: ApiWorld, method: str, path: str, status: int, code: str) -> None:
    """As everything else."""
    answer = await world.as_("acme").request(method, path)
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.status_code == status
    assert answer.json()["code"] in (code, "no-such-path")


async def test_health_needs_no_token(world: ApiWorld) -> None:
    """And says what is missing."""
    client = world.as_(None)
    assert (await client.get("/v1/health")).json() == {"status": "ready", "complaints": []}
    world.engine.reasons.append("database: away")
    answer = await client.get("/v1/health")
    assert (answer.status_code, answer.json()["complaints"]) == (503, ["database: away"])


async def test_waiting_has_an_end_even_for_what_cannot_be_cancelled() -> None:
    """A connection to a frozen server does not react to being cancelled; who asked is answered all the same."""
    released = asyncio.Event()

    async def stubborn() -> str:
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                continue
        return "late"

    with pytest.raises(Unavailable, match="database"):
        await within(0.01, stubborn(), "database")
    released.set()
    assert await within(1, stubborn(), "database") == "late"


async def test_what_fails_late_is_not_reported_as_lost() -> None:
    """Its error belongs to nobody any more; filterwarnings would fail this test."""

    async def failing() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("too late")

    with pytest.raises(Unavailable):
        await within(0.01, failing(), "database")
    await asyncio.sleep(0)
    with pytest.raises(ZeroDivisionError):
        await within(1, _divide(), "database")


async def _divide() -> float:
    return 1 / 0


async def test_turns_are_taken_one_by_one_and_forgotten() -> None:
    """Two of one key do not overlap, two of different keys do; a failing one gives its turn on."""
    turns = Turns()
    log: list[str] = []

    async def one(key: str, name: str) -> None:
        async with turns.of(key):
            log.append(f"{name} in")
            await asyncio.sleep(0)
            log.append(f"{name} out")
            if name == "b":
                raise ValueError

    await asyncio.gather(one("k", "a"), one("k", "b"), one("k", "c"), one("other", "d"), return_exceptions=True)
    of_k = [entry for entry in log if not entry.startswith("d")]
    assert of_k == ["a in", "a out", "b in", "b out", "c in", "c out"]
    assert log.index("d in") < log.index("a out")
    assert len(turns) == 0
