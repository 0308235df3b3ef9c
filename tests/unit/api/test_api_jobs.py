"""Finding jobs, ending them, and asking why."""

import json
from datetime import datetime, timedelta
from typing import Any

import pytest
from gpuyard_contracts.messages.asks import UsageAskV1, UsageReplyV1, UsageRowV1
from gpuyard_contracts.messages.billing import LedgerPostedV1
from gpuyard_contracts.messages.explaining import ExplainAskV1, ExplainReplyV1, PlanAskV1, PlanReplyV1, VerdictV1
from gpuyard_contracts.messages.requests import JobCancelV1, JobSubmitV1
from gpuyard_contracts.messages.scheduler import (
    CandidateV1,
    JobPlacingV1,
    JobRunningV1,
    JobWaitingV1,
    RankPlanV1,
    ReceiptV1,
    SliceV1,
    TurnV1,
)
from gpuyard_contracts.types import job_id_of
from gpuyard_runtime.faults import Refused

from tests.support.api_yard import SPEC, ApiWorld, queued

RECEIPT = ReceiptV1(
    fits=9,
    nodes=1,
    chosen=(CandidateV1(node_id="a", version=7, score=640, terms={"waste": -4}),),
    turn=TurnV1(is_spare=False, rank=1, urgency=0, share_ppm=0, aged_at_us=1),
    policy="p",
    outlook="o",
    fleet="f",
    inputs="i",
)


async def _ids(world: ApiWorld, who: str, query: str = "") -> list[str]:
    answer = await world.as_(who).get(f"/v1/jobs{query}")
    assert answer.status_code == 200, answer.text
    return [job["job_id"] for job in answer.json()["jobs"]]


async def test_jobs_are_listed_newest_first_in_pages(world: ApiWorld) -> None:
    """Every job once, whatever comes in between."""
    made: list[str] = []
    for _ in range(5):
        made.append(await world.job())
        world.harness.clock.advance(1)
    seen: list[str] = []
    cursor = ""
    while True:
        page = (await world.as_("acme").get(f"/v1/jobs?limit=2{cursor}")).json()
        seen += [job["job_id"] for job in page["jobs"]]
        await world.job()
        world.harness.clock.advance(1)
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert seen == made[::-1]


async def test_jobs_of_one_instant_are_not_skipped(world: ApiWorld) -> None:
    """Equal times are told apart by id."""
    made = {await world.job() for _ in range(4)}
    first = (await world.as_("acme").get("/v1/jobs?limit=2")).json()
    rest = await _ids(world, "acme", f"?limit=10&cursor={first['next_cursor']}")
    assert {job["job_id"] for job in first["jobs"]} | set(rest) == made
    assert len(rest) == 2


async def test_lists_are_filtered(world: ApiWorld) -> None:
    """By state, name, labels (all of them), and tenant for operators."""
    plain = await world.job()
    labelled = await world.job(name="eval", labels={"team": "vision", "run": "7"})
    others = await world.job("beta")
    world.run(plain)
    assert await _ids(world, "acme", "?state=running") == [plain]
    assert set(await _ids(world, "acme", "?state=running&state=queued")) == {plain, labelled}
    assert await _ids(world, "acme", "?name=eval") == [labelled]
    assert await _ids(world, "acme", "?label=team=vision&label=run=7") == [labelled]
    assert await _ids(world, "acme", "?label=team=vision&label=run=8") == []
    assert set(await _ids(world, "admin")) == {plain, labelled, others}
    assert await _ids(world, "admin", "?tenant=beta") == [others]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("?state=gone", "state"),
        ("?cursor=!!", "cursor"),
        ("?cursor=bnVsbA", "cursor"),
        ("?label=team", "label"),
        ("?label=a%00b=c", "label"),
        ("?limit=0", "limit"),
        ("?limit=x", "limit"),
        ("?name=%00", "name"),
        ("?tenant=UPPER", "tenant"),
    ],
)
async def test_a_bad_query_is_named(world: ApiWorld, query: str, field: str) -> None:
    """422 with the parameter."""
    answer = await world.as_("admin").get(f"/v1/jobs{query}")
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, field)


@pytest.mark.parametrize("path", ["", "/events", "/logs", "/explain", "/trace", "/cost"])
async def test_anothers_job_is_not_found(world: ApiWorld, path: str) -> None:
    """Another tenant's job, one that never was and one that cannot be look the same."""
    job_id = await world.job("beta")
    client = world.as_("acme")
    answers = [await client.get(f"/v1/jobs/{name}{path}") for name in (job_id, "job-aaaaaaaaaaaaaaaa", "a%00b", "größe")]
    assert [answer.status_code for answer in answers] == [404] * 4
    assert {answer.json()["code"] for answer in answers} == {"not-found"}


async def test_a_cancel_is_passed_on(world: ApiWorld) -> None:
    """With its reason and who asked; a repeat is passed on again, the scheduler ignores it."""
    job_id = await world.job()
    answer = await world.as_("acme").post(f"/v1/jobs/{job_id}/cancel", json={"reason": "wrong data"})
    assert (answer.status_code, answer.json()["state"]) == (202, "queued")
    assert (await world.as_("admin").post(f"/v1/jobs/{job_id}/cancel")).status_code == 202
    said = world.harness.said_of(JobCancelV1)
    assert [(cancel.reason, cancel.by, cancel.tenant) for cancel in said] == [("wrong data", "tenant", "acme"), ("", "operator", "acme")]


async def test_an_ended_job_is_not_cancelled(world: ApiWorld) -> None:
    """200 with the job as it is, and nothing is said."""
    job_id = await world.job()
    world.end(job_id)
    answer = await world.as_("acme").post(f"/v1/jobs/{job_id}/cancel")
    assert (answer.status_code, answer.json()["state"]) == (200, "succeeded")
    assert world.harness.said_of(JobCancelV1) == []


@pytest.mark.parametrize("body", [{"reason": "a\u0000b"}, {"reason": "x" * 501}, {"why": "typo"}, {"reason": "\ud800"}])
async def test_a_bad_reason_is_refused(world: ApiWorld, body: dict[str, Any]) -> None:
    """No store could hold it, or it is not what it should be."""
    job_id = await world.job()
    client = world.as_("acme")
    answer = await client.post(f"/v1/jobs/{job_id}/cancel", content=json.dumps(body), headers={"content-type": "application/json"})
    assert answer.status_code == 422
    assert world.harness.said_of(JobCancelV1) == []


async def test_anothers_job_is_not_cancelled(world: ApiWorld) -> None:
    """404 and nothing said."""
    job_id = await world.job("beta")
    assert (await world.as_("acme").post(f"/v1/jobs/{job_id}/cancel")).status_code == 404
    assert world.harness.said_of(JobCancelV1) == []


async def test_explain_shows_the_schedulers_view(world: ApiWorld) -> None:
    """Reason, place, verdicts; jobs ahead only as far as the caller may know of them."""
    mine, other, job_id = await world.job(), await world.job("beta"), await world.job()
    world.engine.answers[ExplainAskV1] = ExplainReplyV1(
        job_id=job_id, state="queued", reason="no-free-gpus", detail="0 of 8 free", position=3, waiting=3, ahead=(mine, other),
        verdicts=(VerdictV1(node_id="a100-01", is_fit=False, constraint="gpus", detail="0 of 8 free"),), fleet_versions={"a100-01": 7},
    )  # fmt: skip
    told = (await world.as_("acme").get(f"/v1/jobs/{job_id}/explain")).json()
    assert (told["reason"], told["position"], told["ahead"]) == ("no-free-gpus", 3, [mine])
    assert told["verdicts"][0]["constraint"] == "gpus"
    assert (await world.as_("admin").get(f"/v1/jobs/{job_id}/explain")).json()["ahead"] == [mine, other]


async def test_a_placed_job_has_a_receipt(world: ApiWorld) -> None:
    """It is the last placement's, by itself and in the explanation; a job that was never placed has none."""
    job_id = await world.job()
    assert (await world.as_("acme").get(f"/v1/jobs/{job_id}/receipt")).status_code == 404
    for attempt, fits in ((1, 9), (2, 4)):
        world.harness.feed(
            JobPlacingV1(
                tenant="acme",
                job_id=job_id,
                attempt=attempt,
                ranks=(),
                at=world.harness.clock.now(),
                receipt=RECEIPT.model_copy(update={"fits": fits}),
            )
        )
    told = (await world.as_("acme").get(f"/v1/jobs/{job_id}/receipt")).json()
    assert (told["fits"], told["chosen"][0]["terms"], told["turn"]["rank"]) == (4, {"waste": -4}, 1)
    assert (await world.as_("beta").get(f"/v1/jobs/{job_id}/receipt")).status_code == 404
    world.engine.answers[ExplainAskV1] = ExplainReplyV1(job_id=job_id, state="placing")
    assert (await world.as_("acme").get(f"/v1/jobs/{job_id}/explain")).json()["receipt"] == told


async def test_a_past_instant_is_told_from_the_events(world: ApiWorld) -> None:
    """State, reason and receipt that were in force then, asking nobody; one before the request or yet to come is refused."""
    job_id, clock = await world.job(), world.harness.clock
    asked = clock.now()
    client = world.as_("acme")

    async def then(at: datetime) -> dict[str, Any]:
        answer = await client.get(f"/v1/jobs/{job_id}/explain", params={"at": at.isoformat()})
        return answer.json() | {"status": answer.status_code}

    clock.advance(10)
    world.harness.feed(JobWaitingV1(tenant="acme", job_id=job_id, reason="quota", detail="8 of 8 in use", at=clock.now()))
    clock.advance(10)
    placed = JobPlacingV1(tenant="acme", job_id=job_id, attempt=1, ranks=(), at=clock.now(), receipt=RECEIPT)
    world.harness.feed(placed, JobRunningV1(tenant="acme", job_id=job_id, attempt=1, started_at=clock.now()))
    clock.advance(10)
    world.end(job_id)
    told = [await then(asked + timedelta(seconds=seconds)) for seconds in (5, 15, 25, 30)]
    assert [(one["state"], one["reason"]) for one in told] == [
        ("queued", "not-considered-yet"), ("queued", "quota"), ("running", None), ("succeeded", "completed"),
    ]  # fmt: skip
    assert told[1]["detail"] == "8 of 8 in use"
    assert datetime.fromisoformat(told[1]["since"]) == asked + timedelta(seconds=10)
    assert [one["receipt"] is None for one in told] == [True, True, False, False]
    for at in (asked - timedelta(seconds=1), clock.now() + timedelta(seconds=1)):
        refused = await then(at)
        assert (refused["status"], refused["errors"][0]["field"]) == (422, "at")


async def test_plan_shows_what_would_become_of_a_job_and_makes_none(world: ApiWorld) -> None:
    """Asked for the caller's own tenant; an operator must name one; another tenant's is not found; a bad spec names its field."""
    spec = {"name": "train", "command": ["true"], "gpu": "A100:1"}
    rank = RankPlanV1(rank=0, node_id="a", slices=(SliceV1(gpu_uuid="GPU-a-0", milli=1000, memory_mib=1),), cpu_milli=1, memory_mib=1)
    world.engine.answers[PlanAskV1] = PlanReplyV1(ranks=(rank,), receipt=RECEIPT)
    told = (await world.as_("acme").post("/v1/plan", json=spec)).json()
    assert told["places"] == [{"rank": 0, "node_id": "a", "gpu_uuids": ["GPU-a-0"]}]
    assert told["receipt"]["inputs"] == "i"
    assert (await world.as_("admin").post("/v1/plan", json=spec)).json()["errors"][0]["field"] == "tenant"
    assert (await world.as_("admin").post("/v1/plan?tenant=beta", json=spec)).status_code == 200
    assert (await world.as_("acme").post("/v1/plan?tenant=beta", json=spec)).status_code == 404
    wrong = await world.as_("acme").post("/v1/plan", json=spec | {"gpu": "A100:-1"})
    assert (wrong.status_code, wrong.json()["errors"][0]["field"]) == (422, "gpu")
    assert world.harness.said_of(JobSubmitV1) == []


async def test_explain_without_the_scheduler_is_a_503_and_for_an_ended_job_needs_none(world: ApiWorld) -> None:
    """What is known here is told without asking."""
    job_id = await world.job()
    answer = await world.as_("acme").get(f"/v1/jobs/{job_id}/explain")
    assert (answer.status_code, answer.json()["code"]) == (503, "scheduler-unavailable")
    world.end(job_id)
    told = await world.as_("acme").get(f"/v1/jobs/{job_id}/explain")
    assert (told.status_code, told.json()["state"], told.json()["reason"]) == (200, "succeeded", "completed")


async def test_cost_is_billings_answer(world: ApiWorld) -> None:
    """The sum and its rows; final when the job is over and every row is."""
    job_id = await world.job()
    at = world.harness.clock.now()
    row = UsageRowV1(
        tenant="acme", job_id=job_id, allocation_id=f"{job_id}-1", models=("A100",), started_at=at, billed_until=at, is_final=True,
        held_ms=10, gpu_ms=20, amount_micros=30,
    )  # fmt: skip
    world.engine.answers[UsageAskV1] = UsageReplyV1(rows=(row,), currency="EUR", total_micros=30, total_gpu_ms=20)
    cost = (await world.as_("acme").get(f"/v1/jobs/{job_id}/cost")).json()
    assert (cost["total_micros"], cost["is_final"], cost["rows"][0]["gpu_ms"]) == (30, False, 20)
    world.end(job_id)
    assert (await world.as_("acme").get(f"/v1/jobs/{job_id}/cost")).json()["is_final"] is True


async def test_a_refused_question_is_told(world: ApiWorld) -> None:
    """The other service's own reason is the problem's code."""
    job_id = await world.job()
    world.engine.answers[UsageAskV1] = Refused("bad-cursor", "no such cursor")
    answer = await world.as_("acme").get(f"/v1/jobs/{job_id}/cost")
    assert (answer.status_code, answer.json()["code"], answer.json()["detail"]) == (422, "bad-cursor", "no such cursor")


async def test_a_trace_runs_from_the_request_to_the_ledger(world: ApiWorld) -> None:
    """Each step lasts from its cause; the last one is the money."""
    client = world.as_("acme")
    submit = await client.post("/v1/jobs", json=SPEC)
    job_id = submit.json()["job_id"]
    world.harness.clock.advance(0.010)
    world.accept(world.submitted()[0])
    world.harness.clock.advance(0.020)
    world.run(job_id)
    world.harness.clock.advance(1)
    world.end(job_id)
    posted = LedgerPostedV1(
        tenant="acme", job_id=job_id, allocation_id=f"{job_id}-1", transaction_id="t", amount_micros=1, total_micros=1, gpu_ms=1,
        currency="EUR", price_version=1, until=world.harness.clock.now(), is_final=True,
    )  # fmt: skip
    assert (await client.get(f"/v1/jobs/{job_id}/trace")).json()["is_complete"] is False
    world.harness.clock.advance(0.005)
    world.harness.feed(posted)
    trace = (await client.get(f"/v1/jobs/{job_id}/trace")).json()
    assert [step["name"] for step in trace["steps"]] == [
        "job.submit", "job.queued", "job.placing", "job.running", "job.ended", "ledger.posted",
    ]  # fmt: skip
    assert trace["is_complete"] is True
    assert (trace["steps"][1]["offset_ms"], trace["steps"][1]["duration_ms"]) == (0, 10)
    assert (trace["steps"][-1]["duration_ms"], trace["total_ms"]) == (5, 1035)
    assert len(trace["trace_id"]) == 32


async def test_a_trace_is_complete_when_the_job_is_over_and_all_that_ran_is_paid(world: ApiWorld) -> None:
    """A job that was cancelled while it waited owes nothing; one whose first attempt is paid and whose second runs is not over."""
    client = world.as_("acme")
    waited, moved = await world.job(), await world.job()
    now = world.harness.clock.now()
    world.end(waited)
    world.run(moved)
    posted = LedgerPostedV1(
        tenant="acme", job_id=moved, allocation_id=f"{moved}-1", transaction_id="t", amount_micros=1, total_micros=1, gpu_ms=1,
        currency="EUR", price_version=1, until=now, is_final=True,
    )  # fmt: skip
    world.harness.feed(posted)
    assert [(await client.get(f"/v1/jobs/{job_id}/trace")).json()["is_complete"] for job_id in (waited, moved)] == [True, False]


async def test_a_job_from_the_bus_is_seen_like_any_other(world: ApiWorld) -> None:
    """It never passed through here, and its spec is known from the scheduler's word."""
    await world.as_("acme").post("/v1/jobs", json=SPEC)
    spec = world.submitted()[0].spec
    job_id = job_id_of("acme", "own-id")
    world.harness.feed(queued(job_id, "acme", spec, "own-id", world.harness.clock.now()))
    job = (await world.as_("acme").get(f"/v1/jobs/{job_id}")).json()
    assert (job["state"], job["spec"]["command"]) == ("queued", SPEC["command"])
