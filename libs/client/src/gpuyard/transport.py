"""HTTP to the api: one place for headers, retries and errors.

Promise: a request is either answered, or raises an error of :mod:`gpuyard.errors` (never one of httpx's). What may be repeated is repeated
over short breaks: reading always, writing because every POST carries an ``Idempotency-Key``, by which the api knows it again. A refused
connection is told at once, since waiting rarely helps a person who has the wrong address.
"""

import json
import re
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit
from uuid import uuid4

from gpuyard.connection import Connection
from gpuyard.errors import GpuyardError, NotFound, Unreachable, of_response

if TYPE_CHECKING:  # httpx takes a while to import: only what speaks to the api pays for it
    import httpx

PAUSES_SECONDS = (0.2, 1.0)
"""Before the second and the third try."""

_WORTH_ANOTHER_TRY = frozenset({502, 503, 504})
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class Transport:
    """Sends requests with the token of one connection. `handler` (an httpx transport) and `pause` are there for tests."""

    def __init__(
        self,
        connection: Connection,
        *,
        timeout_seconds: float = 30.0,
        handler: "httpx.BaseTransport | None" = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.connection = connection
        self.timeout_seconds = timeout_seconds
        self._handler = handler
        self._pause = pause
        self._http: httpx.Client | None = None

    def close(self) -> None:
        """Let go of open connections."""
        if self._http is not None:
            self._http.close()
            self._http = None

    def get(self, path: str, *, timeout_seconds: float | None = None, **query: Any) -> Any:
        """The decoded JSON of a resource. Query parameters that are None are left out."""
        return self._send("GET", path, query=query, timeout_seconds=timeout_seconds)

    def post(self, path: str, body: Any = None, *, key: str | None = None, timeout_seconds: float | None = None, **query: Any) -> Any:
        """Do something once, however often it is sent: `key` is its ``Idempotency-Key`` (default: a new one)."""
        headers = {"Idempotency-Key": key or uuid4().hex}
        return self._send("POST", path, body={} if body is None else body, query=query, headers=headers, timeout_seconds=timeout_seconds)

    def patch(self, path: str, body: Any) -> Any:
        """Change the given fields of a resource, if it still has the version that the body names."""
        return self._send("PATCH", path, body=body, query={})

    def answered(self, path: str) -> "httpx.Response":
        """The bare answer to a GET, whatever its status: for checks of the api itself."""
        with self._told():
            return self._client().get(path)

    def lines(self, path: str, **query: Any) -> Iterator[Any]:
        """The objects of a stream (NDJSON), as they come, until the api ends it. A broken stream raises :class:`Unreachable`."""
        for line in self._stream(path, "application/x-ndjson", query):
            if line.strip():
                yield _parsed(line)

    def server_sent(self, path: str, **query: Any) -> Iterator[Any]:
        """The objects of a stream of server-sent events; as :meth:`lines` otherwise."""
        for line in self._stream(path, "text/event-stream", query):
            if line.startswith("data:"):
                yield _parsed(line.removeprefix("data:"))

    def _stream(self, path: str, accept: str, query: Mapping[str, Any]) -> Iterator[str]:
        import httpx

        # Without a limit for reading: the api may say nothing while nothing happens.
        timeout = httpx.Timeout(self.timeout_seconds, read=None)
        with self._told(), self._client().stream("GET", path, params=_given(query), headers={"Accept": accept}, timeout=timeout) as answer:
            if answer.status_code >= 400:
                answer.read()
                raise of_response(answer.status_code, _decoded(answer))
            yield from lines_of(answer.iter_bytes())

    def _send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any],
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        timeout_seconds: float | None = None,
    ) -> Any:
        given = _given(query)
        timeout = timeout_seconds or self.timeout_seconds
        for pause in (*PAUSES_SECONDS, None):
            try:
                with self._told():
                    answer = self._client().request(method, path, json=body, params=given, headers=headers, timeout=timeout)
            except Unreachable as error:
                if pause is None or isinstance(error, _Refused):
                    raise
                self._pause(pause)
                continue
            if answer.status_code < 400:
                return _decoded(answer)
            if pause is None or answer.status_code not in _WORTH_ANOTHER_TRY:
                raise of_response(answer.status_code, _decoded(answer))
            self._pause(pause)
        raise AssertionError("unreachable: the last try returns or raises")

    def _client(self) -> "httpx.Client":
        import httpx

        if self._http is None:
            url = self.connection.url
            token = {"Authorization": f"Bearer {self.connection.token}"} if self.connection.token else {}
            self._http = httpx.Client(
                base_url=url,
                headers={"Accept": "application/json", "User-Agent": "gpuyard-client", **token},
                timeout=self.timeout_seconds,
                transport=self._handler,
                trust_env=urlsplit(url).hostname not in _LOOPBACK,  # a proxy cannot reach this machine's own loopback
                verify=url.startswith("https://"),  # reading all certificates takes longer than the request
            )
        return self._http

    @contextmanager
    def _told(self) -> Generator[None, None, None]:
        """httpx's errors as ours, with the address and what to do."""
        import httpx

        url = self.connection.url
        try:
            yield
        except httpx.ConnectError as error:
            raise _Refused(f"no api answers at {url}: {_reason(error)}", fix="is it running? `make up` starts a local stack") from None
        except httpx.TimeoutException:
            raise Unreachable(f"the api at {url} did not answer in time", fix="try again; `gpuyard doctor` says what is slow") from None
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            raise Unreachable(f"the connection to {url} broke: {_reason(error)}", fix="try again") from None


class _Refused(Unreachable):
    """Nobody listens there."""


def lines_of(parts: Iterable[bytes]) -> Iterator[str]:
    """Lines that end in a newline, and in nothing else: what a job wrote may carry any of Unicode's other ends of a line within it."""
    rest: list[bytes] = []
    for part in parts:
        first, *others = part.split(b"\n")
        rest.append(first)
        for other in others:
            yield b"".join(rest).decode("utf-8", "replace").removesuffix("\r")
            rest = [other]
    if last := b"".join(rest):
        yield last.decode("utf-8", "replace")


def segment(name: str) -> str:
    """A name as one segment of a path. Raises NotFound for what no name can be, rather than ask for another resource."""
    if not name or name in (".", "..") or "/" in name:
        raise NotFound(404, "not-found", f"{name!r} is no name of anything")
    return quote(name, safe="")


def _reason(error: Exception) -> str:
    return re.sub(r"^\[Errno \d+\] ", "", str(error).strip()) or type(error).__name__


def _given(query: Mapping[str, Any]) -> dict[str, Any]:
    told = {name: value for name, value in query.items() if value is not None}
    return {name: ("true" if value else "false") if isinstance(value, bool) else value for name, value in told.items()}


def _decoded(answer: "httpx.Response") -> Any:
    if not answer.content:
        return None
    try:
        return answer.json()
    except ValueError:
        if answer.status_code >= 400:
            return {"detail": f"{answer.status_code} {answer.reason_phrase}, and no words that could be read"}
        raise GpuyardError(
            f"what answers at {answer.request.url.host}:{answer.request.url.port} does not speak gpuyard's language",
            fix="check the address: GPUYARD_URL, or `gpuyard login URL`",
        ) from None


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        raise GpuyardError("the api sent a line that is not JSON", fix="is the client older than the api?") from None
