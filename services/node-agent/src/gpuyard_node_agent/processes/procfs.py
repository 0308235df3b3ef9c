# ruff: noqa: PTH123, PTH208
# The keeper imports this and must be up in milliseconds: pathlib alone would double its start time.
"""What the kernel says of this machine's processes: who they are, when they started, whose they are.

A pid alone names nobody, since numbers are given again; pid and start time do. On the standard library alone: the keeper stands on it.
"""

import os
import signal
import time
from typing import NamedTuple

from gpuyard_node_agent.domain.marks import ALLOCATION, RANK

PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class Stat(NamedTuple):
    """One process: state letter, parent, session, and start time in clock ticks since boot."""

    state: str
    parent: int
    session: int
    ticks: int


def now_ms() -> int:
    """Milliseconds on the machine's boot clock, which neither jumps nor stops."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def boot_id() -> str:
    """The kernel's name of this boot."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def stat_of(pid: int) -> Stat | None:
    """A process; None where there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return Stat(fields[0].decode(), int(fields[1]), int(fields[3]), int(fields[19])) if len(fields) > 19 else None


def ticks_now() -> int:
    """The present instant as a start time is told: in clock ticks since boot."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) * TICKS_PER_SECOND // 1_000_000_000


def started_ms_of(stat: Stat) -> int:
    """When the process began, on the boot clock (to a clock tick, 10 ms as a rule)."""
    return stat.ticks * 1000 // TICKS_PER_SECOND


def mark_of(pid: int) -> str:
    """The key of the workload that a process belongs to by its environment; empty where it says none."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            told = dict(part.split(b"=", 1) for part in file.read().split(b"\0") if b"=" in part)
    except OSError:
        return ""
    allocation, rank = told.get(ALLOCATION.encode()), told.get(RANK.encode())
    return f"{allocation.decode('utf-8', 'replace')}.{rank.decode('utf-8', 'replace')}" if allocation and rank else ""


def user_of(pid: int) -> int | None:
    """The real user id that a process runs as, which it cannot change without privileges; None where it is gone (a zombie counts so)."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            told = dict(line.split(b":\t", 1) for line in file.read().split(b"\n") if b":\t" in line)
    except OSError:
        return None
    return None if told.get(b"State", b"Z").startswith(b"Z") else int(told[b"Uid"].split()[0])


def all_pids() -> list[int]:
    """Every process of the machine (of this pid namespace)."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def pids_after(pid: int, everyone: list[int]) -> list[int]:
    """Who of `everyone` may descend from this process: younger ones have greater numbers, unless the numbers have begun anew."""
    return [other for other in everyone if other > pid] if os.getpid() < pid else everyone


def find_marked(key: str, uid: int | None) -> int:
    """The first process of a workload, by its mark: the leader of its session, of its user where it has one; 0 where there is none."""
    for pid in all_pids():
        found = stat_of(pid)
        if found is not None and found.session == pid and found.state != "Z" and mark_of(pid) == key and uid in (None, user_of(pid)):
            return pid
    return 0


def has_group(pid: int) -> bool:
    """Whether anybody is in the process group."""
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def has_children() -> bool:
    """Whether this process has any child, living or not yet reaped."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def kill(pid: int) -> bool:
    """Kill one process; False where it was gone already."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def kill_user(uid: int) -> None:
    """Kill every process of a user at once: none of them can make another one in the meantime. Wants root."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            os.kill(-1, signal.SIGKILL)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


def become_subreaper() -> bool:
    """Orphans among this process's descendants come to it instead of to init; whether the system does that."""
    return _prctl(PR_SET_CHILD_SUBREAPER, 1)


def gain_nothing_more() -> bool:
    """What this process starts, and all below it, gets no privileges from the programs that it runs (set-uid bits, file capabilities)."""
    return _prctl(PR_SET_NO_NEW_PRIVS, 1)


def close_memory() -> bool:
    """Nobody but root may look into this process's memory and environment, or trace it: not even its own user."""
    return _prctl(PR_SET_DUMPABLE, 0)


def _prctl(option: int, value: int) -> bool:
    try:
        import ctypes

        return ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0
    except (ImportError, OSError, AttributeError):
        return False
