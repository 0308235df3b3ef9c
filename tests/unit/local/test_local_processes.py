"""Processes are known by pid, start time and boot, and nothing else is touched."""

import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from gpuyard_local import keepers, leftovers, processes
from gpuyard_local.layout import Layout
from gpuyard_local.programs import Program, script_text, write_script


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """A state folder."""
    found = Layout(tmp_path / "state")
    found.make()
    return found


@pytest.fixture
def sleeper(layout: Layout) -> Iterator["subprocess.Popen[str]"]:
    """A program that was started by its script and says when it is there."""
    program = Program("sleeper", ("/bin/sh", "-c", "echo there; exec sleep 60"))
    write_script(program, layout)
    child = subprocess.Popen([layout.script("sleeper")], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None and child.stdout.readline() == "there\n"
    yield child
    child.kill()
    child.wait()
    child.stdout.close()


def test_a_program_notes_who_it_is_when_it_starts(layout: Layout, sleeper: "subprocess.Popen[str]") -> None:
    """And stays the same when it becomes another program."""
    who = processes.recorded(layout.record("sleeper"))
    assert who is not None and who == processes.identify(sleeper.pid) and processes.is_alive(who)


def test_leftovers_are_ended_by_what_they_noted(layout: Layout, sleeper: "subprocess.Popen[str]") -> None:
    """And are named."""
    assert leftovers.end(layout) == ["sleeper"]
    assert sleeper.wait(10) == -signal.SIGTERM and leftovers.found(layout) == {}


@pytest.mark.parametrize("change", [{"started_ticks": 1}, {"boot_id": "another boot"}])
def test_another_process_under_the_same_pid_is_never_touched(
    layout: Layout, sleeper: "subprocess.Popen[str]", change: dict[str, object]
) -> None:
    """The kernel gives pids away again."""
    who = processes.recorded(layout.record("sleeper"))
    assert who is not None
    other = replace(who, **change)  # pyright: ignore[reportArgumentType] (one field or the other)
    assert not processes.send(other, signal.SIGKILL) and not processes.is_alive(other)
    assert processes.end([other], grace_seconds=0) == [] and sleeper.poll() is None


def test_who_does_not_go_is_killed_after_the_grace(tmp_path: Path) -> None:
    """Everything is gone when `end` returns."""
    child = subprocess.Popen(["/bin/sh", "-c", "trap '' TERM; echo there; while :; do sleep 0.05; done"], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None and child.stdout.readline() == "there\n"
    who = processes.identify(child.pid)
    assert who is not None and processes.end([who], grace_seconds=0.1) == [who]
    assert child.wait(10) == -signal.SIGKILL
    child.stdout.close()


def test_a_zombie_is_nobody() -> None:
    """It cannot be signalled, and nobody waits for it."""
    child = subprocess.Popen(["/bin/true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert processes.identify(child.pid) is None
    child.wait()


@pytest.mark.parametrize("content", ["", "nonsense\n", "1 (sh) S\nboot\n", "x (sh) S " + "0 " * 40 + "\nboot\n"])
def test_an_unreadable_note_names_nobody(tmp_path: Path, content: str) -> None:
    """Half a line after a full disk, say."""
    (tmp_path / "x.stat").write_text(content)
    assert processes.recorded(tmp_path / "x.stat") is None and processes.recorded(tmp_path / "absent") is None


def test_a_note_with_any_name_in_parentheses_is_read(tmp_path: Path) -> None:
    """A program may be called ') S 1 2 3'."""
    (tmp_path / "x.stat").write_text("42 (a) b) c (d) S " + " ".join(str(number) for number in range(4, 53)) + "\nboot-1\n")
    assert processes.recorded(tmp_path / "x.stat") == processes.ProcessId(42, 22, "boot-1")


def test_settings_reach_the_program_as_they_are(layout: Layout) -> None:
    """Whatever signs they have; the command line too."""
    value = 'it\'s $HOME `id` "quoted" \\ %s\nsecond line'
    program = Program("show", ("/bin/sh", "-c", 'printf %s "$GPUYARD_X$1"', "sh", value), {"GPUYARD_X": value})
    write_script(program, layout)
    done = subprocess.run([layout.script("show")], capture_output=True, text=True, check=True)
    assert done.stdout == value * 2


def test_no_secret_stands_in_a_script(layout: Layout) -> None:
    """They are named by their files."""
    assert "PASSWORD=" not in script_text(Program("x", ("true",), {"GPUYARD_NATS_PASSWORD_FILE": "/x"}), layout)


def test_who_listens_on_a_socket_is_told_by_the_kernel(tmp_path: Path) -> None:
    """Also where the path is longer than a socket's address."""
    import socket

    folder = tmp_path / ("d" * 100) / "keeper"
    folder.mkdir(parents=True)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"/proc/self/fd/{handle}/keeper.sock")
        server.listen()
        assert keepers.peer_of(folder / "keeper.sock") == processes.identify(os.getpid())
    os.close(handle)
    assert keepers.peer_of(folder / "keeper.sock") is None and keepers.peer_of(tmp_path / "absent" / "x") is None
