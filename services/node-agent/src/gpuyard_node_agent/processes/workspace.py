"""Where a workload lives on disk, and how its order becomes a process to launch.

In the state folder ``work/<key>`` is its working folder and HOME, ``output/<key>.out`` and ``.err`` are what it prints; they go some time
after the end. ``<checkpoints>/<job>.<rank>`` stays: the job's next attempt finds it, here or on another node that shares the root. What is
empty at the end is not kept but given a new name for the same tenant's next workload (:mod:`gpuyard_node_agent.domain.spares`).
"""

import contextlib
import os
import shutil
import time
from collections import deque
from pathlib import Path

from gpuyard_node_agent.domain.admission import Refused
from gpuyard_node_agent.domain.environment import DEFAULT_PATH, environment_of
from gpuyard_node_agent.domain.model import Order
from gpuyard_node_agent.domain.spares import Spares
from gpuyard_node_agent.ports import Launch
from gpuyard_node_agent.processes import ownership
from gpuyard_node_agent.processes.cgroups import Cgroups
from gpuyard_node_agent.processes.writings import Writings

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
        self._spares, self._spare_checkpoints = Spares(), Spares()
        self._spare_mark = f"{checkpoints}/.spare.{node_id}."
        self._spared = 0
        for folder in (self.root, self.output, checkpoints):
            folder.mkdir(parents=True, exist_ok=True)
        self.writings = Writings(self.output)

    def file_of(self, key: str, stream: str) -> str:
        """Where a stream of a workload is written."""
        return f"{self.output}/{key}.{FILES[stream]}"

    def caps_of(self, key: str) -> dict[str, int]:
        """A workload's output files with their greatest size."""
        return {self.file_of(key, stream): self._cap_bytes for stream in FILES}

    def prepare(self, order: Order, uid: int | None) -> Launch | Refused:
        """Make the folders, the user's own where one is named, and say what to launch; nothing runs yet."""
        work = f"{self.root}/{order.key}"
        checkpoint = self._checkpoint_of(order)
        try:
            self._make_work(order, work)
            self._make_checkpoint(order, checkpoint)
            if uid is not None:
                for folder in (work, checkpoint):
                    ownership.give(folder, uid)
            cgroup = None if self._cgroups is None else self._cgroups.make(order)
        except OSError as error:
            return Refused("no-room", f"its folders cannot be made: {error.strerror}")
        program = find_program(order.command[0], order.env.get("PATH", DEFAULT_PATH), work)
        if isinstance(program, Refused):
            self.leave(order, uid, is_alone=False)
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
            uid=uid,
            cgroup=cgroup,
            cgroup_home=None if self._cgroups is None else self._cgroups.home,
        )

    def _checkpoint_of(self, order: Order) -> str:
        return f"{self._checkpoints}/{order.job_id}.{order.rank}"

    def _make_work(self, order: Order, work: str) -> None:
        """A working folder, with empty files for the output where there are spare ones. One that is there already is left as it is."""
        if os.path.exists(work):  # noqa: PTH110 - on the fast path; text in, text out
            return
        spare = self._spares.take(order.tenant)
        if spare is None:
            os.mkdir(work)  # noqa: PTH102
            return
        for stream in FILES:
            os.rename(self.file_of(spare, stream), self.file_of(order.key, stream))  # noqa: PTH104
        os.rename(f"{self.root}/{spare}", work)  # noqa: PTH104

    def _make_checkpoint(self, order: Order, checkpoint: str) -> None:
        if os.path.exists(checkpoint):  # noqa: PTH110
            return
        spare = self._spare_checkpoints.take(order.tenant)
        if spare is None:
            with contextlib.suppress(FileExistsError):
                os.mkdir(checkpoint)  # noqa: PTH102
        else:
            os.rename(spare, checkpoint)  # noqa: PTH104

    def leave(self, order: Order, uid: int | None, *, is_alone: bool) -> None:
        """The workload is over: what is not empty may go after a while.

        `is_alone`: no other attempt of the job can live anywhere, so that its checkpoint folder goes too where nothing was put into it.
        """
        key = order.key
        if uid is not None:
            for folder in (f"{self.root}/{key}", *([self._checkpoint_of(order)] if is_alone else [])):
                ownership.take_back(folder)
        gone = self._spares.put(order.tenant, key) if self._is_untouched(key) else key
        if gone is not None:
            self._old.append((time.monotonic(), gone))
        if is_alone:
            self._spare_checkpoint(order)
        if self._cgroups is not None:
            self._cgroups.drop(key)

    def _is_untouched(self, key: str) -> bool:
        """Whether it has printed nothing and left nothing in its working folder."""
        try:
            return not any(os.stat(self.file_of(key, stream)).st_size for stream in FILES) and _is_empty(f"{self.root}/{key}")  # noqa: PTH116
        except OSError:
            return False

    def _spare_checkpoint(self, order: Order) -> None:
        """Out of the job's way at once: its next attempt, on whatever node, makes its folder anew."""
        folder = self._checkpoint_of(order)
        try:
            if not _is_empty(folder):
                return
            self._spared += 1
            spare = f"{self._spare_mark}{self._spared}"
            os.rename(folder, spare)  # noqa: PTH104
        except OSError:
            return
        gone = self._spare_checkpoints.put(order.tenant, spare)
        if gone is not None:
            with contextlib.suppress(OSError):
                os.rmdir(gone)  # noqa: PTH106

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
        for spare in self._checkpoints.glob(f".spare.{self._node_id}.*"):
            with contextlib.suppress(OSError):
                spare.rmdir()


def _is_empty(folder: str) -> bool:
    with os.scandir(folder) as entries:
        return next(entries, None) is None
