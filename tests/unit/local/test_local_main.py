"""``gpuyard-local`` from the command line, without a stack; readiness, and log files."""

from pathlib import Path
from typing import Any

import pytest
from gpuyard_local import following, readiness
from gpuyard_local.main import main, state_folder
from gpuyard_local.readiness import NotReady
from gpuyard_local.stack import NotRunning, Stack


def test_the_next_stack_upwards_is_meant(tmp_path: Path) -> None:
    """Else a new one here."""
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    assert state_folder(None, deep) == deep / ".gpuyard"
    (tmp_path / ".gpuyard").mkdir()
    (tmp_path / ".gpuyard" / "stack.json").touch()
    assert state_folder(None, deep) == tmp_path / ".gpuyard" and state_folder(Path("x"), deep) == Path("x")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["status"], "no stack was made in"),
        (["nats-user", "tenant", "acme"], "no stack was made in"),
        (["fault", "sim-a100", "0", "temperature", "91"], "no stack was made in"),
        (["logs", "api"], "there is no log of 'api'"),
    ],
)
def test_without_a_stack_every_command_says_so_in_one_line(tmp_path: Path, capsys: Any, arguments: list[str], said: str) -> None:
    """Exit code 1, no traceback."""
    assert main([*arguments, "--state", str(tmp_path / "none")]) == 1
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1


def test_down_without_a_stack_is_done_already(tmp_path: Path, capsys: Any) -> None:
    """Exit code 0."""
    assert main(["down", "--state", str(tmp_path / "none")]) == 0 and "there is no gpuyard in" in capsys.readouterr().out


def test_up_leaves_a_folder_with_other_things_alone(tmp_path: Path, capsys: Any) -> None:
    """Nothing is started, nothing is written."""
    (tmp_path / "thesis.tex").write_text("x")
    assert main(["up", "--state", str(tmp_path)]) == 1
    assert "holds something else" in capsys.readouterr().err and [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_bad_usage_is_exit_code_two(capsys: Any) -> None:
    """As of every command line."""
    for arguments in ([], ["frobnicate"], ["fault", "n", "0", "fire"], ["up", "--api-port", "80"]):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 2
    capsys.readouterr()


def test_a_stack_that_was_never_made_runs_nothing(tmp_path: Path) -> None:
    """And asking for its parts says so."""
    stack = Stack(tmp_path / "none")
    assert not stack.is_up() and stack.stop() is False
    for ask in (stack.states, stack.health_ports, lambda: stack.kill("api"), lambda: stack.api_url):
        with pytest.raises(NotRunning):
            ask()


def test_readiness_is_waited_for_and_told_one_by_one() -> None:
    """Each program as it becomes ready."""
    answers = {1: iter(["starting", None]), 2: iter([None])}
    said: list[str] = []
    readiness.wait(
        {"a": 1, "b": 2}, seconds=9, say=said.append, asked=lambda port: next(answers[port]), clock=lambda: 5.0, pause=lambda _: None
    )
    assert said == ["b is ready (0.0 s)", "a is ready (0.0 s)"]


def test_what_does_not_become_ready_is_told_with_its_own_words() -> None:
    """When the time is over."""
    times = iter([0.0, 1.0, 2.0, 11.0, 12.0])
    with pytest.raises(NotReady, match=r"a \(bus: away\)") as caught:
        readiness.wait({"a": 1}, seconds=10, asked=lambda port: "bus: away", clock=lambda: next(times), pause=lambda _: None)
    assert caught.value.waiting == {"a": "bus: away"}


def test_nobody_listening_is_not_ready() -> None:
    """Not an error."""
    assert readiness.ask(1) == "does not answer"


def test_the_end_of_a_log_and_what_is_added_are_shown(tmp_path: Path) -> None:
    """Whole lines only, and from its start where the log has turned over."""
    path = tmp_path / "api.log"
    path.write_text("one\ntwo\nthree\n")
    lines, place = following.tail(path, 2)
    inode = path.stat().st_ino
    assert lines == ["two", "three"]
    with path.open("a") as log:
        log.write("four\nfi")
    lines, place, inode = following.added(path, place, inode)
    assert lines == ["four"]
    path.rename(tmp_path / "api.log.1")
    path.write_text("fresh\n")
    assert following.added(path, place, inode)[0] == ["fresh"]
    path.unlink()
    assert following.added(path, place, inode)[0] == []


def test_of_a_large_log_only_whole_lines_of_its_end_are_read(tmp_path: Path) -> None:
    """The first one read may be half a line."""
    path = tmp_path / "big.log"
    path.write_text("x" * following.TAIL_BYTES + "\nlast\n")
    assert following.tail(path, 10)[0] == ["last"]
