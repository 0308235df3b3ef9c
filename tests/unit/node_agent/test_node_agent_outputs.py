"""Output of workloads: whole lines in order, within limits, whatever bytes a program writes."""

from pathlib import Path
from typing import Any

import pytest
from gpuyard_contracts.envelope import Envelope
from gpuyard_contracts.messages.node import LogLinesV1
from gpuyard_node_agent import handlers
from gpuyard_node_agent.domain import lines
from gpuyard_node_agent.domain.lines import Position
from gpuyard_node_agent.journal import Journal
from gpuyard_node_agent.outputs import SLACK_BYTES, Outputs, Written
from gpuyard_node_agent.store import NodeStore
from gpuyard_runtime.faults import Unavailable
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.node_agent.agent_world import JOB, HandClock, World

KEY = f"{JOB}-1.0"


class Bench:
    """One running workload with files, and a bus that may be away."""

    def __init__(self, folder: Path, *, cap_bytes: int = 1 << 20, bytes_per_poll: int = 1 << 20) -> None:
        self.folder = folder
        self.world = World(folder)
        self.world.run()
        self.store = self.world.agent.store
        self.published: list[Envelope[Any]] = []
        self.is_away = False
        self.outputs = self.make(cap_bytes, bytes_per_poll)

    def make(
        self, cap_bytes: int = 1 << 20, bytes_per_poll: int = 1 << 20, *, is_following: bool = True, written: Written = lambda: None
    ) -> Outputs:
        """An agent's outputs, following the workload."""
        found = Outputs(
            self.store,
            HandClock(),
            self._publish,
            lambda _, stream: str(self.folder / stream),
            written=written,
            node_id="n1",
            cap_bytes=cap_bytes,
            bytes_per_poll=bytes_per_poll,
        )
        if is_following:
            found.follow(self.store.workloads[KEY].order)
        return found

    async def _publish(self, event: Envelope[Any]) -> None:
        if self.is_away:
            raise Unavailable("the bus is away")
        self.published.append(event)

    def write(self, text: str | bytes, stream: str = "stdout") -> None:
        """The program writes."""
        with (self.folder / stream).open("ab") as file:
            file.write(text.encode() if isinstance(text, str) else text)

    async def poll(self) -> None:
        """One poll, to its end."""
        await self.outputs.poll()
        for followed in self.outputs._followed.values():  # pyright: ignore[reportPrivateUsage] - its tasks are what is waited for
            if followed.task is not None:
                await followed.task

    async def finish(self) -> None:
        """The workload ends."""
        before = self.outputs.finish(KEY)
        if before is not None:
            await before()

    @property
    def said(self) -> list[LogLinesV1]:
        """What was published."""
        return [event.data for event in self.published]

    def text(self, stream: str = "stdout") -> list[str]:
        """The published lines of a stream."""
        return [line for message in self.said if message.stream == stream for line in message.lines]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A running workload."""
    return Bench(tmp_path)


async def test_lines_are_published_as_they_come_with_their_numbers(bench: Bench) -> None:
    """An unfinished line waits for its end."""
    bench.write("one\ntwo\nthr")
    await bench.poll()
    bench.write("ee\n")
    bench.write("bad\n", "stderr")
    await bench.poll()
    assert [(message.stream, message.first_line, message.lines) for message in bench.said] == [
        ("stdout", 0, ("one", "two")),
        ("stdout", 2, ("three",)),
        ("stderr", 0, ("bad",)),
    ]


async def test_the_end_publishes_all_that_is_left_and_says_that_it_is_the_last(bench: Bench) -> None:
    """Also a line without an end, also when nothing is new."""
    bench.write("one\n")
    bench.write("x", "stderr")
    await bench.poll()
    await bench.finish()
    assert bench.text() == ["one"]
    assert bench.text("stderr") == ["x"]
    assert [(message.stream, message.first_line) for message in bench.said if message.is_last] == [("stdout", 1), ("stderr", 1)]


async def test_who_prints_nothing_costs_no_message(bench: Bench) -> None:
    """And its end waits for nothing."""
    await bench.poll()
    assert bench.outputs.finish(KEY) is None


async def test_only_files_that_were_written_to_are_looked_at(bench: Bench) -> None:
    """What an earlier agent left is looked at once, whoever tells."""
    names: set[str] | None = set()
    bench.outputs = bench.make(written=lambda: names)
    await bench.poll()
    bench.write("one\n")
    await bench.poll()
    assert bench.text() == []
    names = {f"{KEY}.out"}
    await bench.poll()
    assert bench.text() == ["one"]
    names = None
    bench.write("two\n")
    await bench.poll()
    assert bench.text() == ["one", "two"]


async def test_lines_that_the_bus_did_not_take_are_looked_at_again(bench: Bench) -> None:
    """Though nothing was written since."""
    names: list[set[str]] = [{f"{KEY}.out"}]
    bench.outputs = bench.make(written=lambda: names.pop() if names else set())
    bench.write("one\n")
    bench.is_away = True
    await bench.poll()
    bench.is_away = False
    await bench.poll()
    assert bench.text() == ["one"]


async def test_the_next_agent_goes_on_where_the_last_one_was(bench: Bench) -> None:
    """Numbers go on; a line that was half read is read again."""
    bench.write("one\ntwo\nthr")
    await bench.poll()
    bench.store.flush()
    bench.store.journal.close()
    bench.store = NodeStore(Journal(bench.folder / "journal"), "boot-1")
    bench.store.load()
    bench.outputs = bench.make()
    bench.write("ee\n")
    await bench.finish()
    assert bench.text() == ["one", "two", "three"]
    assert [message.first_line for message in bench.said] == [0, 2, 3]


async def test_the_next_agent_publishes_the_last_lines_before_an_end_that_was_not_told(bench: Bench) -> None:
    """Killed between the record of the end and its last lines."""
    bench.write("one\n")
    await bench.poll()
    bench.store.flush()
    bench.write("two\n")
    bench.world.end(KEY, code=0)
    bench.world.restart()
    bench.store = bench.world.agent.store
    bench.outputs = bench.make(is_following=False)
    bench.world.agent.outputs = bench.outputs
    handlers.resume(bench.world.agent)
    (before,) = bench.world.way.befores
    await before()
    assert bench.text() == ["one", "two"]
    assert bench.said[-1].is_last


async def test_what_the_bus_does_not_take_is_published_later(bench: Bench) -> None:
    """The file is the spool."""
    bench.is_away = True
    bench.write("one\n")
    await bench.poll()
    bench.write("two\n")
    bench.is_away = False
    await bench.poll()
    assert bench.text() == ["one", "two"]


async def test_portions_that_begin_alike_are_different_messages(bench: Bench) -> None:
    """A repeat under the same id would swallow the lines that came since."""
    bench.write("one\n")
    await bench.poll()
    bench.outputs = bench.make()
    bench.store.tails.clear()
    bench.outputs = bench.make()
    bench.write("two\n")
    await bench.poll()
    assert [message.first_line for message in bench.said] == [0, 0]
    assert len({event.id for event in bench.published}) == 2


async def test_a_flood_is_heard_in_part_and_what_is_left_out_is_counted(tmp_path: Path) -> None:
    """The last lines are heard; the numbers show the gap."""
    bench = Bench(tmp_path, bytes_per_poll=1000)
    bench.write("".join(f"line {number:05}\n" for number in range(1000)))
    await bench.poll()
    assert bench.text()[-1] == "line 00999"
    first = bench.said[0]
    assert first.dropped_lines == first.first_line == 1000 - len(bench.text())
    assert first.lines[0] == f"line {first.first_line:05}"
    assert bench.outputs.dropped_lines == first.dropped_lines


async def test_a_file_over_its_cap_keeps_its_beginning_and_what_follows_is_still_published(tmp_path: Path) -> None:
    """With one line that says so."""
    bench = Bench(tmp_path, cap_bytes=1000, bytes_per_poll=1 << 30)
    bench.write("begin\n" + "x" * 99 + "\n")
    bench.write(("y" * 99 + "\n") * (SLACK_BYTES // 100 + 20))
    await bench.poll()
    bench.write("later\n")
    await bench.poll()
    bench.write(("z" * 99 + "\n") * (SLACK_BYTES // 100 + 20))
    await bench.poll()
    await bench.finish()
    kept = (tmp_path / "stdout").read_text()
    assert len(kept) < 1200
    assert kept.startswith("begin\n")
    assert kept.count("output above 1000 bytes is not kept") == 1
    assert "later" in bench.text()
    assert bench.text()[-1] == "z" * 99


async def test_a_program_that_empties_its_own_file_is_followed_from_its_new_beginning(bench: Bench) -> None:
    """As a shell does with ``> /dev/stdout``."""
    bench.write("one\ntwo\n")
    await bench.poll()
    (bench.folder / "stdout").write_text("new\n")
    await bench.poll()
    assert bench.text() == ["one", "two", "new"]
    assert [message.first_line for message in bench.said] == [0, 2]


async def test_a_program_that_removes_its_files_does_no_harm(bench: Bench) -> None:
    """Nothing is there to be read."""
    bench.write("one\n")
    (bench.folder / "stdout").unlink()
    await bench.poll()
    await bench.finish()
    assert bench.outputs.last_words(KEY) == ""


async def test_a_link_in_place_of_an_output_is_not_followed(bench: Bench) -> None:
    """A workload must not get the agent to read what it may not read itself."""
    secret = bench.folder / "secret"
    secret.write_text("hidden\n")
    (bench.folder / "stdout").symlink_to(secret)
    (bench.folder / "stderr").symlink_to(secret)
    await bench.poll()
    await bench.finish()
    assert bench.said == []
    assert bench.outputs.last_words(KEY) == ""


def test_last_words_are_the_end_of_the_errors_or_else_of_the_output(bench: Bench) -> None:
    """Whole lines, where there is room."""
    bench.write("printed\n")
    assert bench.outputs.last_words(KEY) == "printed"
    bench.write("Traceback\n" + "long line\n" * 5000 + "ImportError: x\n", "stderr")
    told = bench.outputs.last_words(KEY)
    assert told.endswith("ImportError: x")
    assert told.startswith("long line\n")
    assert len(told) <= 1500


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=6))
def test_lines_do_not_depend_on_how_the_bytes_came(data: bytes, cuts: list[int]) -> None:
    """Read in any portions, the lines and their numbers are the same."""
    whole, expected = lines.cut(Position(), data, is_end=True)
    at, found = Position(), []
    for start, stop in zip([0, *sorted(cuts)], [*sorted(cuts), len(data)], strict=True):
        at, more = lines.cut(at, data[start:stop])
        found += more
    at, more = lines.cut(at, b"", is_end=True)
    assert found + more == expected
    assert (at.offset, at.line, at.rest) == (whole.offset, whole.line, b"")


@given(st.lists(st.text(max_size=3000), max_size=60), st.integers(0, 99))
def test_messages_hold_all_lines_in_order_and_stay_below_their_limit(told: list[str], first: int) -> None:
    """Whatever characters they are made of, as JSON."""
    found = list(lines.messages(first, told))
    assert [line for _, portion in found for line in portion] == told
    assert [start for start, _ in found] == [first + sum(len(portion) for _, portion in found[:n]) for n in range(len(found))]
    for _, portion in found:
        assert len(portion) <= lines.MAX_MESSAGE_LINES
        body = LogLinesV1(
            node_id="n",
            tenant="t",
            job_id=JOB,
            attempt=1,
            rank=0,
            stream="stdout",
            first_line=0,
            lines=tuple(portion),
            at=HandClock().now(),
        )
        assert len(body.model_dump_json().encode()) < 64 * 1024


def test_a_line_without_end_is_cut_into_pieces_that_fit() -> None:
    """A megabyte without a newline is not kept in memory."""
    at, found = lines.cut(Position(), b"x" * 20_000)
    assert ("".join(found), at.rest) == ("x" * 20_000, b"")
    assert max(map(len, found)) <= lines.MAX_LINE_CHARS
