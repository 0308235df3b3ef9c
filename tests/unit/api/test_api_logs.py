"""A job's output: each line once, in text or JSON, to the end or for as long as the job lives."""

import json
from typing import Any

from gpuyard_api.domain.access import Principal
from gpuyard_api.domain.secret import digest_of
from gpuyard_api.http.loglines import Wanted, lines_of
from gpuyard_contracts.messages.node import LogLinesV1
from gpuyard_runtime.faults import Unavailable

from tests.support.api_yard import ApiWorld


def _lines(world: ApiWorld, job_id: str, *lines: str, first: int = 0, **changes: Any) -> LogLinesV1:
    given: dict[str, Any] = {
        "node_id": "n1", "tenant": "acme", "job_id": job_id, "attempt": 1, "rank": 0, "stream": "stdout", "first_line": first,
        "lines": lines, "at": world.harness.clock.now(),
    }  # fmt: skip
    return LogLinesV1(**given | changes)


async def test_a_job_without_output_has_an_empty_log(world: ApiWorld) -> None:
    """200 and nothing."""
    job_id = await world.job()
    answer = await world.as_("acme").get(f"/v1/jobs/{job_id}/logs")
    assert (answer.status_code, answer.text) == (200, "")


async def test_lines_come_in_order_and_once(world: ApiWorld) -> None:
    """What the node sent again after it lost the bus is not shown again; what was dropped is said."""
    job_id = await world.job()
    world.engine.batches = [
        [_lines(world, job_id, "a", "b")],
        [_lines(world, job_id, "a", "b"), _lines(world, job_id, "b", "c", first=1), _lines(world, job_id, "f", first=5, dropped_lines=2)],
        [_lines(world, job_id, "g", first=6)],
    ]
    answer = await world.as_("acme").get(f"/v1/jobs/{job_id}/logs")
    assert answer.text == "a\nb\nc\n[2 lines were dropped here: the job wrote more than is kept]\nf\ng\n"
    assert answer.headers["content-type"].startswith("text/plain")


async def test_a_gangs_lines_begin_with_their_rank(world: ApiWorld) -> None:
    """Unless only one rank is asked for."""
    job_id = await world.job(ranks=2)
    world.engine.batches = [[_lines(world, job_id, "a"), _lines(world, job_id, "b", rank=1)]]
    client = world.as_("acme")
    assert (await client.get(f"/v1/jobs/{job_id}/logs")).text == "0| a\n1| b\n"
    assert (await client.get(f"/v1/jobs/{job_id}/logs?rank=1")).text == "b\n"


async def test_the_tail_is_the_last_lines(world: ApiWorld) -> None:
    """Of what is there; with `follow` what comes afterwards is added."""
    job_id = await world.job()
    backlog = [[_lines(world, job_id, "a", "b")], [_lines(world, job_id, "c", first=2)]]
    world.engine.batches = [*backlog]
    client = world.as_("acme")
    assert (await client.get(f"/v1/jobs/{job_id}/logs?tail=2")).text == "b\nc\n"
    assert (await client.get(f"/v1/jobs/{job_id}/logs?tail=0")).text == ""
    world.engine.batches = [*backlog, [], [_lines(world, job_id, "d", first=3)]]
    assert (await client.get(f"/v1/jobs/{job_id}/logs?tail=1&follow=true")).text == "c\nd\n"


async def test_following_ends_with_the_job(world: ApiWorld) -> None:
    """When it has ended and nothing comes any more; before that a pause is only a pause."""
    job_id = await world.job()
    client = world.as_("acme")
    world.engine.batches = [[_lines(world, job_id, "a")], [], [_lines(world, job_id, "b", first=1)]]
    assert (await client.get(f"/v1/jobs/{job_id}/logs?follow=true")).text == "a\nb\n"
    world.end(job_id)
    world.engine.batches = [[_lines(world, job_id, "a")], [], [_lines(world, job_id, "never", first=1)]]
    assert (await client.get(f"/v1/jobs/{job_id}/logs?follow=true")).text == "a\n"


async def test_lines_as_json(world: ApiWorld) -> None:
    """By parameter or by the accepted type; every line says where it is from."""
    job_id = await world.job()
    world.engine.batches = [[_lines(world, job_id, "größer", "", stream="stderr")]]
    client = world.as_("acme")
    by_parameter = await client.get(f"/v1/jobs/{job_id}/logs?format=ndjson")
    by_type = await client.get(f"/v1/jobs/{job_id}/logs", headers={"accept": "application/x-ndjson"})
    assert by_parameter.text == by_type.text
    rows = [json.loads(line) for line in by_type.text.splitlines()]
    assert [(row["number"], row["text"], row["stream"], row["rank"]) for row in rows] == [(0, "größer", "stderr", 0), (1, "", "stderr", 0)]


async def test_a_bus_that_is_away_is_a_503(world: ApiWorld, monkeypatch: Any) -> None:
    """Before the answer begins, not an empty log."""
    job_id = await world.job()

    async def away(*args: Any, **kwargs: Any) -> Any:
        raise Unavailable("bus")
        yield ()

    monkeypatch.setattr(world.engine, "logs", away)
    answer = await world.as_("acme").get(f"/v1/jobs/{job_id}/logs")
    assert (answer.status_code, answer.json()["code"]) == (503, "bus-unavailable")


async def test_a_revoked_token_reads_no_further(world: ApiWorld) -> None:
    """A follower is cut off in the middle."""
    job_id = await world.job()
    who = Principal(world.harness.store.tokens[digest_of(world.tokens["acme"])])
    world.engine.batches = [[_lines(world, job_id, "a")], [_lines(world, job_id, "b", first=1)], [_lines(world, job_id, "c", first=2)]]
    lines = lines_of(world.yard, who, Wanted(world.harness.store.jobs[job_id], None, None, is_following=True))
    assert [line.text for line in await anext(lines)] == ["a"]
    await world.as_("admin").delete(f"/v1/tenants/acme/tokens/{who.token.token_id}")
    assert [line.text async for batch in lines for line in batch] == []


async def test_what_was_dropped_of_either_stream_is_flagged(world: ApiWorld) -> None:
    """In JSON, in the place of the last line that was dropped, once however often the node sends it."""
    job_id = await world.job()
    out = _lines(world, job_id, "z", first=9, dropped_lines=9)
    err = _lines(world, job_id, first=4, dropped_lines=3, stream="stderr")
    world.engine.batches = [[out, err], [out, err]]
    rows = [json.loads(line) for line in (await world.as_("acme").get(f"/v1/jobs/{job_id}/logs?format=ndjson")).text.splitlines()]
    assert [(row["stream"], row["number"], row["dropped_lines"]) for row in rows] == [("stdout", 8, 9), ("stdout", 9, 0), ("stderr", 3, 3)]
