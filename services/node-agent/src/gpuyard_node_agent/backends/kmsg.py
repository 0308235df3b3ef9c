"""The kernel's log as a second source of XIDs: NVML misses some, and a card may fall off the bus without one."""

import asyncio
import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from gpuyard_node_agent.domain.kernel_log import XidLine, read_record, xid_of

KMSG = Path("/dev/kmsg")
RECORD_BYTES = 8192
MOST_RECORDS = 500
"""How many records are read in one go, so that a flood of the log does not hold up the agent."""


class KernelLog:
    """Tells of XIDs from after record `since` on (-1: from now on). Where the log cannot be read it tells nothing."""

    def __init__(self, tell: Callable[[XidLine, int], None], since: int, path: Path = KMSG) -> None:
        self._tell = tell
        self._since = since
        self._path = path
        self._fd = -1

    def open(self) -> bool:
        """Start listening on the running loop; whether the log can be read."""
        try:
            self._fd = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            if self._since < 0:
                os.lseek(self._fd, 0, os.SEEK_END)
            asyncio.get_running_loop().add_reader(self._fd, self.read)
        except OSError:
            self.close()
            return False
        return True

    def read(self) -> None:
        """Take what is there. A record that was overwritten before it could be read is passed over."""
        for _ in range(MOST_RECORDS):
            try:
                data = os.read(self._fd, RECORD_BYTES)
            except BlockingIOError:
                return
            except BrokenPipeError:
                continue
            except OSError:
                self.close()
                return
            if not data:
                return
            found = read_record(data.decode("utf-8", "replace"))
            if found is not None and found[0] > self._since and (line := xid_of(found[1])) is not None:
                self._since = found[0]
                self._tell(line, found[0])

    def close(self) -> None:
        """Stop listening."""
        if self._fd >= 0:
            with contextlib.suppress(ValueError, OSError, NotImplementedError, RuntimeError):
                asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
