"""The outermost layer: bodies are bounded in size and time, and nothing leaves without an answer.

Pure ASGI, so that streams pass through untouched. A body is read whole before the route sees it (they are small), so a client that
dribbles holds a socket for some seconds and nothing else.
"""

import asyncio
import time
import traceback
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from gpuyard_runtime.logs import log_of
from starlette.responses import Response

from gpuyard_api.http.answers import FAULT, problem_of, render
from gpuyard_api.problems import Problem

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

MAX_BODY_BYTES = 512 * 1024
BODY_SECONDS = 10.0


Short = Callable[[Scope, bytes], Awaitable[Response | None]]
"""Answers a request by its scope and body without going through the app; None: the app is to answer it."""


async def no_short_way(scope: Scope, body: bytes) -> Response | None:
    """Everything goes through the app."""
    return None


Observe = Callable[[str, str, int, float], None]
"""Hears of each answer that begins: method, route template, status, seconds since the request."""


def unseen(method: str, route: str, status: int, seconds: float) -> None:
    """Nobody looks."""


class Gone(Exception):
    """The client has left."""


class Door:
    """Wraps the app."""

    def __init__(
        self,
        app: App,
        observe: Observe = unseen,
        max_body_bytes: int = MAX_BODY_BYTES,
        body_seconds: float = BODY_SECONDS,
        short: Short = no_short_way,
    ) -> None:
        self._app = app
        self._observe = observe
        self._max_body_bytes = max_body_bytes
        self._body_seconds = body_seconds
        self._short = short
        self._log = log_of("http")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 0
        began = time.monotonic()

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                route = scope.get("route")
                self._observe(scope["method"], getattr(route, "path", "unknown"), status, time.monotonic() - began)
            await send(message)

        try:
            body = b"" if scope["method"] in ("GET", "HEAD") else await self._body(scope, receive)
            answer = await self._short(scope, body) if body else None
            if answer is None:
                await self._app(scope, _replay(body, receive), sending)
            else:
                await answer(scope, receive, sending)
        except Gone:
            return
        except Exception as error:
            problem = problem_of(error)
            if problem is FAULT:
                self._tell(scope, error)
            if not status:
                await render(problem)(scope, receive, sending)

    def _tell(self, scope: Scope, error: Exception) -> None:
        """Log a fault of our own and where it happened; messages of exceptions may repeat what was sent, so they stay out of it."""
        frames = [f"{frame.name}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)[-6:]]
        self._log.error("request_failed", method=scope["method"], error=type(error).__name__, where=" > ".join(frames))

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        told = _header(scope, b"content-length")
        if told.isdigit() and int(told) > self._max_body_bytes:
            raise self._too_large()
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._body_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Gone
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > self._max_body_bytes:
                        raise self._too_large()
                    if not message.get("more_body", False):
                        break
        except TimeoutError:
            detail = f"The body did not come within {self._body_seconds:g} s."
            raise Problem(408, "body-timeout", "The body is too slow", detail, headers={"Connection": "close"}) from None
        if size:
            _check_type(_header(scope, b"content-type").decode("latin-1"))
        return b"".join(parts)

    def _too_large(self) -> Problem:
        detail = f"A body may have {self._max_body_bytes} bytes; put large programs and data into files."
        return Problem(413, "too-large", "The body is too large", detail, headers={"Connection": "close"})


def _header(scope: Scope, wanted: bytes) -> bytes:
    return next((value for name, value in scope["headers"] if name == wanted), b"")


def _check_type(told: str) -> None:
    kind = told.partition(";")[0].strip().lower()
    if kind and kind != "application/json" and not kind.endswith("+json"):
        raise Problem(415, "not-json", "The body is not said to be JSON", "Send JSON, with 'Content-Type: application/json'.")


def _replay(body: bytes, receive: Receive) -> Receive:
    """The body in one piece, and after it whatever still comes."""
    is_given = False

    async def replay() -> Message:
        nonlocal is_given
        if is_given:
            return await receive()
        is_given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
