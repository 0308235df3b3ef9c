"""Whether a service lives and is ready, and why not: one line of reason for each part, kept by the parts themselves.

`/livez` answers while the event loop turns. `/readyz` answers 200 only while no part has a reason to wait; its JSON names each that has.
`/metrics` is Prometheus' text. A small server of its own on the service's loop: if the loop is stuck, it does not answer, as it must be.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path

from pydantic_core import to_json

REQUEST_SECONDS = 5.0
MAX_LINE = 4096
STATUS = {200: "OK", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


class Health:
    """Reasons why the service is not ready, by part. A part without one is well."""

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {}
        self.is_draining = False

    def tell(self, part: str, reason: str | None) -> None:
        """Say why a part is not ready, or (None) that it is."""
        if reason is None:
            self._reasons.pop(part, None)
        else:
            self._reasons[part] = reason

    def teller(self, part: str) -> Callable[[str | None], None]:
        """:meth:`tell` for one part."""
        return lambda reason: self.tell(part, reason)

    @property
    def is_ready(self) -> bool:
        """Whether no part has a reason."""
        return not self._reasons and not self.is_draining

    def reasons(self) -> Mapping[str, str]:
        """The reasons, by part."""
        return self._reasons | ({"process": "stopping"} if self.is_draining else {})


class HealthServer:
    """Serves health and metrics over HTTP/1.1, one request a connection."""

    def __init__(self, health: Health, metrics: Callable[[], bytes]) -> None:
        self._health = health
        self._metrics = metrics
        self._server: asyncio.Server | None = None
        self.port = 0

    async def start(self, host: str, port: int, port_file: Path | None = None) -> None:
        """Listen; a port of 0 takes a free one. The port is written to `port_file`, whole or not at all. Raises OSError."""
        self._server = await asyncio.start_server(self._serve, host, port, limit=MAX_LINE)
        self.port = self._server.sockets[0].getsockname()[1]
        if port_file is not None:
            half = port_file.with_name(f".{port_file.name}.half")
            half.write_text(str(self.port))
            half.replace(port_file)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, ValueError, asyncio.LimitOverrunError, asyncio.IncompleteReadError):
            line = await asyncio.wait_for(reader.readline(), REQUEST_SECONDS)
            while (await asyncio.wait_for(reader.readline(), REQUEST_SECONDS)).strip():
                pass
            method, _, rest = line.decode("latin-1").partition(" ")
            code, kind, body = self.answer(method, rest.partition(" ")[0].partition("?")[0])
            head = f"HTTP/1.1 {code} {STATUS[code]}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            writer.write(head.encode() + (b"" if method == "HEAD" else body))
            await writer.drain()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    def answer(self, method: str, path: str) -> tuple[int, str, bytes]:
        """Status, content type and body of a request."""
        if method not in ("GET", "HEAD"):
            return 405, "application/json", b'{"detail":"only GET"}'
        if path == "/livez":
            return 200, "application/json", b'{"status":"alive"}'
        if path == "/readyz":
            ready = self._health.is_ready
            body = to_json({"status": "ready" if ready else "not ready", "reasons": dict(self._health.reasons())})
            return 200 if ready else 503, "application/json", body
        if path == "/metrics":
            return 200, "text/plain; version=0.0.4; charset=utf-8", self._metrics()
        return 404, "application/json", b'{"detail":"there are /livez, /readyz and /metrics"}'

    async def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._server.wait_closed(), 1.0)
