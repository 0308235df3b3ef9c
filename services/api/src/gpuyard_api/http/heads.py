"""The line and headers of a request are bounded in size and time: uvicorn bounds neither.

Its parser joins the pieces of a header anew with each one that comes, so a single one without an end, sent by anybody, would hold up the
whole process; and a client that never finishes its head would keep its connection for ever. Bodies are the door's
(:mod:`gpuyard_api.http.door`), idle connections uvicorn's own.
"""

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES = 64 * 1024
HEAD_SECONDS = 15.0


class BoundedHeads(HttpToolsProtocol):
    """One connection. A head that is too large or too slow closes it."""

    max_head_bytes = MAX_HEAD_BYTES
    head_seconds = HEAD_SECONDS
    _late: asyncio.TimerHandle | None = None
    _head_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Whoever connects must ask for something."""
        super().connection_made(transport)  # pyright: ignore[reportArgumentType]  # uvicorn narrows what asyncio gives it
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is waited for."""
        self._head_came()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes after an answer begin the next request. Those of a head that is not complete are counted."""
        if self.cycle is None or self.cycle.response_complete:  # pyright: ignore[reportUnnecessaryComparison]  # None until the first request
            self._await_head()
        super().data_received(data)
        if self._late is not None:
            self._head_bytes += len(data)
            if self._head_bytes > self.max_head_bytes and not self.transport.is_closing():
                self.send_400_response("The headers of the request are too large.")

    def on_message_begin(self) -> None:
        """The parser's word that a head begins."""
        self._await_head()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The parser's word that a head is complete."""
        self._head_came()
        super().on_headers_complete()

    def _await_head(self) -> None:
        if self._late is None:
            self._late = self.loop.call_later(self.head_seconds, self.transport.close)

    def _head_came(self) -> None:
        self._head_bytes = 0
        if self._late is not None:
            self._late.cancel()
            self._late = None
