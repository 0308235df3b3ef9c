"""The protocol's hot path: messages come through whole, however the bytes are cut, and headers stay headers."""

from itertools import pairwise
from typing import Any

import pytest
from gpuyard_runtime.wire import LeanClient, frame, header_block, plain_frame, read_headers, status_of
from hypothesis import given
from hypothesis import strategies as st

BLOCK = header_block({"ce-id": "1", "traceparent": "00-a-b-01"})
STREAM = (
    b"MSG a.b 1 5\r\nhello\r\n"
    + b"PING\r\n"
    + b"HMSG c.d 1 reply.to %d %d\r\n%bbody\r\n" % (len(BLOCK), len(BLOCK) + 4, BLOCK)
    + b"+OK\r\n"
    + b"MSG a.b 2 r 4\r\n\r\n\r\n\r\n"
    + b"MSG empty 1 0\r\n\r\n"
)
WANTED = [
    (b"a.b", b"", b"", b"hello"),
    (b"c.d", b"reply.to", BLOCK, b"body"),
    (b"a.b", b"r", b"", b"\r\n\r\n"),
    (b"empty", b"", b"", b""),
]


class Deaf(LeanClient):
    """A client without a connection that notes its pings."""

    def __init__(self) -> None:
        super().__init__()
        self.pings = 0

    async def _process_ping(self) -> None:
        self.pings += 1


@given(cuts=st.lists(st.integers(0, len(STREAM)), max_size=8))
async def test_messages_come_through_whole_however_the_bytes_are_cut(cuts: list[int]) -> None:
    client = Deaf()
    got: list[tuple[bytes, ...]] = []
    for sid in (1, 2):
        client.sinks[sid] = lambda *parts: got.append(parts)
    edges = [0, *sorted(cuts), len(STREAM)]
    for start, end in pairwise(edges):
        await client._ps.parse(STREAM[start:end])
    assert got == WANTED
    assert client.pings == 1


async def test_a_message_without_a_sink_goes_the_way_of_nats_py() -> None:
    client = Deaf()
    seen: list[Any] = []

    async def process(*args: Any) -> None:
        seen.append(args)

    client._process_msg = process  # type: ignore[method-assign]
    await client._ps.parse(b"MSG a.b 7 r 2\r\nhi\r\n")
    assert seen == [(7, b"a.b", b"r", b"hi", b"")]


names = st.from_regex(r"[A-Za-z][A-Za-z0-9_-]{0,20}", fullmatch=True)


@given(headers=st.dictionaries(names, st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=30), max_size=5))
def test_headers_survive_and_cannot_break_out_of_their_line(headers: dict[str, str]) -> None:
    block = header_block(headers)
    assert block.endswith(b"\r\n\r\n")
    found = read_headers(block)
    assert list(found) == list(headers)
    for name, value in headers.items():
        assert found[name] == value.replace("\r", " ").replace("\n", " ").strip()


@pytest.mark.parametrize(
    ("block", "wanted"),
    [
        (b"NATS/1.0 503\r\n\r\n", (503, "")),
        (b"NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: 3\r\n\r\n", (408, "Request Timeout")),
        (BLOCK, None),
        (b"", None),
        (b"NATS/1.0 odd\r\n\r\n", None),
    ],
)
def test_a_status_is_told_from_a_message(block: bytes, wanted: tuple[int, str] | None) -> None:
    assert status_of(block) == wanted


def test_frames_count_their_bytes() -> None:
    assert plain_frame(b"s", b"ab") == b"PUB s 2\r\nab\r\n"
    assert frame(b"s", b"r", b"NATS/1.0\r\n\r\n", b"ab") == b"HPUB s r 12 14\r\nNATS/1.0\r\n\r\nab\r\n"


def test_what_is_posted_while_away_is_dropped() -> None:
    client = Deaf()
    client.post([b"PUB x 0\r\n\r\n"])
    assert client._pending == []
