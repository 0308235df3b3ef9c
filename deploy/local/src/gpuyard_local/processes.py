"""Processes named so that no other can be meant: by pid, start time and boot.

A pid alone is a name that the kernel gives away again. Every program of a stack starts through a script that notes its own line of
``/proc`` before it becomes the program (`RECORD_SELF`); whoever wants to end it later compares, on a handle (pidfd) that cannot move on to
another process, and touches nothing that is not the very same.
"""

import contextlib
import os
import select
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

RECORD_SELF = 'cat "/proc/$$/stat" /proc/sys/kernel/random/boot_id > {file}'
"""A line of shell that writes who the shell is; `exec` keeps both pid and start time."""


@dataclass(frozen=True, slots=True)
class ProcessId:
    """One process of one boot. `started_ticks` is in clock ticks since that boot."""

    pid: int
    started_ticks: int
    boot_id: str


def boot_id() -> str:
    """The kernel's id of the present boot."""
    return _BOOT_ID.read_text().strip()


def identify(pid: int) -> ProcessId | None:
    """Who has this pid now; None for nobody, and for a zombie, which is nobody any more."""
    try:
        line = Path(f"/proc/{pid}/stat").read_text()
    except (OSError, UnicodeDecodeError):
        return None
    found = _parse(line)
    return None if found is None or found[2] in "ZX" else ProcessId(found[0], found[1], boot_id())


def record(file: Path, process: ProcessId) -> None:
    """Write down a process that cannot do so itself, in the form of `RECORD_SELF`."""
    file.write_text(f"{Path(f'/proc/{process.pid}/stat').read_text().strip()}\n{process.boot_id}\n")


def recorded(file: Path) -> ProcessId | None:
    """Who a `RECORD_SELF` file speaks of; None where there is none, or an unreadable one."""
    try:
        line, boot, *_ = file.read_text().splitlines()
    except (OSError, ValueError):
        return None
    found = _parse(line)
    return None if found is None else ProcessId(found[0], found[1], boot.strip())


def is_alive(process: ProcessId) -> bool:
    """The very same process still runs."""
    return identify(process.pid) == process


def send(process: ProcessId, signal_number: int) -> bool:
    """Send a signal to exactly this process; False if it is gone. Raises PermissionError for another user's."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        if not is_alive(process):  # after the handle was opened: it cannot become another one any more
            return False
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, signal_number)
            return True
        return False
    finally:
        os.close(handle)


def end(processes: Iterable[ProcessId], *, grace_seconds: float, signal_number: int = signal.SIGTERM) -> list[ProcessId]:
    """End these: `signal_number`, and SIGKILL after the grace. Returns those that were alive. All are gone afterwards."""
    found = [process for process in processes if send(process, signal_number)]
    deadline = time.monotonic() + grace_seconds
    for process in found:
        if not wait_gone(process, max(0.0, deadline - time.monotonic())):
            send(process, signal.SIGKILL)
            wait_gone(process, 10.0)
    return found


def wait_gone(process: ProcessId, seconds: float) -> bool:
    """Wait until the process is gone; False if it is still there after that time."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return True
    try:
        if not is_alive(process):
            return True
        poller = select.poll()
        poller.register(handle, select.POLLIN)
        return bool(poller.poll(int(seconds * 1000)))
    finally:
        os.close(handle)


def _parse(line: str) -> tuple[int, int, str] | None:
    """pid, start ticks and state of a line of ``/proc/<pid>/stat``: the name in parentheses may hold anything, so count from its end."""
    head, _, tail = line.rpartition(")")
    fields = tail.split()
    try:
        return int(head.split(" ", 1)[0]), int(fields[19]), fields[0]
    except (ValueError, IndexError):
        return None
