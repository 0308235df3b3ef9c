"""nats-py with its hot paths made short.

nats-py connects, authenticates, reconnects and resubscribes. What it does for each single message (a future, a queue entry and a timer
at each receive, a flush at each publish) costs about 90 µs; services that move whole batches need a tenth of it. So subscriptions that ask
for it get their messages by a plain call (:meth:`LeanClient.sink`), and frames are written together (:meth:`LeanClient.post`), flushed once
per turn of the event loop. This file is the only one that touches nats-py's inside; its version is pinned, and the conformance suite runs
on it.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping

from nats.aio.client import Client
from nats.protocol.parser import AWAITING_CONTROL_LINE, Parser

Sink = Callable[[bytes, bytes, bytes, bytes], None]
"""Called with subject, reply subject, header block (empty: none) and body. Must not raise."""

_LINE = b"NATS/1.0"
_CRLF = b"\r\n"
_ONE_LINE = str.maketrans({"\r": " ", "\n": " "})


def header_block(headers: Mapping[str, str]) -> bytes:
    """Headers as they travel. Values stay on one line, whatever they hold."""
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    if not lines.count("\r") == lines.count("\n") == len(headers):
        lines = "".join([f"{name}: {value.translate(_ONE_LINE)}\r\n" for name, value in headers.items()])
    return b"NATS/1.0\r\n" + lines.encode() + _CRLF


def read_headers(block: bytes) -> dict[str, str]:
    """The headers of a block; the last of equal names wins."""
    found: dict[str, str] = {}
    for line in block.decode("utf-8", "replace").split("\r\n")[1:]:
        name, colon, value = line.partition(":")
        if colon:
            found[name] = value.strip()
    return found


def status_of(block: bytes) -> tuple[int, str] | None:
    """Code and text of a status message of the server (no messages, timeout, heartbeat, no responders); None for a real message."""
    if not block.startswith(b"NATS/1.0 "):
        return None
    code, _, text = block[9 : block.find(_CRLF)].decode("utf-8", "replace").strip().partition(" ")
    return (int(code), text.strip()) if code.isdigit() else None


def frame(subject: bytes, reply: bytes, block: bytes, body: bytes) -> bytes:
    """One publish with headers."""
    return b"HPUB %b %b %d %d\r\n%b%b\r\n" % (subject, reply, len(block), len(block) + len(body), block, body)


def plain_frame(subject: bytes, body: bytes) -> bytes:
    """One publish without headers and reply."""
    return b"PUB %b %d\r\n%b\r\n" % (subject, len(body), body)


# pyright: reportPrivateUsage=false
# The client's inside is used here on purpose; see the module.


class LeanParser(Parser):
    """Hands whole messages to sinks; everything else in the protocol is nats-py's."""

    def __init__(self, client: "LeanClient") -> None:
        super().__init__(client)
        self._client = client

    async def parse(self, data: bytes = b"") -> None:
        """Take what came from the server; an incomplete message stays in the buffer."""
        self.buf.extend(data)
        if self.state != AWAITING_CONTROL_LINE:
            await super().parse()
            return
        raw = bytes(self.buf)
        at = 0
        while (end := raw.find(_CRLF, at)) >= 0:
            if raw.startswith((b"MSG ", b"HMSG "), at):
                next_at = await self._message(raw, at, end)
                if next_at < 0:
                    break
                at = next_at
            else:
                # One line of another kind. Its handling may reset this parser (the connection is lost): then what is left is void.
                self.buf = line = bytearray(raw[at : end + 2])
                await super().parse()
                if self.buf is not line:
                    return
                at = end + 2
        self.buf = bytearray(raw[at:])

    async def _message(self, raw: bytes, at: int, end: int) -> int:
        """Deliver the message whose line is raw[at:end]; returns where the next begins, -1 where it is not complete."""
        parts = raw[at:end].split()
        has_headers = parts[0] == b"HMSG"
        total = int(parts[-1])
        header_bytes = int(parts[-2]) if has_headers else 0
        start = end + 2
        stop = start + total
        if stop + 2 > len(raw):
            return -1
        has_reply = len(parts) == (6 if has_headers else 5)
        sid = int(parts[2])
        reply = parts[3] if has_reply else b""
        middle = start + header_bytes
        sink = self._client.sinks.get(sid)
        if sink is None:
            await self._client._process_msg(sid, parts[1], reply, raw[middle:stop], raw[start:middle])
        else:
            sink(parts[1], reply, raw[start:middle], raw[middle:stop])
        return stop + 2


class LeanClient(Client):
    """A nats-py client with sinks and joined writes."""

    def __init__(self) -> None:
        super().__init__()
        self.sinks: dict[int, Sink] = {}
        self._ps = LeanParser(self)
        self._is_kick_due = False
        self.closing = False
        """Set before the connection is closed on purpose."""

    async def sink(self, subject: str, sink: Sink, *, queue: str = "") -> Callable[[], "asyncio.Future[None]"]:
        """Subscribe with a plain call for each message; returns what unsubscribes. Survives reconnects."""
        subscription = await self.subscribe(subject, queue=queue)
        sid = subscription._id
        self.sinks[sid] = sink

        def stop() -> "asyncio.Future[None]":
            self.sinks.pop(sid, None)
            return asyncio.ensure_future(subscription.unsubscribe())

        return stop

    async def abandon(self) -> None:
        """Close what a failed connect has left open."""
        self.closing = True
        if self._transport is not None:
            self._transport.close()
            with contextlib.suppress(Exception):
                await self._transport.wait_closed()

    def post(self, frames: Iterable[bytes]) -> None:
        """Write frames with the next flush, in order. Dropped while the connection is away: who posts knows what to repeat."""
        if not self.is_connected:
            return
        joined = b"".join(frames)
        self._pending.append(joined)
        self._pending_data_size += len(joined)
        if not self._is_kick_due:
            self._is_kick_due = True
            asyncio.get_running_loop().call_soon(self._kick)

    def _kick(self) -> None:
        """Wake nats-py's flusher, once for all that was posted in this turn."""
        self._is_kick_due = False
        if self.is_connected and self._flush_queue is not None and self._flush_queue.empty():
            self._flush_queue.put_nowait(asyncio.get_running_loop().create_future())
