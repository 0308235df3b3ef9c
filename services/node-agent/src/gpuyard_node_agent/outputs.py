"""What workloads print, from their files to the bus.

Only files that were written to are looked at, where the system tells of them. The files are the spool: what the bus does not take now is
read again later. A workload that prints more than its rate is heard in part, the numbers of its lines show the gap. A file that grows over
its cap keeps its beginning, and the end is still published while it passes by.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from gpuyard_contracts.envelope import Envelope
from gpuyard_contracts.messages.node import LogLinesV1
from gpuyard_runtime.faults import Unavailable
from gpuyard_runtime.logs import log_of

from gpuyard_node_agent import mapping
from gpuyard_node_agent.domain import lines
from gpuyard_node_agent.domain.lines import Position
from gpuyard_node_agent.domain.model import Order
from gpuyard_node_agent.ports import Clock
from gpuyard_node_agent.store import STREAMS, NodeStore

CHUNK_BYTES = 256 * 1024
SLACK_BYTES = 1 << 20
"""How far a file may pass its cap before it is cut back."""
LAST_WORDS_BYTES = 8 * 1024
FINISH_SECONDS = 10.0
"""How long an end waits for its last lines to be published before it is told without them."""

Stream = Literal["stdout", "stderr"]
Publish = Callable[[Envelope[Any]], Awaitable[Any]]
Written = Callable[[], set[str] | None]
"""Names of the files that were written to since the last call; None: any may have been."""


@dataclass
class _Followed:
    order: Order
    tails: dict[str, Position]
    has_printed: set[str] = field(default_factory=set[str])
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    task: asyncio.Task[bool] | None = None


class Outputs:
    """All workloads' output. `bytes_per_poll`: what one stream may publish between two polls; more is dropped and counted by lines."""

    def __init__(
        self,
        store: NodeStore,
        clock: Clock,
        publish: Publish,
        file_of: Callable[[str, str], str],
        *,
        written: Written = lambda: None,
        node_id: str,
        cap_bytes: int,
        bytes_per_poll: int,
    ) -> None:
        self.dropped_lines = 0
        self._store = store
        self._clock = clock
        self._publish = publish
        self._file_of = file_of
        self._node_id = node_id
        self._cap_bytes = cap_bytes
        self._bytes_per_poll = bytes_per_poll
        self._followed: dict[str, _Followed] = {}
        self._written = written
        self._fresh: set[str] = set(store.workloads)
        """Who may have printed what has not been looked at. What an earlier agent left is looked at once."""
        self._log = log_of("outputs")

    def follow(self, order: Order) -> None:
        """Publish what its process prints from now on, or from where an earlier agent had come."""
        if order.key not in self._followed:
            tails = dict(self._store.tails.get(order.key, {}))
            self._followed[order.key] = _Followed(order, tails, {stream for stream, at in tails.items() if at.line})
            if order.key not in self._store.workloads:  # its end waits to be told since an earlier agent
                self._fresh.add(order.key)

    def last_words(self, key: str) -> str:
        """The end of its standard error, or of its output where it wrote no error."""
        for stream in ("stderr", "stdout"):
            path = self._file_of(key, stream)
            size = _size(path)
            if size and (told := lines.last_lines(_read(path, max(size - LAST_WORDS_BYTES, 0), LAST_WORDS_BYTES))):
                return told
        return ""

    async def poll(self) -> None:
        """Publish what is new, of every workload at once; who is still busy with an earlier poll is left alone."""
        self._look()
        for key in list(self._fresh):
            followed = self._followed.get(key)
            if followed is None:
                if key not in self._store.workloads:
                    self._fresh.discard(key)
            elif not followed.lock.locked():
                self._fresh.discard(key)
                if self._has_news(key, followed):
                    followed.task = asyncio.create_task(self._ship(key, followed, is_end=False))

    def _look(self) -> None:
        names = self._written()
        self._fresh.update(self._followed if names is None else [name.rpartition(".")[0] for name in names])

    def _has_news(self, key: str, followed: _Followed) -> bool:
        return any(_size(self._file_of(key, stream)) != followed.tails.get(stream, Position()).offset for stream in STREAMS)

    def finish(self, key: str) -> Callable[[], Awaitable[None]] | None:
        """What must be awaited before its end is told; None where nothing is left to publish."""
        followed = self._followed.pop(key, None)
        if followed is None:
            return None
        self._look()
        is_fresh = key in self._fresh
        self._fresh.discard(key)
        if not followed.tails and not followed.lock.locked() and not (is_fresh and self._has_news(key, followed)):
            return None
        return lambda: self._finish(key, followed)

    async def _finish(self, key: str, followed: _Followed) -> None:
        """The rest, to the very end. A bus that takes no lines does not hold the end up for ever."""
        try:
            async with asyncio.timeout(FINISH_SECONDS):
                while True:
                    if await self._ship(key, followed, is_end=True):
                        return
                    await asyncio.sleep(0.2)
        except TimeoutError:
            self._log.warning("last_lines_unpublished", workload=key, tenant=followed.order.tenant)

    async def _ship(self, key: str, followed: _Followed, *, is_end: bool) -> bool:
        """Publish both streams up to where they are now; False where the bus did not take it."""
        async with followed.lock:
            try:
                for stream in STREAMS:
                    await self._ship_stream(key, followed, "stdout" if stream == "stdout" else "stderr", is_end=is_end)
            except Unavailable:
                self._fresh.add(key)
                return False
            except Exception:
                self._fresh.add(key)
                self._log.exception("output_not_published", workload=key)  # the workload's own life goes on
            return True

    async def _ship_stream(self, key: str, followed: _Followed, stream: Stream, *, is_end: bool) -> None:
        path = self._file_of(key, stream)
        size = _size(path)
        at = followed.tails.get(stream, Position())
        if size < at.offset:  # the program emptied the file itself
            at = Position(0, at.line)
        at, dropped = self._drop_excess(path, at, size)
        while at.offset < size or (is_end and at.rest):
            data = _read(path, at.offset, min(CHUNK_BYTES, size - at.offset)) if at.offset < size else b""
            if not data and not (is_end and at.rest):
                break
            after, found = lines.cut(at, data, is_end=is_end and at.offset + len(data) >= size)
            for first, portion in lines.messages(at.line, found):
                await self._say(followed, stream, first, portion, at.offset, dropped)
                dropped = 0
            at = after
            self._reached(key, followed, stream, at)
        if is_end and stream in followed.has_printed:
            await self._say(followed, stream, at.line, [], at.offset, dropped, is_last=True)
        self._cut_back(key, followed, path, stream)

    def _reached(self, key: str, followed: _Followed, stream: str, at: Position) -> None:
        followed.tails[stream] = at
        if key in self._store.workloads or key in self._store.tails:
            self._store.tail_is(key, stream, at)

    def _drop_excess(self, path: str, at: Position, size: int) -> tuple[Position, int]:
        """Pass over what is more than the rate allows, up to the start of a line."""
        dropped = 0
        goal = size - self._bytes_per_poll
        while at.offset < goal:
            data = _read(path, at.offset, min(CHUNK_BYTES, goal - at.offset))
            if not data:
                break
            if at.offset + len(data) >= goal and (end := data.rfind(b"\n")) >= 0:
                data, goal = data[: end + 1], at.offset
            at, lost = lines.skip(at, data)
            dropped += lost
        self.dropped_lines += dropped
        return at, dropped

    async def _say(
        self, followed: _Followed, stream: Stream, first: int, portion: list[str], offset: int, dropped: int, *, is_last: bool = False
    ) -> None:
        order = followed.order
        payload = LogLinesV1(
            node_id=self._node_id,
            tenant=order.tenant,
            job_id=order.job_id,
            attempt=order.attempt,
            rank=order.rank,
            stream=stream,
            first_line=first,
            lines=tuple(portion),
            at=self._clock.now(),
            is_last=is_last,
            dropped_lines=dropped,
        )
        await self._publish(mapping.log_lines(payload, order, offset))
        followed.has_printed.add(stream)

    def _cut_back(self, key: str, followed: _Followed, path: str, stream: str) -> None:
        """A file over its cap keeps its beginning. Lines that are written in this very moment may get lost."""
        at = followed.tails.get(stream, Position())
        if at.offset <= self._cap_bytes + SLACK_BYTES or _size(path) != at.offset:
            return
        marker = f"\n[gpuyard: output above {self._cap_bytes} bytes is not kept in this file]\n".encode()
        keep = self._cap_bytes
        if _read(path, keep, len(marker)) == marker:
            keep += len(marker)
            marker = b""
        try:
            os.truncate(path, keep)
            with open(path, "ab", buffering=0) as file:  # noqa: PTH123 - text paths on the fast path
                file.write(marker)
        except OSError as error:
            self._log.warning("output_uncut", workload=key, detail=error.strerror)
            return
        self._reached(key, followed, stream, Position(keep + len(marker), at.line, at.rest))

    async def close(self) -> None:
        """Stop; positions are the store's."""
        tasks = [followed.task for followed in self._followed.values() if followed.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116 - text paths on the fast path
    except OSError:
        return 0


def _read(path: str, offset: int, size: int) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.pread(fd, size, offset)
    finally:
        os.close(fd)
