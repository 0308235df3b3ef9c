"""The relay: everything is published in order until the streams have it, whatever they answer."""

import asyncio
from collections.abc import Iterable

import pytest
from gpuyard_runtime import outbox
from gpuyard_runtime.frames import Outgoing, pack, unpack
from gpuyard_runtime.outbox import Relay
from hypothesis import given
from hypothesis import strategies as st

ACK = b'{"stream":"S","seq":1}'
FULL = b'{"error":{"code":503,"err_code":10077,"description":"maximum bytes exceeded"}}'

messages = st.builds(Outgoing, subject=st.binary(max_size=20), headers=st.binary(max_size=20), body=st.binary(max_size=50))


@given(found=st.lists(messages, max_size=5))
def test_an_outbox_row_gives_back_what_was_packed(found: list[Outgoing]) -> None:
    assert unpack(pack(found)) == found


class Wire:
    """Notes what is published: subject and token."""

    def __init__(self) -> None:
        self.is_connected = True
        self.sent: list[tuple[str, str]] = []

    def post(self, frames: Iterable[bytes]) -> None:
        for found in frames:
            _, subject, reply, *_ = found.split(b" ")
            self.sent.append((subject.decode(), reply.decode()))

    def subjects(self) -> list[str]:
        """What was published since the last look."""
        sent, self.sent = [subject for subject, _ in self.sent], []
        return sent


def row(*names: str) -> list[Outgoing]:
    return [Outgoing(name.encode(), b"NATS/1.0\r\n\r\n", b"{}") for name in names]


class Rig:
    """A relay with its wire."""

    def __init__(self) -> None:
        self.wire = Wire()
        self.told: list[str | None] = []
        self.relay = Relay(self.wire, self.told.append, limit=2)
        self.relay.reply_to("in.")

    def answer(self, token: int, body: bytes = ACK, headers: bytes = b"") -> None:
        """A stream answers."""
        self.relay.on_reply(b"in.%d" % token, b"", headers, body)


async def test_a_row_is_done_when_all_its_messages_are_acknowledged_in_any_order() -> None:
    rig = Rig()
    rig.relay.take_row(7, row("a", "b"))
    assert rig.wire.sent == [("a", "in.1"), ("b", "in.2")]
    rig.answer(2)
    assert rig.relay.take_done() == []
    rig.answer(1)
    rig.answer(1)
    assert rig.relay.take_done() == [7]
    assert rig.relay.take_done() == []
    await rig.relay.idle()


async def test_units_wait_for_room_when_too_many_are_unpublished() -> None:
    rig = Rig()
    rig.relay.take_row(1, row("a"))
    await rig.relay.room()
    rig.relay.take_row(2, row("b"))
    waiting = asyncio.create_task(rig.relay.room())
    await asyncio.sleep(0)
    assert not waiting.done()
    rig.answer(1)
    await waiting


async def test_a_refusal_stops_everything_and_is_repeated_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "LONGEST_PAUSE_SECONDS", 0.0)
    rig = Rig()
    rig.relay.take_row(1, row("a", "b", "c"))
    rig.wire.subjects()
    rig.answer(1)
    rig.answer(2, FULL)
    rig.answer(3, FULL)
    rig.relay.take_row(2, row("d"))
    assert rig.wire.subjects() == []
    assert rig.told == ["maximum bytes exceeded (code 10077)"]
    await asyncio.sleep(0.01)
    assert rig.wire.subjects() == ["b", "c", "d"]
    for token in (2, 3, 4):
        rig.answer(token)
    assert rig.told[-1] is None
    assert rig.relay.take_done() == [1, 2]


async def test_no_stream_at_all_is_waited_for_too() -> None:
    rig = Rig()
    rig.relay.take_row(1, row("a"))
    rig.answer(1, b"", b"NATS/1.0 503\r\n\r\n")
    assert rig.told == ["no stream keeps the subject"]
    assert rig.relay.unpublished == 1


async def test_after_a_reconnect_everything_unacknowledged_is_published_again() -> None:
    rig = Rig()
    rig.wire.is_connected = False
    rig.relay.take_row(1, row("a", "b"))
    rig.relay.resend()
    rig.wire.subjects()
    rig.wire.is_connected = True
    rig.relay.resend()
    assert rig.wire.subjects() == ["a", "b"]


async def test_an_overdue_acknowledgement_makes_it_publish_again(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    rig.relay.take_row(1, row("a"))
    rig.relay.check()
    assert rig.wire.subjects() == ["a"]
    monkeypatch.setattr(outbox, "ACK_SECONDS", -1.0)
    rig.relay.check()
    assert rig.wire.subjects() == ["a"]
    assert rig.told == ["the bus does not acknowledge"]


async def test_a_deletion_that_did_not_commit_is_asked_for_again() -> None:
    rig = Rig()
    rig.relay.take_row(1, row("a"))
    rig.answer(1)
    done = rig.relay.take_done()
    assert not rig.relay.holds(1)
    rig.relay.put_back_done(done)
    assert rig.relay.holds(1)
    assert rig.relay.take_done() == [1]
