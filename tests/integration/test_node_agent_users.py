"""Workloads that run as users of their own: what they cannot reach, and that nothing of them stays. Wants root."""

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from gpuyard_contracts.messages.node import WorkloadEndedV1
from gpuyard_node_agent.domain.model import Born, Gone, Order
from gpuyard_node_agent.ports import Absent, Launch, Survey
from gpuyard_node_agent.processes import ownership, procfs
from gpuyard_node_agent.processes.keeping import end_everything
from gpuyard_node_agent.processes.workspace import Workspace
from gpuyard_runtime.faults import EXIT_CONFIG

from tests.integration.test_node_agent_processes import Hearing, is_alive, until
from tests.support.node_site import JOB, OTHER, Site
from tests.support.servers import start_nats

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run workloads as other users")

UID = 3_000_000_000 + os.getpid() * 8
OTHER_UID, NEXT_UID = UID + 1, UID + 2
"""Numbers that nobody has on any machine, nor another run of these tests beside this one: two keepers must not share a number."""
DAEMON = "setsid env -i sh -c 'echo $$ > daemon; exec sleep 600' & while [ ! -s daemon ]; do sleep 0.01; done"
"""Leaves a process of another session, without the mark in its environment."""

STEP = """cd $GPUYARD_CHECKPOINT_DIR
ls deep; cat deep/step; mkdir -p deep
echo $RANK.$GPUYARD_ATTEMPT > deep/step; echo more > $GPUYARD_ATTEMPT"""
"""Goes on from what was left, and leaves more."""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that other users can pass through; pytest's own is closed to them."""
    found = Path(tempfile.mkdtemp(prefix="gpuyard-users-"))
    found.chmod(0o711)
    if ownership.closed_to_others(str(found)) is not None:
        pytest.skip("no folder here can be entered by other users")
    yield found
    shutil.rmtree(found)


@pytest.fixture
async def hearing(folder: Path) -> AsyncIterator[Hearing]:
    """A keeper of its own; everything it still has is killed at the end."""
    found = Hearing(folder)
    await found.open()
    yield found
    await found.kept.close()
    await end_everything(folder / "keeper", grace_ms=0)


async def test_a_workload_is_its_user_and_nothing_more(hearing: Hearing) -> None:
    """User and group of the same number, no other groups, no way to privileges, no core files, and its own output by name."""
    hearing.launch("job-x-1.0", "id -u; id -g; id -G; grep NoNewPrivs /proc/self/status; ulimit -c; echo by name >> /dev/stdout", uid=UID)
    assert (await hearing.hear(Gone)).code == 0
    assert hearing.out("job-x-1.0").split("\n") == [str(UID)] * 3 + ["NoNewPrivs:\t1", "0", "by name", ""]


async def test_a_workload_reaches_neither_its_keeper_nor_its_neighbour_nor_the_agent(hearing: Hearing) -> None:
    """No signal, no environment, no file."""
    hearing.launch("job-y-1.0", "echo secret > mine; echo ready; exec sleep 600", uid=OTHER_UID)
    neighbour = await hearing.hear(Born)
    await until(lambda: "ready" in hearing.out("job-y-1.0"))
    home = hearing.folder / "job-y-1.0"
    work = home / "work"
    tries = [
        "kill -9 $PPID",
        f"kill -9 {neighbour.pid}",
        f"kill -9 {os.getpid()}",
        "cat /proc/$PPID/environ",
        f"cat /proc/{os.getpid()}/environ",
        f"cat /proc/{neighbour.pid}/environ",
        f"cat {work}/mine",
        f"touch {work}/theirs",
        f"sh -c 'echo forged >> {home}/out'",
        f"ls {hearing.folder}/keeper",
    ]
    hearing.launch(
        "job-x-1.0", "\n".join(f"{tried} && echo reached {number}" for number, tried in enumerate(tries)) + "\necho done", uid=UID
    )
    await hearing.hear(Gone)
    assert hearing.out("job-x-1.0") == "done\n"
    assert is_alive(neighbour.pid)


async def test_a_stop_reaches_a_workload_of_another_user(hearing: Hearing) -> None:
    """SIGTERM within the grace."""
    hearing.launch("job-x-1.0", "trap 'exit 3' TERM; echo ready; while :; do sleep 0.05; done", uid=UID)
    await hearing.hear(Born)
    await until(lambda: "ready" in hearing.out("job-x-1.0"))
    hearing.kept.stop("job-x-1.0", 30_000)
    gone = await hearing.hear(Gone)
    assert (gone.code, gone.is_stopped) == (3, True)


async def test_the_end_is_told_when_no_process_of_the_user_is_left(hearing: Hearing) -> None:
    """Also one that left session and mark behind; the neighbour is not touched."""
    hearing.launch("job-y-1.0", "exec sleep 600", uid=OTHER_UID)
    neighbour = await hearing.hear(Born)
    hearing.launch("job-x-1.0", DAEMON, uid=UID)
    gone = await hearing.hear(Gone, lambda seen: seen.key == "job-x-1.0")
    assert gone.code == 0
    assert not is_alive(int((hearing.folder / "job-x-1.0" / "work" / "daemon").read_text()))
    assert is_alive(neighbour.pid)


async def test_what_a_workload_left_behind_is_killed_by_the_next_keeper_though_its_leader_is_gone(hearing: Hearing) -> None:
    """Before it says that nothing is there: the number may then be another's."""
    hearing.launch("job-x-1.0", f"{DAEMON}; exec sleep 600", uid=UID)
    born = await hearing.hear(Born)
    path = hearing.folder / "job-x-1.0" / "work" / "daemon"
    await until(lambda: path.exists() and path.read_text().endswith("\n"))
    daemon = int(path.read_text())
    keeper = procfs.stat_of(born.pid)
    assert keeper is not None
    os.kill(keeper.parent, signal.SIGKILL)
    os.kill(born.pid, signal.SIGKILL)
    await hearing.hear(Survey)
    await until(lambda: not is_alive(born.pid))
    hearing.kept.adopt("job-x-1.0", born, {}, UID)
    await hearing.hear(Absent)
    await until(lambda: not is_alive(daemon))


async def test_another_users_process_with_a_forged_mark_is_not_adopted(hearing: Hearing) -> None:
    """The mark is in the environment, which a program writes itself."""
    hearing.launch("job-y-1.0", "exec sleep 600", uid=OTHER_UID, env={"GPUYARD_ALLOCATION": "job-x-1"})
    forger = await hearing.hear(Born)
    keeper = procfs.stat_of(forger.pid)
    assert keeper is not None
    os.kill(keeper.parent, signal.SIGKILL)
    await hearing.hear(Survey)
    hearing.kept.adopt("job-x-1.0", None, {}, UID)
    assert await hearing.hear(Absent) == Absent("job-x-1.0")
    assert is_alive(forger.pid)
    procfs.kill_user(OTHER_UID)


def order_of(attempt: int) -> Order:
    """An attempt of one job."""
    job = "job-abcdefghijklmnop"
    return Order(
        allocation_id=f"{job}-{attempt}",
        tenant="acme",
        job_id=job,
        attempt=attempt,
        rank=0,
        command=("sh", "-c", STEP),
        env={},
        slices=(),
        cpu_milli=100,
        memory_mib=16,
        world_size=1,
        local_rank=0,
        local_world_size=1,
        master_addr="127.0.0.1",
        master_port=20000,
        issued_at=datetime(2030, 1, 1, tzinfo=UTC),
        order_id="o",
    )


async def test_a_checkpoint_goes_with_its_job_to_the_next_user_and_is_closed_in_between(hearing: Hearing, folder: Path) -> None:
    """On another node too, where the root is shared: whoever had the number before cannot look into it."""
    nodes = [
        Workspace(state=folder / name, checkpoints=folder / "shared", node_id=name, cap_bytes=1 << 20, keep_seconds=600)
        for name in ("n1", "n2")
    ]
    for attempt, (node, uid) in enumerate(zip(nodes, (UID, NEXT_UID), strict=True), 1):
        order = order_of(attempt)
        launch = node.prepare(order, uid)
        assert isinstance(launch, Launch)
        hearing.kept.launch(replace(launch, env={**launch.env, "PATH": "/usr/bin:/bin"}))
        gone = await hearing.hear(Gone, lambda seen, key=order.key: seen.key == key)
        assert gone.code == 0
        checkpoint = Path(launch.env["GPUYARD_CHECKPOINT_DIR"])
        assert checkpoint.stat().st_uid == uid
        node.leave(order, uid, is_alone=True)
        for path in (checkpoint, Path(launch.cwd)):
            assert not path.exists() or (path.stat().st_uid, path.stat().st_mode & 0o777) == (0, 0o700)
    assert Path(nodes[1].file_of(order_of(2).key, "stdout")).read_text() == "step\n0.1\n"


def test_a_file_with_another_name_elsewhere_is_not_given_away(folder: Path) -> None:
    """A hard link in a checkpoint folder may lead to anybody's file; a symbolic one is never followed."""
    (folder / "theirs").write_text("secret")
    (folder / "checkpoint" / "deep").mkdir(parents=True)
    (folder / "checkpoint" / "deep" / "own").touch()
    (folder / "checkpoint" / "hard").hardlink_to(folder / "theirs")
    (folder / "checkpoint" / "soft").symlink_to(folder / "theirs")
    (folder / "checkpoint" / "way").symlink_to(folder)
    ownership.give(str(folder / "checkpoint"), UID)
    assert (folder / "checkpoint" / "deep" / "own").stat().st_uid == UID
    assert (folder / "theirs").stat().st_uid == 0
    assert folder.stat().st_uid == 0


async def test_an_agent_gives_each_workload_a_user_and_the_next_agent_keeps_to_it(folder: Path) -> None:
    """Nobody gets the number of one that lives, though the agent was killed in between."""
    server = start_nats(folder / "bus")
    site = Site(folder, server.url, "n-users")
    await site.open()
    try:
        agent = await site.working_agent(GPUYARD_WORKLOAD_UIDS=f"{UID}-{OTHER_UID}")
        await site.order("id -u; touch $GPUYARD_CHECKPOINT_DIR/it; echo $? $HOME; sleep 600")
        pid = await site.started()
        await site.until("its output", lambda: len(site.printed()) == 2)
        assert site.printed() == [str(UID), f"0 {folder}/state/work/{JOB}-1.0"]
        await site.kill(agent)
        await site.working_agent(GPUYARD_WORKLOAD_UIDS=f"{UID}-{OTHER_UID}")
        await site.order("id -u", job=OTHER, gpus=(1,))
        await site.hear(WorkloadEndedV1, lambda told: told.job_id == OTHER and told.exit_code == 0)
        assert site.printed(OTHER) == [str(OTHER_UID)]
        assert procfs.user_of(pid) == UID
        await site.stop(grace_ms=0)
        await site.hear(WorkloadEndedV1, lambda told: told.job_id == JOB and told.cause == "stopped")
    finally:
        await site.close()
        server.stop()


async def test_an_agent_whose_folder_is_closed_to_its_workloads_says_so_and_ends(folder: Path) -> None:
    """With the folder's name, as a configuration error."""
    closed = folder / "closed"
    closed.mkdir(mode=0o700)
    server = start_nats(folder / "bus")
    site = Site(folder, server.url, "n-closed")
    await site.open()
    try:
        agent = await site.start_agent(GPUYARD_WORKLOAD_UIDS=f"{UID}-{OTHER_UID}", GPUYARD_CHECKPOINT_ROOT=str(closed / "checkpoints"))
        async with asyncio.timeout(60):
            assert await agent.wait() == EXIT_CONFIG
    finally:
        await site.close()
        server.stop()
