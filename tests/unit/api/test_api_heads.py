"""Heads of requests, bounded in size and time, on a connection without a socket."""

import asyncio
from typing import Any

from gpuyard_api.http.heads import MAX_HEAD_BYTES, BoundedHeads
from uvicorn.config import Config
from uvicorn.server import ServerState

WHOLE = b"GET /v1/me HTTP/1.1\r\nHost: x\r\n\r\n"


class Wire(asyncio.Transport):
    """Keeps what is written, and whether it was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.is_closed = asyncio.Event()

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def close(self) -> None:
        self.is_closed.set()

    def is_closing(self) -> bool:
        return self.is_closed.is_set()

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


async def _app(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def _connected(seconds: float = 3600) -> tuple[BoundedHeads, Wire]:
    protocol = BoundedHeads(Config(_app, lifespan="off", log_config=None), ServerState(), {})
    protocol.head_seconds = seconds
    wire = Wire()
    protocol.connection_made(wire)
    return protocol, wire


async def test_a_head_without_an_end_closes_its_connection() -> None:
    """The parser would join its pieces anew for each that comes, and nobody else would be served meanwhile."""
    protocol, wire = _connected()
    protocol.data_received(b"GET /v1/me HTTP/1.1\r\nX: ")
    for _ in range(MAX_HEAD_BYTES // 4096):
        assert not wire.is_closing()
        protocol.data_received(b"a" * 4096)
    assert wire.is_closing()
    assert wire.written.startswith(b"HTTP/1.1 400 ")


async def test_whoever_never_completes_a_head_is_disconnected() -> None:
    """With nothing, with a part, with empty lines, and after a request that was answered."""
    for begun in (b"", b"GET /v1/me HT", b"\r\n"):
        protocol, wire = _connected(seconds=0.01)
        if begun:
            protocol.data_received(begun)
        await wire.is_closed.wait()
    protocol, wire = _connected(seconds=0.01)
    protocol.data_received(WHOLE)
    while not protocol.cycle.response_complete:
        await asyncio.sleep(0)
    protocol.data_received(b"GET ")
    await wire.is_closed.wait()


async def test_many_requests_and_large_bodies_on_one_connection_are_no_head_too_large() -> None:
    """Only what belongs to an unfinished head is counted."""
    protocol, wire = _connected()
    for _ in range(MAX_HEAD_BYTES // len(WHOLE) + 10):
        protocol.data_received(WHOLE)
        while not protocol.cycle.response_complete:
            await asyncio.sleep(0)
    protocol.data_received(b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n")
    for _ in range(50):
        protocol.data_received(b"x" * 4000)
    assert not wire.is_closing()
    protocol.connection_lost(None)
