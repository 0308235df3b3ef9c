"""Requests: what is repeated, what is not, and what errors become."""

import json

import httpx
import pytest
from gpuyard.connection import Connection
from gpuyard.errors import ApiError, Denied, GpuyardError, NotFound, Rejected, Unreachable
from gpuyard.transport import Transport, lines_of, segment

from tests.unit.client.client_api import Api, problem


def transport(api: Api) -> Transport:
    """A transport to the memory api."""
    return Transport(Connection("http://api.test", "tok", "a test"), handler=httpx.MockTransport(api.handle), pause=api.pauses.append)


def test_a_post_is_repeated_over_a_short_break_under_the_same_key(api: Api) -> None:
    """So that the api can tell that it is the same request."""

    def broken(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadError("reset", request=request)

    api.on("POST", "/v1/jobs", broken, httpx.Response(503, json={}), {"ok": True})
    assert transport(api).post("/v1/jobs", {"a": 1}) == {"ok": True}
    assert len({request.headers["idempotency-key"] for request in api.requests}) == 1 and len(api.requests) == 3
    assert api.pauses == [0.2, 1.0]


def test_a_refused_connection_is_told_at_once(api: Api) -> None:
    """Nobody waits for an address that nobody listens on."""

    def refused(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("connection refused", request=request)

    api.on("GET", "/v1/me", refused)
    with pytest.raises(Unreachable, match=r"no api answers at http://api\.test: connection refused"):
        transport(api).get("/v1/me")
    assert api.pauses == [] and len(api.requests) == 1


@pytest.mark.parametrize(
    "raised", [httpx.ReadTimeout, httpx.RemoteProtocolError, httpx.ReadError, httpx.ProxyError, httpx.TooManyRedirects]
)
def test_every_failure_of_the_connection_is_unreachable(api: Api, raised: type[httpx.RequestError]) -> None:
    """httpx's own errors do not come out."""

    def fail(request: httpx.Request) -> httpx.Response:
        raise raised("oh", request=request)

    api.on("GET", "/v1/me", fail)
    with pytest.raises(Unreachable):
        transport(api).get("/v1/me")


def test_what_the_api_refuses_is_not_asked_again(api: Api) -> None:
    """A no is a no."""
    api.on("POST", "/v1/jobs", problem(409, "idempotency-conflict", "taken"))
    with pytest.raises(ApiError) as caught:
        transport(api).post("/v1/jobs")
    assert (caught.value.status, caught.value.code, str(caught.value)) == (409, "idempotency-conflict", "taken") and len(api.requests) == 1


@pytest.mark.parametrize(("status", "kind"), [(401, Denied), (403, Denied), (404, NotFound), (422, ApiError), (500, ApiError)])
def test_statuses_become_kinds_of_errors(api: Api, status: int, kind: type[ApiError]) -> None:
    """With the words of the api."""
    api.on("GET", "/v1/me", problem(status, "some-code", "the words"))
    with pytest.raises(kind, match="the words"):
        transport(api).get("/v1/me")


def test_a_rejected_job_says_its_reason_and_a_way_out(api: Api) -> None:
    """The reason is a word of the closed list."""
    api.on("POST", "/v1/jobs", problem(422, "job-rejected", "needs 9 of T4, there are 4", reason="never-fits", job_id="job-x"))
    with pytest.raises(Rejected, match="there are 4") as caught:
        transport(api).post("/v1/jobs")
    assert (caught.value.reason, caught.value.job_id) == ("never-fits", "job-x") and "gpuyard nodes" in caught.value.fix


def test_fields_of_a_problem_are_kept(api: Api) -> None:
    """For whoever shows them."""
    rows = [{"field": "gpu", "message": "is wrong", "fix": "write T4:1"}, "nonsense"]
    api.on("POST", "/v1/jobs", problem(422, "invalid-request", "no", errors=rows))
    with pytest.raises(ApiError) as caught:
        transport(api).post("/v1/jobs")
    assert [(part.field, part.message, part.fix) for part in caught.value.fields] == [("gpu", "is wrong", "write T4:1")]


@pytest.mark.parametrize("content", [b"<html>502</html>", b"", b"\xff\xfe"])
def test_an_error_without_readable_words_is_still_told(api: Api, content: bytes) -> None:
    """Proxies answer what they like."""
    api.on("GET", "/v1/me", httpx.Response(404, content=content))
    with pytest.raises(NotFound, match="404"):
        transport(api).get("/v1/me")


def test_an_answer_that_is_no_json_is_said_to_be_somebody_elses(api: Api) -> None:
    """The address is probably wrong."""
    api.on("GET", "/v1/me", httpx.Response(200, text="<html>hello</html>"))
    with pytest.raises(GpuyardError, match="does not speak gpuyard's language"):
        transport(api).get("/v1/me")


def test_the_token_goes_with_every_request_and_none_without_one(api: Api) -> None:
    """As a bearer token."""
    api.on("GET", "/v1/me", {})
    transport(api).get("/v1/me")
    Transport(Connection("http://api.test", "", "a test"), handler=httpx.MockTransport(api.handle)).get("/v1/me")
    assert [request.headers.get("authorization") for request in api.requests] == ["Bearer tok", None]


def test_query_parameters_that_are_none_are_left_out(api: Api) -> None:
    """And truth is written as the api reads it."""
    api.on("GET", "/v1/jobs", {})
    transport(api).get("/v1/jobs", cursor=None, follow=True, state=["a", "b"])
    assert str(api.requests[0].url.query, "ascii") == "follow=true&state=a&state=b"


def test_lines_come_one_by_one_and_an_error_answer_is_told(api: Api) -> None:
    """Empty lines keep a connection alive and say nothing."""
    api.on("GET", "/logs", httpx.Response(200, text='{"a":1}\n\n{"a":2}\n'), problem(404, "not-found", "no such job"))
    reader = transport(api)
    assert list(reader.lines("/logs")) == [{"a": 1}, {"a": 2}]
    with pytest.raises(NotFound, match="no such job"):
        list(reader.lines("/logs"))


def test_a_line_ends_at_a_newline_and_nowhere_else(api: Api) -> None:
    """A job may write whatever Unicode takes for the end of a line; within JSON it is a character like any other."""
    texts = ["a\u2028b", "c\u0085d", "e\x1cf", "g\u000bh", ""]
    body = "".join(json.dumps({"text": text}, ensure_ascii=False) + "\r\n" for text in texts).encode()
    api.on("GET", "/logs", httpx.Response(200, content=body))
    assert list(transport(api).lines("/logs")) == [{"text": text} for text in texts]


def test_a_line_may_come_in_any_pieces_and_the_last_without_its_newline() -> None:
    """Pieces may break between the bytes of one character."""
    told = "é\u2028ü\n\nlast"
    pieces = (told.encode()[at : at + 1] for at in range(len(told.encode())))
    assert list(lines_of(pieces)) == ["é\u2028ü", "", "last"]


def test_of_server_sent_events_only_the_data_is_taken(api: Api) -> None:
    """Comments, ids and retry times are the protocol's."""
    api.on("GET", "/events", httpx.Response(200, text='retry: 2000\n\nid: 4\nevent: job.queued\ndata: {"seq":4}\n\n: heartbeat\n\n'))
    assert list(transport(api).server_sent("/events")) == [{"seq": 4}]


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../tenants"])
def test_names_that_would_leave_their_place_in_a_path_are_refused(name: str) -> None:
    """Asking for `../tenants` asks for nothing."""
    with pytest.raises(NotFound):
        segment(name)


def test_odd_names_are_quoted() -> None:
    """Whatever a person types stays one segment."""
    assert segment("a b?c#d%") == "a%20b%3Fc%23d%25"
