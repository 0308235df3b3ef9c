"""Where a workload lives on disk, and how its order becomes a process to launch.

In the state folder ``work/<key>`` is its working folder and HOME, ``output/<key>.out`` and ``.err`` are what it prints; they go some time
after the end. ``<checkpoints>/<job>.<rank>`` stays: the job's next attempt finds it, here or on another node that shares the root.
"""

import contextlib
import os
import shutil
import time
from collections import deque
from pathlib import Path

from gpuyard_runtime.logs import log_of

from gpuyard_node_agent.domain.admission import Refused
from gpuyard_node_agent.domain.environment import DEFAULT_PATH, environment_of
from gpuyard_node_agent.domain.model import Order
from gpuyard_node_agent.ports import Launch
from gpuyard_node_agent.processes.cgroups import Cgroups

FILES = {"stdout": "out", "stderr": "err"}


def find_program(name: str, search: str, folder: str) -> str | Refused:
    """The program that a command names: a path (relative to `folder`), or a name that is looked for along `search`."""
    if "/" in name:
        path = os.path.normpath(os.path.join(folder, name))  # noqa: PTH118 - `name` may be absolute
        if not os.path.isfile(path):  # noqa: PTH113 - text in, text out
            return Refused("bad-command", f"there is no program {name!r}", is_permanent=True)
        if not os.access(path, os.X_OK):
            return Refused("bad-command", f"{name!r} is not executable", is_permanent=True)
        return path
    found = shutil.which(name, path=search)
    if found is None:
        return Refused("bad-command", f"no program {name!r} is found along PATH {search[:300]!r}", is_permanent=True)
    return os.path.join(folder, found)  # noqa: PTH118 - an absolute `found` stays as it is


class Workspace:
    """The folders of one node."""

    def __init__(
        self, *, state: Path, checkpoints: Path, node_id: str, cap_bytes: int, keep_seconds: float, cgroups: Cgroups | None = None
    ) -> None:
        self.root = state / "work"
        self.output = state / "output"
        self._checkpoints = checkpoints
        self._node_id = node_id
        self._cap_bytes = cap_bytes
        self._keep_seconds = keep_seconds
        self._cgroups = cgroups
        self._old: deque[tuple[float, str]] = deque()
        self._log = log_of("workspace")
        for folder in (self.root, self.output, checkpoints):
            folder.mkdir(parents=True, exist_ok=True)

    def file_of(self, key: str, stream: str) -> str:
        """Where a stream of a workload is written."""
        return f"{self.output}/{key}.{FILES[stream]}"

    def caps_of(self, key: str) -> dict[str, int]:
        """A workload's output files with their greatest size."""
        return {self.file_of(key, stream): self._cap_bytes for stream in FILES}

    def prepare(self, order: Order) -> Launch | Refused:
        """Make the folders and say what to launch; nothing runs yet."""
        work = f"{self.root}/{order.key}"
        checkpoint = f"{self._checkpoints}/{order.job_id}.{order.rank}"
        try:
            for folder in (work, checkpoint):
                with contextlib.suppress(FileExistsError):
                    os.mkdir(folder)  # noqa: PTH102 - on the fast path; text in, text out
            cgroup = None if self._cgroups is None else self._cgroups.make(order)
        except OSError as error:
            return Refused("no-room", f"its folders cannot be made: {error.strerror}")
        program = find_program(order.command[0], order.env.get("PATH", DEFAULT_PATH), work)
        if isinstance(program, Refused):
            self.leave(order.key)
            return program
        return Launch(
            key=order.key,
            path=program,
            argv=order.command,
            env=environment_of(order, work_dir=work, checkpoint_dir=checkpoint, node_id=self._node_id),
            cwd=work,
            out=self.file_of(order.key, "stdout"),
            err=self.file_of(order.key, "stderr"),
            cap_bytes=self._cap_bytes,
            cgroup=cgroup,
            cgroup_home=None if self._cgroups is None else self._cgroups.home,
        )

    def leave(self, key: str) -> None:
        """The workload is over: its folder may go after a while."""
        self._old.append((time.monotonic(), key))
        if self._cgroups is not None:
            self._cgroups.drop(key)

    def sweep(self, living: set[str]) -> int:
        """Remove what has been left long enough; how many folders."""
        swept = 0
        while self._old and time.monotonic() - self._old[0][0] >= self._keep_seconds and swept < 200:
            _, key = self._old.popleft()
            if key not in living:
                shutil.rmtree(f"{self.root}/{key}", ignore_errors=True)
                for stream in FILES:
                    with contextlib.suppress(OSError):
                        os.unlink(self.file_of(key, stream))  # noqa: PTH108 - text in, text out
                swept += 1
        return swept

    def find_old(self, living: set[str]) -> None:
        """At the start: folders of workloads that are over are left too."""
        found = {entry.name for entry in self.root.iterdir()} | {entry.stem for entry in self.output.iterdir()}
        self._old += [(time.monotonic(), key) for key in sorted(found - living)]
