"""A server process that we start ourselves: waiting until it is ready, stopping it, and saying why where it is not.

What a process wrote goes to its log file; the end of that is part of the error when it does not come up.
"""

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

LOOPBACK = "127.0.0.1"
READY_SECONDS = 30.0
STOP_SECONDS = 15.0

_PR_SET_PDEATHSIG = 1


class ServerFailed(RuntimeError):
    """An embedded server did not come up."""


def free_port() -> int:
    """A TCP port on loopback that nobody listens on now. Somebody may take it before it is used: on failure take another."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def clean_environment() -> dict[str, str]:
    """What a server needs of our environment, and nothing else: no locale, home or secret of the caller leaks into it."""
    return {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "LC_ALL": "C", "TZ": "UTC"}


@dataclass
class ServerProcess:
    """One running server. `is_tied`: the kernel ends it when the thread that started it ends, however that happens (for tests)."""

    name: str
    command: Sequence[str]
    log: Path
    is_ready: Callable[[], bool]
    stop_signal: signal.Signals = signal.SIGTERM
    uid: int | None = None
    is_tied: bool = False
    environment: Mapping[str, str] = field(default_factory=clean_environment)
    _process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def start(self) -> None:
        """Start it and wait until it is ready. Raises ServerFailed with the end of its log."""
        libc = ctypes.CDLL(None) if self.is_tied else None
        stop = int(self.stop_signal)

        def tie() -> None:
            if libc is not None:
                libc.prctl(_PR_SET_PDEATHSIG, stop)

        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=dict(self.environment),
                start_new_session=True,
                preexec_fn=tie if self.is_tied else None,  # calls nothing but libc, loaded before
                user=self.uid,
                group=self.uid,
                extra_groups=None if self.uid is None else [],
            )
        deadline = time.monotonic() + READY_SECONDS
        while not self.is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise ServerFailed(f"{self.name} did not come up; the end of {self.log.name}:\n{self._tail()}")
            time.sleep(0.02)

    def stop(self) -> None:
        """Stop it gently, and at once if that takes too long. Does nothing where it does not run."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(self.stop_signal)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def kill(self) -> None:
        """Kill it and its children as a power cut would: PostgreSQL's backends outlive it for a moment, and would go on committing."""
        if self._process is not None:
            family = [self._process.pid, *_children(self._process.pid)]
            for pid in family:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._process.wait()
            self._process = None
            while any(_is_alive(pid) for pid in family):
                time.sleep(0.005)

    def _tail(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join(lines[-15:])


def _children(pid: int) -> list[int]:
    try:
        return [int(found) for found in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _is_alive(pid: int) -> bool:
    """Whether a process still runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False
