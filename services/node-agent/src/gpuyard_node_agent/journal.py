"""The journal on disk: what the agent intends before it does it, so that a kill at any step loses nothing and does nothing twice.

A file of lines, each ``<crc32> <JSON>``, only ever appended to, and written anew (beside the old one, then renamed) when most of it is
history. A line is in the kernel's hands after :meth:`Journal.write`, which is enough against the death of the agent and is called before
anything is done that the line tells of; :meth:`Journal.synced` waits until it is on the disk, which is wanted before an order is
acknowledged. Lines of one turn of the event loop share a write, and many waiters share one sync.
"""

import asyncio
import os
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from gpuyard_runtime.faults import RetryLater
from gpuyard_runtime.logs import log_of
from pydantic_core import from_json, to_json

Record = dict[str, Any]
"""One line. `t` names its kind; :mod:`gpuyard_node_agent.store` gives the kinds their meaning."""

SMALL_BYTES = 1 << 20
"""A journal below this is never worth writing anew."""


def line_of(record: Record) -> bytes:
    """A record as its line, newline included."""
    body = to_json(record)
    return b"%08x %b\n" % (zlib.crc32(body), body)


def record_of(line: bytes) -> Record | None:
    """A line's record; None where the line is not whole."""
    mark, _, body = line.partition(b" ")
    try:
        if len(mark) != 8 or int(mark, 16) != zlib.crc32(body):
            return None
        found = from_json(body)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


class Journal:
    """One open journal. `problem` is why it cannot be written now, or None; what could not be written is written later.

    `later` has :meth:`write` called when this turn's lines are together; without it each line is written at once.
    """

    def __init__(self, path: Path, later: Callable[[Callable[[], None]], object] | None = None) -> None:
        self.path = path
        self._later = later
        self._is_due = False
        self.problem: str | None = None
        self.broken_lines = 0
        self._log = log_of("journal")
        self._fd = -1
        self._owed = b""
        self._bytes = 0
        self._live_bytes = 0
        self._written = 0
        self._on_disk = 0
        self._syncing: asyncio.Task[None] | None = None

    def open(self) -> list[Record]:
        """Read what is there. A last line that was torn is cut off; a broken one in the middle is passed over and counted."""
        self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        data = self.path.read_bytes()
        *lines, torn = data.split(b"\n")
        if torn:
            os.ftruncate(self._fd, len(data) - len(torn))
        found = [record_of(line) for line in lines]
        self.broken_lines = found.count(None)
        if self.broken_lines:
            self._log.error("journal_broken_lines", lines=self.broken_lines)
        self._bytes = len(data) - len(torn)
        return [record for record in found if record is not None]

    def append(self, *records: Record) -> None:
        """Owe the records to the file, in one piece."""
        self._written += 1
        self._owed += b"".join(map(line_of, records))
        if self._later is None:
            self.write()
        elif not self._is_due:
            self._is_due = True
            self._later(self.write)

    def write(self) -> None:
        """Write what is owed. Never raises: a full disk is remembered in `problem` and tried again with the next."""
        self._is_due = False
        if self._owed:
            self._write(self._owed)

    def is_well(self) -> bool:
        """Whether records can be written now; what is owed is tried first. Nothing is to be begun that cannot be written down."""
        self.write()
        return self.problem is None

    def _write(self, data: bytes) -> None:
        done = 0
        try:
            while done < len(data):
                done += os.write(self._fd, data[done:])
            self.problem = None
        except OSError as error:
            self.problem = f"the journal cannot be written: {error.strerror}"
            self._log.error("journal_stuck", detail=error.strerror)
        self._owed = data[done:]
        self._bytes += done

    async def synced(self) -> None:
        """Wait until everything appended so far is on the disk. Raises RetryLater where it cannot be."""
        wanted = self._written
        while self._on_disk < wanted:
            if self._syncing is None:
                self._syncing = asyncio.create_task(self._sync())
            await asyncio.shield(self._syncing)

    async def _sync(self) -> None:
        try:
            self.write()
            if self.problem is not None:
                raise RetryLater(self.problem)
            reached = self._written
            await asyncio.get_running_loop().run_in_executor(None, os.fdatasync, self._fd)
            self._on_disk = max(self._on_disk, reached)
        except OSError as error:
            raise RetryLater(f"the journal cannot be synced: {error.strerror}") from None
        finally:
            self._syncing = None

    @property
    def is_worth_rewriting(self) -> bool:
        """Most of the file is history, and no sync is under way."""
        return self._syncing is None and self._bytes > max(SMALL_BYTES, 4 * self._live_bytes)

    def rewrite(self, records: Iterable[Record]) -> None:
        """Start the file anew with what still matters. Raises OSError, and then nothing has changed."""
        data = b"".join(map(line_of, records))
        fresh = self.path.with_suffix(".new")
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(os.dup(fd), "wb") as file:
                file.write(data)
            os.fsync(fd)
            fresh.replace(self.path)
        except OSError:
            os.close(fd)
            fresh.unlink(missing_ok=True)
            raise
        _sync_folder(self.path.parent)
        os.close(self._fd)
        self._fd, self._owed, self.problem = fd, b"", None
        self._bytes = self._live_bytes = len(data)
        self._on_disk = self._written

    def close(self) -> None:
        """Write what is owed, sync, close."""
        if self._fd >= 0:
            self.write()
            os.fsync(self._fd)
            os.close(self._fd)
            self._fd = -1


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
