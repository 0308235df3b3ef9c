"""Messages as they lie in the outbox: encoded once, for the row and for the wire."""

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from gpuyard_contracts.envelope import MAX_BODY_BYTES, Envelope

from gpuyard_runtime.faults import Poison
from gpuyard_runtime.wire import header_block

_LENGTHS = struct.Struct(">III")


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One message ready for the wire."""

    subject: bytes
    headers: bytes
    body: bytes


def outgoing(envelope: Envelope[Any]) -> Outgoing:
    """An envelope, encoded. Raises Poison where its body is larger than any reader takes."""
    body = envelope.body()
    if len(body) > MAX_BODY_BYTES:
        raise Poison("too-large", f"{envelope.type} has {len(body)} bytes; at most {MAX_BODY_BYTES} can be sent")
    return Outgoing(envelope.subject.encode(), header_block(envelope.headers()), body)


def pack(messages: Iterable[Outgoing]) -> bytes:
    """The outbox row's content: for each message three lengths (big-endian u32), subject, header block, body."""
    parts: list[bytes] = []
    for found in messages:
        parts += (_LENGTHS.pack(len(found.subject), len(found.headers), len(found.body)), found.subject, found.headers, found.body)
    return b"".join(parts)


def unpack(content: bytes) -> list[Outgoing]:
    """The messages of an outbox row."""
    found: list[Outgoing] = []
    at = 0
    while at < len(content):
        subject, headers, body = _LENGTHS.unpack_from(content, at)
        first = at + _LENGTHS.size
        second, third = first + subject, first + subject + headers
        at = third + body
        found.append(Outgoing(content[first:second], content[second:third], content[third:at]))
    return found
