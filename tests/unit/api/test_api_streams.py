"""Events as lists and streams: resumable, without gap or repeat, and ended when they must."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from gpuyard_api.domain.access import Principal
from gpuyard_api.domain.model import Event
from gpuyard_api.domain.secret import digest_of
from gpuyard_api.http import sse
from gpuyard_api.hub import MAX_PENDING, Hub
from gpuyard_contracts.messages.placement import NodeStatusChangedV1
from gpuyard_runtime.faults import Unavailable

from tests.support.api_yard import ApiWorld

SSE = {"accept": "text/event-stream"}


def _read(text: str) -> list[dict[str, Any]]:
    """The events of a stream: each with its id, name and data."""
    found: list[dict[str, Any]] = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith((":", "retry")))
        if fields:
            found.append({"id": int(fields["id"]), "event": fields["event"], "data": json.loads(fields["data"])})
    return found


def _who(world: ApiWorld, name: str) -> Principal:
    return Principal(world.harness.store.tokens[digest_of(world.tokens[name])])


async def _next_event(frames: AsyncIterator[bytes]) -> dict[str, Any]:
    async with asyncio.timeout(10):
        async for frame in frames:
            if found := _read(frame.decode()):
                return found[0]
    raise AssertionError("the stream has ended")


async def _rest(frames: AsyncIterator[bytes]) -> str:
    async with asyncio.timeout(10):
        return b"".join([frame async for frame in frames]).decode()


def _wanted(world: ApiWorld, job_id: str, after: int = 0, **changes: Any) -> sse.Wanted:
    async def page(above: int, count: int) -> list[Event]:
        return await world.reads.job_events(job_id, above, count)

    return sse.Wanted(page, after, job_id=job_id, **changes)


async def test_a_jobs_events_are_listed_in_pages(world: ApiWorld) -> None:
    """From the request on, each once, by rising numbers."""
    job_id = await world.job()
    world.run(job_id)
    client = world.as_("acme")
    page = (await client.get(f"/v1/jobs/{job_id}/events?limit=3")).json()
    assert [event["name"] for event in page["events"]] == ["job.submit", "job.queued", "job.placing"]
    assert page["events"][1]["data"]["spec"]["name"] == "train"
    rest = (await client.get(f"/v1/jobs/{job_id}/events?after={page['next_after']}")).json()
    assert ([event["name"] for event in rest["events"]], rest["next_after"]) == (["job.running"], None)


async def test_a_stream_until_the_end_ends(world: ApiWorld) -> None:
    """A finished job's stream is its list, and then over."""
    job_id = await world.job()
    world.end(job_id)
    answer = await world.as_("acme").get(f"/v1/jobs/{job_id}/events?until_end=true", headers=SSE)
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = _read(answer.text)
    assert [event["event"] for event in events] == ["job.submit", "job.queued", "job.ended"]
    assert [event["id"] for event in events] == [event["data"]["seq"] for event in events]
    assert events[-1]["data"]["data"]["state"] == "succeeded"


async def test_a_stream_goes_on_where_it_was_left(world: ApiWorld) -> None:
    """`Last-Event-ID` goes before `after`; what was seen does not come again."""
    job_id = await world.job()
    world.end(job_id)
    client = world.as_("acme")
    seen = (await client.get(f"/v1/jobs/{job_id}/events")).json()["events"][0]["seq"]
    answer = await client.get(f"/v1/jobs/{job_id}/events?until_end=true&after=0", headers=SSE | {"last-event-id": str(seen)})
    assert [event["event"] for event in _read(answer.text)] == ["job.queued", "job.ended"]
    last = _read(answer.text)[-1]["id"]
    nothing = await client.get(f"/v1/jobs/{job_id}/events?until_end=true", headers=SSE | {"last-event-id": str(last)})
    assert _read(nothing.text) == []


@pytest.mark.parametrize("given", ["x", "-1", "1.5", "9" * 30, "²"])
async def test_a_cursor_that_is_none_is_refused(world: ApiWorld, given: str) -> None:
    """By name, instead of a stream from nowhere."""
    job_id = await world.job()
    answer = await world.as_("acme").get(
        f"/v1/jobs/{job_id}/events", headers=[(b"accept", b"text/event-stream"), (b"last-event-id", given.encode())]
    )
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "Last-Event-ID")


async def test_a_stream_goes_on_live_and_ends_with_the_job(world: ApiWorld) -> None:
    """Backlog, then what happens, then the end; the watcher is gone afterwards."""
    job_id = await world.job()
    frames = sse.stream(world.yard, _who(world, "acme"), _wanted(world, job_id, is_until_end=True))
    assert [(await _next_event(frames))["event"] for _ in range(2)] == ["job.submit", "job.queued"]
    coming = asyncio.ensure_future(_next_event(frames))
    await asyncio.sleep(0)
    world.run(job_id)
    assert (await coming)["event"] == "job.placing"
    world.end(job_id)
    assert [event["event"] for event in _read(await _rest(frames))] == ["job.running", "job.ended"]
    assert world.hub.watchers == 0


@pytest.mark.parametrize("is_in_backlog", [True, False])
async def test_nothing_is_lost_or_doubled_between_backlog_and_live(world: ApiWorld, is_in_backlog: bool) -> None:
    """What commits while the backlog is being read comes once, whether the read saw it or not."""
    job_id = await world.job()
    inner = _wanted(world, job_id, is_until_end=True)

    async def page(above: int, count: int) -> list[Event]:
        found = await inner.page(above, count)
        if above > 0:
            return found
        world.run(job_id)
        if is_in_backlog:
            found = await inner.page(above, count)
        world.end(job_id)
        return found

    frames = sse.stream(world.yard, _who(world, "acme"), sse.Wanted(page, 0, job_id=job_id, is_until_end=True))
    events = [event["event"] for event in _read(await _rest(frames))]
    assert events == ["job.submit", "job.queued", "job.placing", "job.running", "job.ended"]


async def test_a_slow_reader_goes_on_from_the_database(world: ApiWorld) -> None:
    """Its queue was dropped; it sees everything all the same, once."""
    job_id = await world.job()
    frames = sse.stream(world.yard, _who(world, "acme"), _wanted(world, job_id, is_until_end=True))
    await _next_event(frames)
    for _ in range(MAX_PENDING + 10):
        world.run(job_id)
    world.end(job_id)
    seen = [event["id"] for event in _read(await _rest(frames))]
    assert seen == [row.seq for row in world.harness.journal("job_events") if row.job_id == job_id][1:]


async def test_a_revoked_tokens_stream_ends(world: ApiWorld) -> None:
    """Quiet or busy, and it says why."""
    job_id = await world.job()
    quiet = sse.stream(world.yard, _who(world, "acme"), _wanted(world, job_id))
    for _ in range(2):
        await _next_event(quiet)
    token_id = _who(world, "acme").token.token_id
    await world.as_("admin").delete(f"/v1/tenants/acme/tokens/{token_id}")
    assert "does not work" in await _rest(quiet)
    assert world.hub.watchers == 0


async def test_a_revoked_tokens_busy_stream_shows_nothing_more(world: ApiWorld) -> None:
    """Not even what came in the same moment."""
    job_id = await world.job()
    frames = sse.stream(world.yard, _who(world, "acme"), _wanted(world, job_id))
    for _ in range(2):
        await _next_event(frames)
    await world.as_("admin").delete(f"/v1/tenants/acme/tokens/{_who(world, 'acme').token.token_id}")
    world.run(job_id)
    assert _read(await _rest(frames)) == []


async def test_a_quiet_stream_says_that_it_lives_and_ends_with_the_process(world: ApiWorld) -> None:
    """Comments that readers skip; a closing process lets its readers go."""
    job_id = await world.job()
    frames = sse.stream(world.yard, _who(world, "acme"), _wanted(world, job_id))
    async with asyncio.timeout(10):
        while not (await anext(frames)).startswith(b": heartbeat"):
            pass
    world.hub.close()
    assert _read(await _rest(frames)) == []


async def test_a_database_that_goes_away_ends_the_stream(world: ApiWorld) -> None:
    """The reader comes again and goes on where it was."""

    async def page(above: int, count: int) -> list[Event]:
        raise Unavailable("database")

    frames = sse.stream(world.yard, _who(world, "acme"), sse.Wanted(page, 0, tenant="acme"))
    assert "come again" in await _rest(frames)


async def test_a_tenants_stream_has_its_events_only(world: ApiWorld) -> None:
    """An operator's has all, those of nodes too; from now on unless a cursor is given."""
    job_id, other = await world.job(), await world.job("beta")
    world.harness.feed(NodeStatusChangedV1(node_id="n1", status="unknown", was="ready", at=world.harness.clock.now()))
    listed = (await world.as_("acme").get("/v1/events")).json()["events"]
    assert {event["job_id"] for event in listed} == {job_id}
    everything = (await world.as_("admin").get("/v1/events")).json()["events"]
    assert {event["job_id"] for event in everything} == {job_id, other, None}
    only = (await world.as_("admin").get("/v1/events?tenant=beta")).json()["events"]
    assert {event["job_id"] for event in only} == {other}


async def test_a_tenants_live_stream_has_its_events_only(world: ApiWorld) -> None:
    """The hub hands each event to those who may see it."""
    mine, other = await world.job(), await world.job("beta")
    with world.hub.watch(tenant="acme") as watcher, world.hub.watch() as everything:
        world.run(other, "beta")
        world.run(mine)
        assert {event.job_id for event in watcher.take()} == {mine}
        assert {event.job_id for event in everything.take()} == {mine, other}


async def test_an_undone_unit_is_not_broadcast(world: ApiWorld) -> None:
    """Only what was committed is shown."""
    with world.hub.watch() as watcher:
        world.harness.database.is_away = True
        world.harness.feed(NodeStatusChangedV1(node_id="n1", status="unknown", was="ready", at=world.harness.clock.now()))
        assert watcher.take() == []
        world.harness.database.is_away = False
        world.harness.retry()
        assert [event.name for event in watcher.take()] == ["node.status-changed"]


async def test_a_watcher_of_a_closing_hub_knows() -> None:
    """A stream that begins during the stop ends at once."""
    hub = Hub()
    hub.close()
    with hub.watch(job_id="job-1") as watcher:
        assert watcher.is_closing
        await watcher.wait(60)
