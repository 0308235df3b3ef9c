"""Which output files have been written to since one last looked, told by the kernel (inotify): who prints nothing costs nothing."""

import contextlib
import ctypes
import os
import struct
from pathlib import Path

IN_MODIFY = 0x2
IN_Q_OVERFLOW = 0x4000
_EVENT = struct.Struct("iIII")
"""inotify(7): watch, mask, cookie, length of the name that follows."""
READ_BYTES = 1 << 18


class Writings:
    """The files of one folder. `is_watched`: the system tells; where it does not, every file has to be looked at."""

    def __init__(self, folder: Path) -> None:
        self._fd = _watch(folder)

    @property
    def is_watched(self) -> bool:
        """Whether the system tells."""
        return self._fd >= 0

    def take(self) -> set[str] | None:
        """Names of the files that were written to since the last call; None: any may have been."""
        names: set[str] = set()
        if self._fd < 0:
            return None
        with contextlib.suppress(BlockingIOError):
            while True:
                told = os.read(self._fd, READ_BYTES)
                at = 0
                while at < len(told):
                    _, mask, _, length = _EVENT.unpack_from(told, at)
                    at += _EVENT.size + length
                    if mask & IN_Q_OVERFLOW:
                        self._drain()
                        return None
                    names.add(told[at - length : at].rstrip(b"\0").decode("utf-8", "replace"))
        return names

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._fd, READ_BYTES):
                continue

    def close(self) -> None:
        """Look no longer."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _watch(folder: Path) -> int:
    """A descriptor of inotify on the folder; -1 where the system has none to give."""
    try:
        libc = ctypes.CDLL(None)
        fd = int(libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        if fd >= 0 and libc.inotify_add_watch(fd, os.fsencode(folder), IN_MODIFY) < 0:
            os.close(fd)
            fd = -1
    except (OSError, AttributeError):
        return -1
    return fd
