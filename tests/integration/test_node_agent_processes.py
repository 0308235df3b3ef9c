"""The keeper on real processes: what it starts, how it ends things, what survives whom."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import pytest
from gpuyard_node_agent.domain.model import Born, Gone
from gpuyard_node_agent.ports import Absent, Failed, Launch, Seen, Survey
from gpuyard_node_agent.processes import ownership, procfs
from gpuyard_node_agent.processes.keeping import KeptProcesses, end_everything

S = TypeVar("S", bound=Seen)
WAIT_SECONDS = 30.0


class Hearing:
    """One agent's talk with the keeper of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seen: list[Seen] = []
        self.kept = KeptProcesses(folder / "keeper", procfs.boot_id())
        self._came = asyncio.Event()

    async def open(self) -> Survey:
        """Reach the keeper, and give it a minute's lease."""
        survey = await self.kept.open(self._hear)
        self.kept.renew(procfs.now_ms() + 60_000)
        self.seen += [*survey.born, *survey.gone]
        return survey

    def _hear(self, seen: Seen) -> None:
        self.seen.append(seen)
        self._came.set()

    async def hear(self, kind: type[S], when: Callable[[S], bool] = lambda _: True) -> S:
        """The first of its kind that comes, or came."""
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                for seen in self.seen:
                    if isinstance(seen, kind) and when(seen):
                        return seen
                self._came.clear()
                await self._came.wait()

    def launch(self, key: str, script: str, *, env: dict[str, str] | None = None, path: str = "/bin/sh", uid: int | None = None) -> None:
        """Start a shell script, as a user of its own where one is named."""
        home = self.folder / key
        (home / "work").mkdir(parents=True, exist_ok=True)
        if uid is not None:
            ownership.give(str(home / "work"), uid)
        allocation, _, rank = key.partition(".")
        marked = {"PATH": "/usr/bin:/bin", "GPUYARD_ALLOCATION": allocation, "GPUYARD_RANK": rank, **(env or {})}
        files = (str(home / "out"), str(home / "err"))
        self.kept.launch(Launch(key, path, (path, "-c", script), marked, str(home / "work"), *files, cap_bytes=1 << 20, uid=uid))

    def out(self, key: str) -> str:
        """What it printed."""
        return (self.folder / key / "out").read_text()


@pytest.fixture
async def hearing(tmp_path: Path) -> AsyncIterator[Hearing]:
    """A keeper of its own; everything it still has is killed at the end."""
    found = Hearing(tmp_path)
    await found.open()
    yield found
    await found.kept.close()
    await end_everything(tmp_path / "keeper", grace_ms=0)


async def until(what: Callable[[], bool]) -> None:
    """Look until it is so."""
    async with asyncio.timeout(WAIT_SECONDS):
        while not what():
            await asyncio.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    found = procfs.stat_of(pid)
    return found is not None and found.state != "Z"


async def test_a_process_runs_in_a_session_and_folder_of_its_own_with_nothing_of_the_agents_environment(
    hearing: Hearing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it is given is all that it has."""
    monkeypatch.setenv("GPUYARD_NATS_PASSWORD", "hidden")
    hearing.launch("job-a-1.0", "pwd; env; cat /proc/self/stat; ls -l /proc/self/fd", env={"HELLO": "wörld"})
    born = await hearing.hear(Born)
    gone = await hearing.hear(Gone)
    assert (gone.code, gone.signal) == (0, None)
    out = hearing.out("job-a-1.0")
    assert str(hearing.folder / "job-a-1.0" / "work") in out
    assert "HELLO=wörld" in out
    assert "hidden" not in out
    assert "keeper.sock" not in out
    assert f" {born.pid} {born.pid} " in out


@pytest.mark.parametrize(("script", "code", "number"), [("exit 7", 7, None), ("exit 137", 137, None), ("kill -KILL $$", None, 9)])
async def test_exit_codes_and_signals_are_told_apart(hearing: Hearing, script: str, code: int | None, number: int | None) -> None:
    """A program may well exit with 137 without any signal."""
    hearing.launch("job-a-1.0", script)
    gone = await hearing.hear(Gone)
    assert (gone.code, gone.signal, gone.is_stopped, gone.is_fenced) == (code, number, False, False)


async def test_a_key_that_is_known_is_started_once_though_it_is_asked_twice(hearing: Hearing) -> None:
    """The second ask is answered with the first one's process, also when it has ended."""
    hearing.launch("job-a-1.0", "echo once; exec sleep 60")
    born = await hearing.hear(Born)
    hearing.launch("job-a-1.0", "echo twice")
    await until(lambda: sum(isinstance(seen, Born) for seen in hearing.seen) == 2)
    assert {seen.pid for seen in hearing.seen if isinstance(seen, Born)} == {born.pid}
    await until(lambda: hearing.out("job-a-1.0") == "once\n")


async def test_what_cannot_be_started_is_told_with_the_systems_reason(hearing: Hearing) -> None:
    """No process, an errno."""
    hearing.launch("job-a-1.0", "true", path="/no/such/program")
    assert (await hearing.hear(Failed)).number == 2


async def test_a_stop_gives_the_program_its_grace(hearing: Hearing) -> None:
    """SIGTERM first: it may end by itself."""
    hearing.launch("job-a-1.0", "trap 'echo saved; exit 3' TERM; echo ready; while :; do sleep 0.05; done")
    await hearing.hear(Born)
    await until(lambda: "ready" in hearing.out("job-a-1.0"))
    hearing.kept.stop("job-a-1.0", 30_000)
    gone = await hearing.hear(Gone)
    assert (gone.code, gone.is_stopped) == (3, True)
    assert "saved" in hearing.out("job-a-1.0")


async def test_who_ignores_the_stop_is_killed_with_its_whole_group(hearing: Hearing) -> None:
    """After the grace SIGKILL, children too."""
    hearing.launch("job-a-1.0", "trap '' TERM; sleep 600 & echo $!; wait; while :; do sleep 1; done")
    await hearing.hear(Born)
    await until(lambda: hearing.out("job-a-1.0").endswith("\n"))
    child = int(hearing.out("job-a-1.0"))
    hearing.kept.stop("job-a-1.0", 50)
    gone = await hearing.hear(Gone)
    assert (gone.signal, gone.is_stopped) == (9, True)
    assert not is_alive(child)


async def test_the_end_is_told_only_when_children_that_left_the_group_are_gone(hearing: Hearing) -> None:
    """A daemon of the workload would hold its card: it is found in its own session, and killed (B49)."""
    fork = "if os.fork()==0:\n os.setsid()\n if os.fork()==0:\n  print(os.getpid(),flush=True); time.sleep(600)\n os._exit(0)\nos.wait()"
    daemon = f"import os,time\n{fork}"
    hearing.launch("job-b-1.0", "sleep 600")
    hearing.launch("job-a-1.0", f"{sys.executable} -I -S -c '{daemon}'; while [ ! -s ../out ]; do sleep 0.01; done")
    gone = await hearing.hear(Gone, lambda seen: seen.key == "job-a-1.0")
    assert gone.code == 0
    assert not is_alive(int(hearing.out("job-a-1.0")))
    other = await hearing.hear(Born, lambda seen: seen.key == "job-b-1.0")
    assert is_alive(other.pid)


async def test_workloads_outlive_the_agent_and_their_end_is_kept_for_the_next_one(hearing: Hearing) -> None:
    """The next agent's survey has who runs and how the others ended."""
    hearing.launch("job-a-1.0", "sleep 600")
    hearing.launch("job-b-1.0", "read line < go; exit 5")
    os.mkfifo(hearing.folder / "job-b-1.0" / "work" / "go")
    hearing.launch("job-c-1.0", "exit 0")
    await hearing.hear(Gone, lambda seen: seen.key == "job-c-1.0")
    pids = {seen.key: seen.pid for seen in hearing.seen if isinstance(seen, Born)}
    await hearing.kept.close()
    (hearing.folder / "job-b-1.0" / "work" / "go").write_text("go\n")
    await until(lambda: procfs.stat_of(pids["job-b-1.0"]) is None)
    after = Hearing(hearing.folder)
    survey = await after.open()
    assert {seen.key: seen.pid for seen in survey.born} == pids
    assert (await after.hear(Gone, lambda seen: seen.key == "job-b-1.0")).code == 5
    assert (await after.hear(Gone, lambda seen: seen.key == "job-c-1.0")).code == 0
    after.kept.forget("job-c-1.0")
    await after.kept.close()
    again = Hearing(hearing.folder)
    assert {seen.key for seen in (await again.open()).gone} == {"job-b-1.0"}
    assert is_alive(pids["job-a-1.0"])
    await again.kept.close()


async def test_a_lease_that_nobody_renews_kills_everything_though_no_agent_is_there(hearing: Hearing) -> None:
    """The keeper fences by itself, and the next agent hears of it."""
    hearing.launch("job-a-1.0", "trap '' TERM; while :; do sleep 0.05; done")
    born = await hearing.hear(Born)
    hearing.kept.renew(procfs.now_ms() + 300)
    await hearing.kept.close()
    await until(lambda: procfs.stat_of(born.pid) is None)
    after = Hearing(hearing.folder)
    await after.open()
    gone = await after.hear(Gone)
    assert (gone.signal, gone.is_fenced) == (9, True)
    await after.kept.close()


async def test_nothing_is_started_without_a_lease(hearing: Hearing) -> None:
    """An agent that is late starts nothing behind the lease's back."""
    hearing.kept.renew(procfs.now_ms() - 1)
    hearing.launch("job-a-1.0", "true")
    assert (await hearing.hear(Failed)).number == 0


async def test_a_keeper_that_is_killed_is_replaced_and_its_workloads_are_adopted(hearing: Hearing) -> None:
    """By pid and start time, or by the mark in the environment; the end is seen, only the code is not."""
    hearing.launch("job-a-1.0", "read line < go; exit 5")
    os.mkfifo(hearing.folder / "job-a-1.0" / "work" / "go")
    born = await hearing.hear(Born)
    keeper = procfs.stat_of(born.pid)
    assert keeper is not None
    before = hearing.seen
    hearing.seen = []
    os.kill(keeper.parent, signal.SIGKILL)
    await hearing.hear(Survey)
    assert is_alive(born.pid)
    hearing.kept.adopt("job-a-1.0", None, {}, None)
    hearing.kept.adopt("job-b-1.0", born, {}, None)
    hearing.kept.adopt("job-c-1.0", None, {}, None)
    by_mark = await hearing.hear(Born, lambda seen: seen.key == "job-a-1.0")
    assert (by_mark.pid, by_mark.ticks) == (born.pid, born.ticks)
    assert abs(by_mark.started_ms - born.started_ms) < 1000
    by_pid = await hearing.hear(Born, lambda seen: seen.key == "job-b-1.0")
    assert (by_pid.pid, by_pid.started_ms) == (born.pid, born.started_ms)
    assert await hearing.hear(Absent) == Absent("job-c-1.0")
    (hearing.folder / "job-a-1.0" / "work" / "go").write_text("go\n")
    gone = await hearing.hear(Gone, lambda seen: seen.key == "job-a-1.0")
    assert (gone.code, gone.signal) == (None, None)
    assert [seen for seen in before if isinstance(seen, Gone)] == []


async def test_a_pid_that_was_given_to_another_process_is_not_adopted(hearing: Hearing) -> None:
    """Pid and start time together are a process's identity."""
    hearing.kept.adopt("job-a-1.0", Born("job-a-1.0", os.getpid(), 1, 0, datetime.now(UTC)), {}, None)
    assert await hearing.hear(Absent) == Absent("job-a-1.0")


async def test_an_idle_keeper_leaves_and_the_next_one_knows_what_was_not_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked to end everything: it goes, and writes down what no agent has taken yet."""
    hearing = Hearing(tmp_path)
    first = await hearing.open()
    hearing.launch("job-a-1.0", "trap 'exit 4' TERM; echo ready; while :; do sleep 0.02; done")
    await hearing.hear(Born)
    await until(lambda: "ready" in hearing.out("job-a-1.0"))
    await hearing.kept.close()
    assert await end_everything(tmp_path / "keeper")
    assert not await end_everything(tmp_path / "keeper")
    after = Hearing(tmp_path)
    survey = await after.open()
    assert survey.instance == first.instance
    assert [(gone.key, gone.code, gone.is_stopped) for gone in survey.gone] == [("job-a-1.0", 4, True)]
    await after.kept.close()
    await end_everything(tmp_path / "keeper", grace_ms=0)


async def test_the_socket_is_reached_in_a_folder_with_a_very_long_name(tmp_path: Path) -> None:
    """A socket's address has room for 107 bytes; folders are longer."""
    deep = tmp_path / ("x" * 100) / ("y" * 100)
    deep.mkdir(parents=True)
    hearing = Hearing(deep)
    await hearing.open()
    hearing.launch("job-a-1.0", "exit 0")
    assert (await hearing.hear(Gone)).code == 0
    await hearing.kept.close()
    await end_everything(deep / "keeper", grace_ms=0)
