# ruff: noqa: PTH123
# The keeper imports this and must be up in milliseconds: pathlib alone would double its start time.
"""One workload in the keeper's hands: how it is started, signalled and told of."""

import os
import resource
import signal
import time
from typing import Any

from gpuyard_node_agent.processes.procfs import now_ms

OPEN_FILES = 65_536
TO_DEFAULT = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGQUIT, signal.SIGUSR1)
"""What this process or Python handles or ignores, and a workload must not."""
OUTPUT_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW


class Held:
    """One workload: its leader (first process of its own session and group), and what is known of its end."""

    def __init__(self, key: str, pid: int, ticks: int, *, is_child: bool, caps: dict[str, int], uid: int | None = None) -> None:
        self.key = key
        self.uid = uid
        self.pid = pid
        self.ticks = ticks
        self.is_child = is_child
        self.caps = caps
        self.started_ms = now_ms()
        self.started_at = time.time()
        self.is_leader_gone = False
        self.is_stopped = False
        self.is_fenced = False
        self.kill_ms: int | None = None
        self.look_ms = 0
        self.looks = 0
        self.code: int | None = None
        self.signal: int | None = None
        self.ended_ms: int | None = None

    @classmethod
    def of_told(cls, told: dict[str, Any]) -> "Held":
        """One that has ended, as an earlier keeper told of it."""
        one = cls(told["key"], told["pid"], told["ticks"], is_child=False, caps={})
        one.started_ms, one.started_at, one.ended_ms = told["started_ms"], told["started_at"], told["ended_ms"]
        one.code, one.signal = told["code"], told["signal"]
        one.is_stopped, one.is_fenced = told["is_stopped"], told["is_fenced"]
        return one

    def told(self) -> dict[str, Any]:
        """What the agent is told of it."""
        found: dict[str, Any] = {"key": self.key, "pid": self.pid, "ticks": self.ticks}
        found |= {"started_ms": self.started_ms, "started_at": self.started_at}
        if self.ended_ms is not None:
            found |= {"ended_ms": self.ended_ms, "code": self.code, "signal": self.signal}
            found |= {"is_stopped": self.is_stopped, "is_fenced": self.is_fenced}
        return found

    def strike(self, number: int) -> None:
        """Signal the whole group. The leader is not reaped before its group is empty or killed, so the number cannot be another's."""
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            return


def limit_workloads() -> None:
    """What every workload inherits: no core files, and enough open files for a data loader."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES), hard))


def launch(ask: dict[str, Any]) -> int:
    """Start the process in its own session; its pid. Raises OSError where it cannot be: nothing runs then."""
    cgroup = ask.get("cgroup")
    if cgroup:
        _enter(cgroup)
    try:
        return _spawn(ask) if ask.get("uid") is None else _spawn_as(ask, int(ask["uid"]))
    finally:
        if cgroup:
            _enter(ask["cgroup_home"])


def _spawn(ask: dict[str, Any]) -> int:
    """As the keeper's own user: the cheapest way there is."""
    os.chdir(ask["cwd"])
    try:
        return os.posix_spawn(
            ask["path"],
            ask["argv"],
            ask["env"],
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, ask["out"], OUTPUT_FLAGS, 0o640),
                (os.POSIX_SPAWN_OPEN, 2, ask["err"], OUTPUT_FLAGS, 0o640),
            ],
            setsid=True,
            setsigmask=[],
            setsigdef=TO_DEFAULT,
        )
    finally:
        os.chdir("/")


def _spawn_as(ask: dict[str, Any], uid: int) -> int:
    """As another user and group, of no other groups. The output files are that user's, so that it may open `/dev/stdout` by its name."""
    import subprocess  # at the first one of this kind: it would double the keeper's start time

    outputs: list[int] = []
    try:
        for path in (ask["out"], ask["err"]):
            outputs.append(os.open(path, OUTPUT_FLAGS | os.O_CLOEXEC, 0o640))
            os.fchown(outputs[-1], uid, uid)
        started = subprocess.Popen(
            ask["argv"],
            executable=ask["path"],
            env=ask["env"],
            cwd=ask["cwd"],
            stdin=subprocess.DEVNULL,
            stdout=outputs[0],
            stderr=outputs[1],
            user=uid,
            group=uid,
            extra_groups=(),
            start_new_session=True,
        )
        started.returncode = 0  # who is told of its end and reaps it is the keeper: this object must never do so
        return started.pid
    finally:
        for fd in outputs:
            os.close(fd)


def _enter(cgroup: str) -> None:
    """Move this process into a cgroup, which its next child inherits: so the limit holds from the child's first instruction."""
    with open(f"{cgroup}/cgroup.procs", "w") as file:
        file.write("0")
