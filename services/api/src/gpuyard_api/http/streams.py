"""Events and logs: lists, and streams that go on. See :mod:`gpuyard_api.http.sse` for the promise of the streams."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Request
from gpuyard_contracts.types import MAX_INT64
from starlette.responses import Response, StreamingResponse

from gpuyard_api import problems
from gpuyard_api.domain.model import ENDED, Event
from gpuyard_api.handlers import EVENTS
from gpuyard_api.http import sse
from gpuyard_api.http.answers import problem_responses
from gpuyard_api.http.context import TheYard, Who, Yard, bearer
from gpuyard_api.http.jobs import visible_job
from gpuyard_api.http.loglines import Wanted as WantedLogs
from gpuyard_api.http.loglines import lines_of, ndjson, plain
from gpuyard_api.problems import FieldError
from gpuyard_api.views.jobs import EventPage, LogLineView, event_view
from gpuyard_api.views.shapes import AT

router = APIRouter(prefix="/v1", tags=["events and logs"], dependencies=[bearer])

After = Annotated[int | None, Query(ge=0, le=MAX_INT64, description="Only events with a higher `seq`.")]
LastEventId = Annotated[str | None, Header(description="Where a stream was left: the last `id` that was seen.")]
Limit = Annotated[int, Query(ge=1, le=1000)]
NO_STORE = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}

_STREAM: dict[str, Any] = {
    sse.MEDIA_TYPE: {
        "schema": {"type": "string"},
        "example": f'id: 41\nevent: job.queued\ndata: {{"seq":41,"name":"job.queued","at":"{AT}","data":{{}}}}\n\n',
    }
}


def _is_stream(request: Request) -> bool:
    return sse.MEDIA_TYPE in request.headers.get("accept", "")


def _cursor(after: int | None, last_event_id: str | None) -> int | None:
    """Where to go on. `Last-Event-ID` is what the reader itself saw last, so it goes before `after`. Raises Problem."""
    if not last_event_id:
        return after
    if not last_event_id.isascii() or not last_event_id.isdigit() or len(last_event_id) > 18:
        raise problems.invalid(FieldError("Last-Event-ID", "is not the id of an event of this API", "send the last `id` that you saw"))
    return int(last_event_id)


async def _page(read: Callable[[int, int], Awaitable[list[Event]]], after: int, limit: int) -> EventPage:
    found = await read(after, limit + 1)
    page = found[:limit]
    return EventPage(events=[event_view(event) for event in page], next_after=page[-1].seq if len(found) > limit else None)


@router.get(
    "/jobs/{job_id}/events",
    summary="A job's events",
    response_model=EventPage,
    responses={
        200: {"description": "A list, or with `Accept: text/event-stream` a stream.", "content": _STREAM},
        **problem_responses(404, 422),
    },
)
async def events_of_job(
    job_id: str,
    request: Request,
    who: Who,
    yard: TheYard,
    after: After = None,
    limit: Limit = 200,
    until_end: Annotated[bool, Query(description="Streams only: stop after the job's end.")] = False,
    last_event_id: LastEventId = None,
) -> Response | EventPage:
    """What happened to the job, from its request on. As a stream it goes on live and can be resumed with `Last-Event-ID`."""
    job, _ = await visible_job(yard, who, job_id)

    async def read(above: int, count: int) -> list[Event]:
        return await yard.reads.job_events(job_id, above, count)

    if not _is_stream(request):
        return await _page(read, after or 0, limit)
    begin = _known(yard, _cursor(after, last_event_id) or 0)
    wanted = sse.Wanted(read, begin, job_id=job_id, is_until_end=until_end, is_over=job.state in ENDED)
    return StreamingResponse(sse.stream(yard, who, wanted), media_type=sse.MEDIA_TYPE, headers=NO_STORE)


@router.get(
    "/events",
    summary="A tenant's events; an operator's: all",
    response_model=EventPage,
    responses={200: {"description": "A list, or with `Accept: text/event-stream` a stream.", "content": _STREAM}, **problem_responses(422)},
)
async def events(
    request: Request,
    who: Who,
    yard: TheYard,
    tenant: Annotated[str | None, Query(max_length=40, description="For operators: only this tenant's.")] = None,
    after: After = None,
    limit: Limit = 200,
    last_event_id: LastEventId = None,
) -> Response | EventPage:
    """What happened, by `seq`: the list from the oldest kept event on, the stream from now on unless a cursor is given."""
    if (tenant is not None and not who.may_see(tenant)) or (tenant is not None and tenant not in yard.engine.store.tenants):
        raise problems.not_found("tenant", tenant)
    scope = who.tenant or tenant

    async def read(above: int, count: int) -> list[Event]:
        return await yard.reads.events(scope, above, count)

    if not _is_stream(request):
        return await _page(read, after or 0, limit)
    begin = _cursor(after, last_event_id)
    wanted = sse.Wanted(read, yard.engine.store.last_number(EVENTS) if begin is None else _known(yard, begin), tenant=scope)
    return StreamingResponse(sse.stream(yard, who, wanted), media_type=sse.MEDIA_TYPE, headers=NO_STORE)


def _known(yard: Yard, cursor: int) -> int:
    """A cursor from a future that this log does not have (a restored database) would be silent for ever: start from its end."""
    return min(cursor, yard.engine.store.last_number(EVENTS))


@router.get(
    "/jobs/{job_id}/logs",
    summary="What a job wrote",
    response_class=Response,
    responses={
        200: {
            "description": "Lines as text, or with `format=ndjson` as one JSON object a line.",
            "content": {
                "text/plain": {"schema": {"type": "string"}, "example": "epoch 1: loss 0.93\nepoch 2: loss 0.41\n"},
                "application/x-ndjson": {
                    "schema": LogLineView.model_json_schema(),
                    "example": LogLineView.model_json_schema()["examples"][0],
                },
            },
        },
        **problem_responses(404, 422),
    },
)
async def logs_of_job(
    job_id: str,
    request: Request,
    who: Who,
    yard: TheYard,
    follow: Annotated[bool, Query(description="Go on until the job has ended.")] = False,
    rank: Annotated[int | None, Query(ge=0, le=4095, description="Only this rank.")] = None,
    tail: Annotated[int | None, Query(ge=0, le=100_000, description="Of what is there already, only so many lines.")] = None,
    format: Annotated[Literal["text", "ndjson"] | None, Query()] = None,
) -> StreamingResponse:
    """What the job wrote in the last 24 hours. Lines of a gang begin with their rank, as in ``3| epoch 1``."""
    job, _ = await visible_job(yard, who, job_id)
    is_ndjson = format == "ndjson" or (format is None and "ndjson" in request.headers.get("accept", ""))
    render = ndjson if is_ndjson else plain(is_gang=job.ranks > 1 and rank is None)
    lines = lines_of(yard, who, WantedLogs(job, rank, tail, is_following=follow))
    first = await anext(lines, None)  # before the answer begins, so that a bus that is away is a 503

    async def written() -> AsyncIterator[bytes]:
        if first is not None:
            yield render(first)
            async for batch in lines:
                yield render(batch)

    media_type = "application/x-ndjson" if is_ndjson else "text/plain; charset=utf-8"
    return StreamingResponse(written(), media_type=media_type, headers=NO_STORE)
