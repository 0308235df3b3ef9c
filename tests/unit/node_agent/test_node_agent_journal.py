"""The journal: whole lines only, one sync for many, written anew without loss."""

import asyncio
import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from gpuyard_contracts.messages.node import UsageTickV1
from gpuyard_node_agent import mapping
from gpuyard_node_agent.domain.faults import Observed
from gpuyard_node_agent.domain.lines import Position
from gpuyard_node_agent.journal import Journal, line_of, record_of
from gpuyard_node_agent.store import NodeStore
from gpuyard_runtime.faults import RetryLater

from tests.unit.node_agent.agent_world import JOB, OTHER, World


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """An open, empty journal."""
    found = Journal(tmp_path / "journal")
    assert found.open() == []
    return found


def reread(journal: Journal) -> list[dict[str, object]]:
    """What the next agent reads."""
    return Journal(journal.path).open()


def test_records_come_back_in_order(journal: Journal) -> None:
    """Whatever text is in them."""
    records = [{"t": "a", "text": 'ä\n"\\'}, {"t": "b", "n": 2**60}]
    journal.append(*records)
    assert reread(journal) == records


@pytest.mark.parametrize("torn", range(1, 20))
def test_a_torn_last_line_is_cut_off_and_the_next_one_is_whole(journal: Journal, torn: int) -> None:
    """Torn at any byte."""
    journal.append({"t": "whole"})
    journal.append({"t": "torn"})
    with journal.path.open("r+b") as file:
        file.truncate(journal.path.stat().st_size - torn)
    after = Journal(journal.path)
    assert after.open() == [{"t": "whole"}]
    after.append({"t": "next"})
    assert reread(journal) == [{"t": "whole"}, {"t": "next"}]


def test_a_line_that_was_changed_on_disk_is_passed_over_and_counted(journal: Journal) -> None:
    """Its checksum does not fit any more."""
    journal.append({"t": "a"}, {"t": "b"}, {"t": "c"})
    journal.path.write_bytes(journal.path.read_bytes().replace(b'"b"', b'"x"'))
    after = Journal(journal.path)
    assert after.open() == [{"t": "a"}, {"t": "c"}]
    assert after.broken_lines == 1


@pytest.mark.parametrize("line", [b"", b"00000000", b"zzzzzzzz {}", b"1 {}", line_of({"t": "a"})[:-2], b"%08x 7" % 0x1AD5BE0D])
def test_what_is_no_line_is_none(line: bytes) -> None:
    """Neither an error nor a record."""
    assert record_of(line) is None


async def test_many_waiters_share_syncs(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """One sync for all that was written before it began."""
    syncs: list[int] = []
    monkeypatch.setattr(os, "fdatasync", syncs.append)
    for number in range(20):
        journal.append({"t": "x", "n": number})
    await asyncio.gather(*(journal.synced() for _ in range(20)))
    assert len(syncs) == 1
    await journal.synced()
    assert len(syncs) == 1


async def test_a_full_disk_is_told_and_what_was_owed_is_written_later(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Orders are not acknowledged meanwhile; nothing is written twice or left out."""
    write = os.write

    def full(fd: int, data: bytes) -> int:
        if len(data) > 10:
            return write(fd, data[:10])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    journal.append({"t": "a"})
    assert not journal.is_well()
    with pytest.raises(RetryLater):
        await journal.synced()
    monkeypatch.setattr(os, "write", write)
    journal.append({"t": "b"})
    assert journal.is_well()
    await journal.synced()
    assert reread(journal) == [{"t": "a"}, {"t": "b"}]


def test_writing_anew_keeps_what_matters_and_goes_on_in_the_new_file(journal: Journal) -> None:
    """The old file is replaced in one step."""
    journal.append(*({"t": "old", "n": number} for number in range(100)))
    journal.rewrite([{"t": "kept"}])
    journal.append({"t": "next"})
    assert reread(journal) == [{"t": "kept"}, {"t": "next"}]


def test_a_journal_that_cannot_be_written_anew_stays_as_it_was(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new file is put aside."""
    journal.append({"t": "old"})

    def refuse(fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match="No space"):
        journal.rewrite([{"t": "kept"}])
    assert reread(journal) == [{"t": "old"}]
    assert not journal.path.with_suffix(".new").exists()


def test_everything_known_survives_writing_anew(world: World) -> None:
    """Living, waiting, past, barred; attempts, lease, what was seen, positions in outputs, what is to be said."""
    world.run()
    world.run(OTHER, gpus=(9,))
    world.end(world.run("job-cccccccccccccccc", 4, gpus=(1,)), code=0)
    world.ask_stop("job-dddddddddddddddd", 7)
    store = world.agent.store
    store.see(Observed("boot-1", {"GPU-0/ecc_corrected": 3}, frozenset({"GPU-3"}), is_hung=True, log_sequence=17))
    store.tail_is(f"{JOB}-1.0", "stdout", Position(120, 4, b"half"))
    store.lease_is(type(store.lease)(5, world.clock.now()))
    store.flush()
    store.journal.rewrite(store.records())
    again = NodeStore(Journal(world.folder / "journal"), "boot-1")
    again.load()
    for name in ("workloads", "past", "attempts", "unsaid_ends", "observed"):
        assert getattr(again, name) == getattr(store, name), name
    assert list(again.unsaid.items()) == list(store.unsaid.items())
    assert again.tails == {f"{JOB}-1.0": {"stdout": Position(116, 4)}}
    assert again.lease.horizon == store.lease.horizon


def test_the_journal_is_written_anew_once_most_of_it_is_history(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not grow for ever."""
    monkeypatch.setattr("gpuyard_node_agent.journal.SMALL_BYTES", 10_000)
    store = world.agent.store
    for number in range(60):
        world.run(OTHER, number + 1, gpus=(), env={"PADDING": "x" * 1000})
        world.end(f"{OTHER}-{number + 1}.0", code=0)
        for event_id in list(store.unsaid):
            store.said(event_id)
        store.flush()
    assert store.journal.path.stat().st_size < 60_000
    assert store.attempts[OTHER] == 60


def test_only_so_many_ended_keys_are_remembered(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory does not grow for ever; the youngest stay."""
    monkeypatch.setattr("gpuyard_node_agent.store.REMEMBERED", 20)
    for number in range(30):
        world.agent.store.end(f"{JOB}-{number + 1}.0", JOB, number + 1, "ended")
    assert list(world.agent.store.past) == [f"{JOB}-{number + 1}.0" for number in range(10, 30)]


def test_statements_of_use_that_wait_are_thinned_to_the_last_of_each(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bus that is away for days does not fill the disk, and no allocation's last word is lost."""
    monkeypatch.setattr("gpuyard_node_agent.store.WAITING_TICKS", 20)
    key = world.run()
    store = world.agent.store
    for number in range(50):
        world.clock.at_ms += 5_000
        held = mapping.held_of(store.workloads[key], world.clock.ms())
        event = mapping.usage((held,), "n1", "boot-1", sequence=number, now=world.clock.now())
        store.say(("usage", event))
    last = world.unsaid(UsageTickV1)[-1]
    assert store.thin_ticks() == 30
    assert len(world.unsaid(UsageTickV1)) == 20
    assert world.unsaid(UsageTickV1)[-1] == last
    store.flush()
    world.restart()
    assert len(world.unsaid(UsageTickV1)) == 20


def test_records_of_a_newer_version_are_passed_over(world: World) -> None:
    """An agent that was set back to an older version still starts."""
    world.agent.store.journal.append({"t": "from-the-future", "x": 1, "say": [{"type": "gpuyard.evt.future.v9", "lane": "x"}]})
    key = world.run()
    world.restart()
    assert key in world.agent.store.workloads


def test_lines_of_one_turn_share_a_write_which_comes_at_the_latest_when_it_is_asked_for(tmp_path: Path) -> None:
    """Whoever acts on a line asks for the write first."""
    due: list[Callable[[], None]] = []
    found = Journal(tmp_path / "journal", later=due.append)
    found.open()
    found.append({"t": "one"})
    found.append({"t": "two"})
    assert len(due) == 1
    assert (tmp_path / "journal").read_bytes() == b""
    found.write()
    assert [record["t"] for record in Journal(tmp_path / "journal").open()] == ["one", "two"]
    due.pop()()
    found.append({"t": "three"})
    assert len(due) == 1
    due.pop()()
    assert [record["t"] for record in Journal(tmp_path / "journal").open()] == ["one", "two", "three"]
    found.close()
