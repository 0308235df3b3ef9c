"""Folders, programs and limits of workloads; settings of the agent; batches of orders."""

import asyncio
import errno
import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from gpuyard_contracts.messages.node import WorkloadStartedV1
from gpuyard_node_agent import intake, mapping
from gpuyard_node_agent.domain.admission import Refused
from gpuyard_node_agent.domain.model import Order
from gpuyard_node_agent.domain.spares import MOST, Spares
from gpuyard_node_agent.ports import Launch
from gpuyard_node_agent.processes.cgroups import Cgroups
from gpuyard_node_agent.processes.workspace import Workspace, find_program
from gpuyard_node_agent.processes.writings import Writings
from gpuyard_node_agent.settings import AgentSettings
from gpuyard_runtime.work import Delivery
from pydantic import ValidationError

from tests.unit.node_agent.agent_world import JOB, OTHER, World

KEY = f"{JOB}-1.0"


def make(folder: Path, *, keep_seconds: float = 600, cgroups: Cgroups | None = None) -> Workspace:
    """A node's folders."""
    return Workspace(
        state=folder / "state",
        checkpoints=folder / "shared",
        node_id="n1",
        cap_bytes=1000,
        keep_seconds=keep_seconds,
        cgroups=cgroups,
    )


def order_of(world: World, **spec: Any) -> Order:
    """An order."""
    event = world.order(**spec)
    return mapping.order_of(event.data, event)


def program(folder: Path, name: str, *, mode: int = 0o755) -> Path:
    """A program in a folder."""
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return path


def test_a_job_gets_folders_of_its_own_and_a_checkpoint_folder_that_stays(world: World, tmp_path: Path) -> None:
    """The next attempt has another working folder and the same checkpoints."""
    workspace = make(tmp_path)
    first = workspace.prepare(order_of(world, command=("sh",)), None)
    second = workspace.prepare(order_of(world, command=("sh",), attempt=2), None)
    assert isinstance(first, Launch)
    assert isinstance(second, Launch)
    assert first.cwd != second.cwd
    assert first.env["GPUYARD_CHECKPOINT_DIR"] == second.env["GPUYARD_CHECKPOINT_DIR"]
    assert Path(first.env["GPUYARD_CHECKPOINT_DIR"]).parent == tmp_path / "shared"
    assert all(Path(found).is_dir() for found in (first.cwd, second.cwd, first.env["GPUYARD_CHECKPOINT_DIR"]))
    assert first.cap_bytes == 1000
    assert workspace.caps_of(first.key) == {first.out: 1000, first.err: 1000}


def test_a_job_that_is_prepared_again_finds_its_folder_as_it_was(world: World, tmp_path: Path) -> None:
    """After a kill between the folder and the start."""
    workspace = make(tmp_path)
    order = order_of(world, command=("sh",))
    first = workspace.prepare(order, None)
    assert isinstance(first, Launch)
    (Path(first.cwd) / "kept").touch()
    assert workspace.prepare(order, None) == first
    assert (Path(first.cwd) / "kept").exists()


def test_a_program_is_found_along_the_jobs_own_path(tmp_path: Path) -> None:
    """Not along the agent's."""
    found = program(tmp_path, "train")
    assert find_program("train", str(tmp_path), "/") == str(found)
    assert find_program(str(found), "", "/") == str(found)
    assert find_program("./train", "", str(tmp_path)) == str(found)
    lost = find_program("train", "/usr/bin", "/")
    assert isinstance(lost, Refused)
    assert (lost.reason, lost.is_permanent) == ("bad-command", True)
    assert "train" in lost.detail


@pytest.mark.parametrize("name", ["./folder", "./plain", "./absent"])
def test_what_is_no_program_is_refused_for_good(tmp_path: Path, name: str) -> None:
    """A folder, a file that is not executable, nothing."""
    (tmp_path / "folder").mkdir()
    program(tmp_path, "plain", mode=0o644)
    found = find_program(name, "", str(tmp_path))
    assert isinstance(found, Refused)
    assert (found.reason, found.is_permanent) == ("bad-command", True)


def test_a_full_disk_refuses_the_start_for_now(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another node may have room."""

    def full(path: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    workspace = make(tmp_path)
    monkeypatch.setattr(os, "mkdir", full)
    found = workspace.prepare(order_of(world), None)
    assert isinstance(found, Refused)
    assert (found.reason, found.is_permanent) == ("no-room", False)


def test_folders_go_after_the_end_and_checkpoints_stay(world: World, tmp_path: Path) -> None:
    """Also those that an earlier agent left; never one that lives."""
    workspace = make(tmp_path)
    launches = [workspace.prepare(order_of(world, command=("sh",), attempt=number), None) for number in (1, 2)]
    for launch in launches:
        assert isinstance(launch, Launch)
        Path(launch.out).touch()
    after = make(tmp_path, keep_seconds=0)
    after.find_old({f"{JOB}-2.0"})
    assert after.sweep({f"{JOB}-2.0"}) == 1
    assert [path.name for path in after.root.iterdir()] == [f"{JOB}-2.0"]
    assert [path.name for path in after.output.iterdir()] == [f"{JOB}-2.0.out"]
    assert len(list((tmp_path / "shared").iterdir())) == 1


def test_folders_stay_for_their_time(world: World, tmp_path: Path) -> None:
    """Somebody may want to look."""
    workspace = make(tmp_path)
    order = order_of(world, command=("sh",))
    workspace.prepare(order, None)
    (workspace.root / KEY / "result").touch()
    workspace.leave(order, None, is_alone=True)
    assert workspace.sweep(set()) == 0
    assert (workspace.root / KEY / "result").exists()


def ran(workspace: Workspace, order: Order, *, printed: str = "") -> Launch:
    """Prepared, and started by a keeper: the output files are there."""
    launch = workspace.prepare(order, None)
    assert isinstance(launch, Launch)
    for path in (launch.out, launch.err):
        with Path(path).open("a") as file:
            file.write(printed)
    return launch


def inodes(*paths: str) -> list[int]:
    """Which files and folders these are, whatever they are called."""
    return [Path(path).stat().st_ino for path in paths]


def test_what_a_workload_left_empty_becomes_the_same_tenants_next_ones(world: World, tmp_path: Path) -> None:
    """Folder, output and checkpoint folder; under the old names nothing is left."""
    workspace = make(tmp_path)
    order = order_of(world, command=("sh",))
    first = ran(workspace, order)
    known = inodes(first.cwd, first.out, first.err, first.env["GPUYARD_CHECKPOINT_DIR"])
    workspace.leave(order, None, is_alone=True)
    second = ran(workspace, order_of(world, job=OTHER, command=("sh",)))
    assert inodes(second.cwd, second.out, second.err, second.env["GPUYARD_CHECKPOINT_DIR"]) == known
    assert not any(Path(path).exists() for path in (first.cwd, first.out, first.err, first.env["GPUYARD_CHECKPOINT_DIR"]))


def test_another_tenant_never_gets_what_a_workload_left(world: World, tmp_path: Path) -> None:
    """A descriptor of it may still be open at the first one's."""
    workspace = make(tmp_path)
    order = order_of(world, command=("sh",))
    first = ran(workspace, order)
    known = inodes(first.cwd, first.out, first.err, first.env["GPUYARD_CHECKPOINT_DIR"])
    workspace.leave(order, None, is_alone=True)
    second = ran(workspace, replace(order_of(world, job=OTHER, command=("sh",)), tenant="beta"))
    assert not set(known) & set(inodes(second.cwd, second.out, second.err, second.env["GPUYARD_CHECKPOINT_DIR"]))


def test_a_workload_that_printed_keeps_its_folders_for_their_time(world: World, tmp_path: Path) -> None:
    """Only what is empty is given on."""
    workspace = make(tmp_path)
    order = order_of(world, command=("sh",))
    first = ran(workspace, order, printed="hello")
    workspace.leave(order, None, is_alone=True)
    second = workspace.prepare(order_of(world, job=OTHER, command=("sh",)), None)
    assert isinstance(second, Launch)
    assert Path(first.out).read_text() == "hello"
    assert not Path(second.out).exists()


def test_a_checkpoint_folder_stays_where_another_attempt_may_live(world: World, tmp_path: Path) -> None:
    """It may be about to write its first checkpoint there; and a checkpoint is never taken away."""
    workspace = make(tmp_path)
    order = order_of(world, command=("sh",))
    folder = Path(ran(workspace, order).env["GPUYARD_CHECKPOINT_DIR"])
    workspace.leave(order, None, is_alone=False)
    assert folder.is_dir()
    (folder / "step-10").touch()
    workspace.leave(order, None, is_alone=True)
    assert (folder / "step-10").exists()


def test_empty_checkpoint_folders_of_an_agent_that_is_gone_are_removed_by_the_next(world: World, tmp_path: Path) -> None:
    """Other nodes' spare ones, and jobs' own, are left alone."""
    workspace = make(tmp_path)
    order = order_of(world, command=("sh",))
    ran(workspace, order)
    workspace.leave(order, None, is_alone=True)
    (tmp_path / "shared" / ".spare.n2.1").mkdir()
    (tmp_path / "shared" / "job-x.0").mkdir()
    make(tmp_path).find_old(set())
    assert sorted(path.name for path in (tmp_path / "shared").iterdir()) == [".spare.n2.1", "job-x.0"]


def test_spare_ones_beyond_the_most_go_away_the_longest_unused_tenants_first() -> None:
    """A tenant that asks for much does not fill the disk with nothing."""
    spares = Spares()
    assert spares.put("old", "a") is None
    assert [spares.put("new", str(number)) for number in range(MOST)] == [None] * (MOST - 1) + ["a"]
    assert spares.take("old") is None
    assert spares.take("new") == str(MOST - 1)


def test_the_system_tells_which_outputs_were_written_to(tmp_path: Path) -> None:
    """Once for each time that one looks; creating a file is not writing to it."""
    writings = Writings(tmp_path)
    assert writings.is_watched
    (tmp_path / "silent.out").touch()
    for text in ("one", "two"):
        with (tmp_path / "loud.err").open("a") as file:
            file.write(text)
    assert writings.take() == {"loud.err"}
    assert writings.take() == set()
    writings.close()
    assert writings.take() is None


def test_limits_are_written_into_a_cgroup_of_the_workloads_own(world: World, tmp_path: Path) -> None:
    """Memory in bytes, CPU as a quota; the keeper has a leaf of its own."""
    tree = tmp_path / "tree"
    tree.mkdir()
    cgroups = Cgroups(tree)
    cgroups.open()
    launch = make(tmp_path, cgroups=cgroups).prepare(order_of(world, command=("sh",), cpu_milli=2500, memory_mib=512), None)
    assert isinstance(launch, Launch)
    assert launch.cgroup == str(tree / KEY)
    assert launch.cgroup_home == str(tree / "keeper")
    assert (tree / KEY / "memory.max").read_text() == str(512 * 2**20)
    assert (tree / KEY / "cpu.max").read_text() == "250000 100000"
    assert (tree / "keeper").is_dir()


# -- settings


def test_a_node_without_a_name_is_called_after_its_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The id is ASCII, the display name is what people say (B58)."""
    monkeypatch.setattr("socket.gethostname", lambda: "größe-7")
    found = AgentSettings(state_dir=tmp_path)
    assert found.display_name == "größe-7"
    assert found.node_id.isascii()
    assert found.node_id.startswith("gro")
    assert found.checkpoints == tmp_path / "checkpoints"


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """And an empty variable is as if it were not there."""
    for name, value in {
        "NODE_ID": "a100-01",
        "PROFILE": "4xT4",
        "LABELS": '{"rack": "7"}',
        "DISPLAY_NAME": "",
        "USAGE_SECONDS": "9",
    }.items():
        monkeypatch.setenv(f"GPUYARD_{name}", value)
    found = AgentSettings()
    assert (found.node_id, found.profile, dict(found.labels), found.usage_seconds) == ("a100-01", "4xT4", {"rack": "7"}, 9.0)
    assert found.display_name != ""


@pytest.mark.parametrize("wrong", [{"node_id": "No.Good"}, {"profile": "9xZ9"}, {"backend": "magic"}, {"labels": {"": "x"}}])
def test_wrong_settings_are_refused(wrong: dict[str, Any]) -> None:
    """At the start, with the name of the setting."""
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        AgentSettings(**wrong)


# -- batches


def deliver(subject: str, body: bytes, acks: list[int], number: int) -> Delivery:
    """One delivery."""
    return Delivery(subject, {"ce-id": f"o{number}"}, body, "CMD_NODE", number, datetime.now(UTC), ack=lambda: acks.append(number))


async def test_a_batch_is_acknowledged_once_it_is_safe_and_nothing_in_it_blocks_the_rest(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unreadable, unknown, foreign and failing orders are passed over."""
    acks: list[int] = []
    safe: list[list[int]] = []
    monkeypatch.setattr(os, "fdatasync", lambda fd: safe.append(list(acks)))
    good, other = world.order(), world.order(OTHER, gpus=(1,))
    foreign = good.data.model_copy(update={"node_id": "n2"})
    batch = [
        deliver("gpuyard.cmd.node-agent.n1.start.v1", b"{", acks, 1),
        deliver("gpuyard.cmd.node-agent.n1.dance.v1", b"{}", acks, 2),
        deliver(foreign.subject(), foreign.model_dump_json().encode(), acks, 3),
        deliver(good.subject or good.data.subject(), good.body(), acks, 4),
        deliver(other.data.subject(), other.body(), acks, 5),
    ]
    assert await intake.take(batch, world.agent, world.agent.store.journal)
    world.deliver()
    assert acks == [1, 2, 3, 4, 5]
    assert safe == [[]]
    assert [told.job_id for told in world.said(WorkloadStartedV1)] == [JOB, OTHER]


async def test_while_the_disk_is_full_no_order_is_begun_or_acknowledged(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes again, and then it is done once."""
    acks: list[int] = []
    write = os.write

    def full(fd: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    order = world.order()
    batch = [deliver(order.data.subject(), order.body(), acks, 1)]
    monkeypatch.setattr(os, "write", full)
    world.agent.store.journal.append({"t": "anything"})
    assert not await intake.take(batch, world.agent, world.agent.store.journal)
    world.deliver()
    assert (acks, world.keeper.launches) == ([], {})
    monkeypatch.setattr(os, "write", write)
    assert await intake.take(batch, world.agent, world.agent.store.journal)
    world.deliver()
    await asyncio.sleep(0)
    assert (acks, world.keeper.launches) == ([1], {KEY: 1})
