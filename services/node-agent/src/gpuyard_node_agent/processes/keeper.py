# ruff: noqa: PTH101, PTH108, PTH110, PTH116
# The keeper imports this and must be up in milliseconds: pathlib alone would double its start time.
"""The keeper: starts a node's workloads, outlives the agent, knows how each ended, and kills them when the lease runs out.

A small process of its own, one for each node, which the agent starts and talks to over a socket. It is the workloads' parent: when the
agent is killed they live on, their exit status is not lost, and the next agent finds them. And it is the one who fences: a lease that
nobody renews ends here, whatever has become of the agent. On disk it keeps only the lease's end, and what is still to be told when it
leaves an idle node. It stands on the standard library alone (`-I -S -E`), small and quickly up. Read :meth:`Keeper.run` and
:meth:`Keeper.do`.

Language: one JSON object a line. Asks say what to `do`: hello, spawn, stop, lease, adopt, forget, end-all. Answers and events say what they
are in `is`: hello, spawned, failed, absent, ended.
"""

import fcntl
import gc
import json
import os
import selectors
import signal
import socket
import sys
import traceback
from typing import Any

from gpuyard_node_agent.processes.held import Held, launch, limit_workloads
from gpuyard_node_agent.processes.procfs import (
    boot_id,
    close_memory,
    find_marked,
    gain_nothing_more,
    has_group,
    kill,
    kill_user,
    now_ms,
    started_ms_of,
    stat_of,
    ticks_now,
)
from gpuyard_node_agent.processes.remembered import Remembered
from gpuyard_node_agent.processes.strays import Strays

SOCKET = "keeper.sock"
LOCK = "keeper.lock"

LINGER_MS = 5_000
"""How long an idle keeper that no agent speaks to stays."""
CAP_EVERY_MS = 5_000
FIRST_LOOK_MS = 1
SCAN_EVERY_MS = 10
LONGEST_LOOK_MS = 200
LEAVING_GRACE_MS = 5_000


class Keeper:
    """All of a node's workloads. One thread; every ask is answered at once."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.instance = os.urandom(8).hex()
        self.held: dict[str, Held] = {}
        self.living: dict[str, Held] = {}
        self.ending: dict[str, Held] = {}
        """The living ones that are due for a kill or for a look at what is left of them."""
        self.by_pid: dict[int, Held] = {}
        self.pidfds: dict[int, Held] = {}
        self.agents: dict[socket.socket, bytes] = {}
        self.greeted: set[socket.socket] = set()
        """Who has said hello and is told of ends from then on."""
        self.lease_ms: int | None = None
        self.boot = boot_id()
        self.remembered = Remembered(folder, self.boot)
        self.alone_ms = now_ms()
        self.cap_ms = now_ms()
        self.is_leaving = False
        self.strays = Strays()
        self.selector = selectors.DefaultSelector()
        self.wakers = socket.socketpair()

    def run(self) -> None:
        """Serve until the node is idle and nobody speaks to it, or until everything was asked to end."""
        self._recall()
        self._wake_on_signals()
        door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        os.chdir(self.folder)  # a path below it may be longer than a socket's address
        if os.path.exists(SOCKET):
            os.unlink(SOCKET)
        door.bind(SOCKET)
        os.chmod(SOCKET, 0o600)
        door.listen(8)
        door.setblocking(False)
        os.chdir("/")
        self.selector.register(door, selectors.EVENT_READ, self._knocked)
        while not self._is_over():
            for key, _ in self.selector.select(self._patience()):
                key.data(key.fileobj)
            self._look()
        self._leave()

    def _wake_on_signals(self) -> None:
        for end in self.wakers:
            end.setblocking(False)
        signal.set_wakeup_fd(self.wakers[1].fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)  # handled, not ignored: what is ignored would be so in workloads too
        self.selector.register(self.wakers[0], selectors.EVENT_READ, self._signalled)

    def _is_over(self) -> bool:
        if self.living:
            return False
        return self.is_leaving or (not self.agents and now_ms() - self.alone_ms >= LINGER_MS)

    def _patience(self) -> float:
        """Seconds until something is due."""
        due = [self.cap_ms + CAP_EVERY_MS]
        for one in self.ending.values():
            if one.kill_ms is not None:
                due.append(one.kill_ms)
            if one.is_leader_gone:
                due.append(one.look_ms)
        if self.lease_ms is not None and len(self.ending) < len(self.living):
            due.append(self.lease_ms)
        if not self.agents:
            due.append(self.alone_ms + LINGER_MS)
        return max(min(due) - now_ms(), 0) / 1000

    def _recall(self) -> None:
        """The lease's end, and what an earlier keeper of this boot left untold."""
        self.lease_ms = self.remembered.lease_ms()
        left = self.remembered.take_left()
        if left is not None:
            self.instance, told = left
            self.held = {one["key"]: Held.of_told(one) for one in told}

    def _leave(self) -> None:
        """Nothing runs: write down what was not told yet, and go."""
        self.remembered.leave(self.instance, self._told())
        os.unlink(f"{self.folder}/{SOCKET}")

    def _knocked(self, door: socket.socket) -> None:
        guest, _ = door.accept()
        guest.setblocking(False)
        guest.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        self.agents[guest] = b""
        self.selector.register(guest, selectors.EVENT_READ, self._spoken)

    def _spoken(self, guest: socket.socket) -> None:
        try:
            data = guest.recv(1 << 20)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._gone(guest)
            return
        *lines, rest = (self.agents[guest] + data).split(b"\n")
        self.agents[guest] = rest
        for line in lines:
            try:
                answers = self.do(json.loads(line))
            except Exception:  # an agent of another version: what it means is not known, but the workloads must live
                traceback.print_exc()
                continue
            for answer in answers:
                self._tell(guest, answer)
                if answer["is"] == "hello":
                    self.greeted.add(guest)

    def _gone(self, guest: socket.socket) -> None:
        if self.agents.pop(guest, None) is not None:
            self.selector.unregister(guest)
            self.greeted.discard(guest)
            guest.close()
        self.alone_ms = now_ms()

    def _tell(self, guest: socket.socket, told: dict[str, Any]) -> None:
        """Send, or take the agent for dead: the next one finds everything by `hello`."""
        if guest not in self.agents:
            return
        data = json.dumps(told).encode() + b"\n"
        try:
            data = data[guest.send(data) :]
        except BlockingIOError:
            pass
        except OSError:
            self._gone(guest)
            return
        if data:
            self._insist(guest, data)

    def _insist(self, guest: socket.socket, data: bytes) -> None:
        """The agent has not read megabytes of what it was told: it has a moment to do so."""
        try:
            guest.settimeout(2.0)
            guest.sendall(data)
            guest.setblocking(False)
        except OSError:
            self._gone(guest)

    def _told(self) -> list[dict[str, Any]]:
        return [one.told() for one in self.held.values()]

    def do(self, ask: dict[str, Any]) -> list[dict[str, Any]]:
        """One ask, done and answered."""
        what, one = ask["do"], self.held.get(ask.get("key", ""))
        if what == "hello":
            return [{"is": "hello", "instance": self.instance, "boot": self.boot, "lease_ms": self.lease_ms, "held": self._told()}]
        if what == "spawn":
            return [self._spawn(ask)]
        if what == "adopt":
            return [self._adopt(ask)]
        if what == "stop" and one is not None:
            self._stop(one, int(ask["grace_ms"]))
        elif what == "lease":
            self._renew(int(ask["until_ms"]))
        elif what == "forget" and one is not None and one.ended_ms is not None:
            del self.held[one.key]
        elif what == "end-all":
            self._end_all(int(ask["grace_ms"]))
        return []

    def _spawn(self, ask: dict[str, Any]) -> dict[str, Any]:
        """Start a workload, or tell of the one that this key has already."""
        key = ask["key"]
        if key not in self.held:
            if self.is_leaving or self.lease_ms is None or now_ms() >= self.lease_ms:
                return {"is": "failed", "key": key, "errno": 0, "text": "the lease is over"}
            ticks = ticks_now()
            try:
                pid = launch(ask)
            except OSError as error:
                return {"is": "failed", "key": key, "errno": error.errno or 0, "text": error.strerror or str(error)}
            if ticks != ticks_now():  # it began in one of two ticks: the kernel knows in which
                found = stat_of(pid)
                ticks = 0 if found is None else found.ticks
            one = Held(key, pid, ticks, is_child=True, caps=ask["caps"], uid=ask.get("uid"))
            self.held[key] = self.living[key] = self.by_pid[pid] = one
        return {"is": "spawned", **self.held[key].told()}

    def _adopt(self, ask: dict[str, Any]) -> dict[str, Any]:
        """Watch a workload that another keeper started: found by its pid and start time, or by its mark in the environment."""
        key = ask["key"]
        if key in self.held:
            return {"is": "spawned", **self.held[key].told()}
        pid, ticks = int(ask.get("pid") or 0) or find_marked(key, ask.get("uid")), int(ask.get("ticks") or 0)
        found = stat_of(pid) if pid else None
        if found is None or found.state == "Z" or (ticks and found.ticks != ticks):
            return self._absent(ask)
        try:
            fd = os.pidfd_open(pid)
        except OSError:
            return self._absent(ask)
        one = Held(key, pid, found.ticks, is_child=False, caps=ask["caps"], uid=ask.get("uid"))
        self.held[key] = self.living[key] = one
        one.started_ms = ask.get("started_ms") or started_ms_of(found)
        one.started_at = ask.get("started_at") or one.started_at - (now_ms() - one.started_ms) / 1000
        self.pidfds[fd] = one
        self.selector.register(fd, selectors.EVENT_READ, self._adopted_ended)
        return {"is": "spawned", **one.told()}

    def _absent(self, ask: dict[str, Any]) -> dict[str, Any]:
        """It is gone; what it left behind goes too, where a user of its own tells which processes those are."""
        if ask.get("uid") is not None:
            kill_user(int(ask["uid"]))
        return {"is": "absent", "key": ask["key"]}

    def _stop(self, one: Held, grace_ms: int) -> None:
        if one.ended_ms is not None:
            return
        if not one.is_stopped and not one.is_leader_gone:
            one.is_stopped = True
            if grace_ms > 0:
                one.strike(signal.SIGTERM)
                one.strike(signal.SIGCONT)  # who is held by SIGSTOP could not hear it
        kill_ms = now_ms() + grace_ms
        one.kill_ms = kill_ms if one.kill_ms is None else min(one.kill_ms, kill_ms)
        self.ending[one.key] = one

    def _renew(self, until_ms: int) -> None:
        self.lease_ms = until_ms
        self.remembered.keep_lease(until_ms)

    def _end_all(self, grace_ms: int) -> None:
        self.is_leaving = True
        for one in self.living.values():
            self._stop(one, grace_ms)

    def _signalled(self, wake: socket.socket) -> None:
        if signal.SIGTERM in wake.recv(4096):
            self._end_all(LEAVING_GRACE_MS)
        while True:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if found is None:
                return
            one = self.by_pid.pop(found.si_pid, None)
            if one is not None:
                is_exit = found.si_code == os.CLD_EXITED
                one.code, one.signal = (found.si_status, None) if is_exit else (None, found.si_status)
                self._leader_ended(one)
            os.waitpid(found.si_pid, 0)

    def _adopted_ended(self, fd: int) -> None:
        self.selector.unregister(fd)
        os.close(fd)
        self._leader_ended(self.pidfds.pop(fd))

    def _leader_ended(self, one: Held) -> None:
        """The first process is over: what is left of its group goes with it, before the leader is reaped and its number is free."""
        one.is_leader_gone = True
        one.strike(signal.SIGKILL)
        one.look_ms = 0
        self.ending[one.key] = one

    def _look(self) -> None:
        """Everything that is due: the lease, kills, groups that should be empty, files that grew while the agent is away."""
        at = now_ms()
        if self.lease_ms is not None and at >= self.lease_ms:
            for one in self.living.values():
                if not one.is_fenced:
                    one.is_fenced, one.kill_ms = True, at
                    self.ending[one.key] = one
        for one in list(self.ending.values()):
            if one.kill_ms is not None and at >= one.kill_ms:
                one.strike(signal.SIGKILL)
                one.kill_ms = at + LONGEST_LOOK_MS
            if one.is_leader_gone and at >= one.look_ms:
                self._clear(one, at)
        if at - self.cap_ms >= CAP_EVERY_MS:
            self.cap_ms = at
            self._cap_files()

    def _clear(self, one: Held, at: int) -> None:
        """Kill what is left of a workload; once nothing is, tell."""
        if at - self.strays.looked_ms < SCAN_EVERY_MS and one.looks == 0 and self.by_pid:
            one.look_ms = self.strays.looked_ms + SCAN_EVERY_MS  # many end at once: one look at all processes serves them together
            one.looks = 1
            return
        left = [pid for pid in self.strays.of(one, self.by_pid, at, is_alone=not self.by_pid) if kill(pid)]
        if left and one.uid is not None:
            kill_user(one.uid)
        if left or has_group(one.pid):
            one.strike(signal.SIGKILL)
            one.look_ms = at + min(FIRST_LOOK_MS << min(one.looks, 8), LONGEST_LOOK_MS)
            one.looks += 1
            return
        one.ended_ms = at
        del self.living[one.key]
        del self.ending[one.key]
        for guest in tuple(self.greeted):
            self._tell(guest, {"is": "ended", **one.told()})

    def _cap_files(self) -> None:
        """While no agent reads the outputs, keep them from filling the disk: the oldest part stays."""
        if self.agents:
            return
        for one in self.living.values():
            for path, cap in one.caps.items():
                try:
                    if os.stat(path).st_size > 2 * cap:
                        os.truncate(path, cap)
                except OSError:
                    continue


def main() -> int:
    """Keep the node whose folder is the first argument: 0 when it is over, 1 where another keeper has the folder."""
    folder = sys.argv[1]
    os.umask(0o022)
    lock = os.open(f"{folder}/{LOCK}", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return 1
    close_memory()
    gain_nothing_more()
    limit_workloads()
    gc.freeze()
    gc.set_threshold(20_000)  # what it hears and tells is dropped again at once
    Keeper(folder).run()
    return 0
