"""The pull protocol: what is asked for, when, and what a delivery knows."""

from datetime import UTC, datetime

import pytest
from gpuyard_runtime import pull as module
from gpuyard_runtime.pull import Pull
from gpuyard_runtime.work import Delivery

REPLY = b"$JS.ACK.EVT_X.durable.1.42.7.1893456000123456789.3"
WITH_DOMAIN = b"$JS.ACK.hub.ACCOUNT.EVT_X.durable.1.42.7.1893456000123456789.3.token"


class Rig:
    """A pull with a bus that notes what is written."""

    def __init__(self, batch: int = 4) -> None:
        self.posted: list[bytes] = []
        self.got: list[Delivery] = []
        self.buffered = 0
        self.pull = Pull(self, "EVT_X", "durable", "inbox", self.got.append, lambda: self.buffered, batch=batch)

    def post(self, frames: list[bytes]) -> None:
        self.posted += frames

    def request_frame(self, subject: str, reply: str, body: bytes) -> bytes:
        return f"{subject} {reply} ".encode() + body

    def deliver(self, count: int = 1) -> None:
        """Messages come."""
        for _ in range(count):
            self.pull.on_message(b"a.b", REPLY, b"", b"{}")

    def status(self, line: bytes) -> None:
        """A status comes."""
        self.pull.on_message(b"inbox", b"", line, b"")

    def asked(self) -> int:
        """How often more was asked for since the last look."""
        asked, self.posted = len([found for found in self.posted if found.startswith(b"$JS.API")]), []
        return asked


async def test_it_asks_for_a_batch_that_expires() -> None:
    rig = Rig()
    rig.pull.ask()
    assert rig.posted == [b'$JS.API.CONSUMER.MSG.NEXT.EVT_X.durable inbox {"batch":4,"expires":4000000000}']


async def test_the_next_batch_is_asked_for_before_the_last_is_exhausted() -> None:
    rig = Rig()
    rig.pull.ask()
    rig.pull.ask()
    rig.deliver()
    assert rig.asked() == 1
    rig.deliver()
    assert rig.asked() == 1


async def test_nothing_is_asked_for_while_there_is_no_room() -> None:
    rig = Rig()
    rig.buffered = 4
    rig.pull.ask()
    assert rig.asked() == 0
    rig.buffered = 3
    rig.pull.ask()
    assert rig.asked() == 1


@pytest.mark.parametrize("reply", [REPLY, WITH_DOMAIN])
async def test_a_delivery_knows_its_place_in_the_stream(reply: bytes) -> None:
    rig = Rig()
    rig.pull.on_message(b"a.b", reply, b"NATS/1.0\r\nce-id: 1\r\n\r\n", b"{}")
    [got] = rig.got
    assert (got.subject, got.headers, got.body, got.stream, got.sequence) == ("a.b", {"ce-id": "1"}, b"{}", "EVT_X", 42)
    assert got.arrived == datetime(2030, 1, 1, 0, 0, 0, 123456, tzinfo=UTC)
    assert rig.pull.pending == 3
    rig.posted = []
    got.ack()
    got.touch()
    assert rig.posted == [b"PUB %b 4\r\n+ACK\r\n" % reply, b"PUB %b 4\r\n+WPI\r\n" % reply]


async def test_an_expired_pull_gives_back_what_did_not_come_and_the_next_is_asked_for() -> None:
    rig = Rig()
    rig.pull.ask()
    rig.deliver()
    rig.asked()
    rig.status(b"NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: 3\r\nNats-Pending-Bytes: 0\r\n\r\n")
    assert rig.asked() == 1


async def test_a_heartbeat_is_no_message() -> None:
    rig = Rig()
    rig.status(b"NATS/1.0 100 Idle Heartbeat\r\n\r\n")
    assert (rig.got, rig.posted) == ([], [])


@pytest.mark.parametrize("line", [b"NATS/1.0 503\r\n\r\n", b"NATS/1.0 409 Consumer Deleted\r\n\r\n"])
async def test_a_consumer_that_is_gone_is_told_and_not_asked_at_once(line: bytes) -> None:
    rig = Rig()
    rig.pull.ask()
    rig.asked()
    rig.status(line)
    rig.pull.ask()
    assert rig.pull.missing == "consumer durable of EVT_X is gone"
    assert rig.asked() == 0
    rig.deliver()
    assert rig.pull.missing is None


async def test_a_pull_whose_end_was_lost_is_written_off(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    rig.pull.ask()
    rig.asked()
    rig.pull.check()
    assert rig.asked() == 0
    monkeypatch.setattr(module, "EXPIRES_SECONDS", -2.0)
    rig.pull.check()
    assert rig.asked() == 1


async def test_after_a_reconnect_it_asks_anew_and_after_a_stop_not_at_all() -> None:
    rig = Rig()
    rig.pull.ask()
    rig.pull.restart()
    assert rig.asked() == 2
    rig.pull.stop()
    rig.pull.restart()
    assert rig.asked() == 0
