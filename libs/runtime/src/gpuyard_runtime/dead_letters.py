"""The letter that is sent when a message cannot be handled: all that is needed to look at it and to send it again."""

from base64 import b64encode
from collections.abc import Mapping
from typing import ClassVar

from gpuyard_contracts.envelope import Payload

MAX_DETAIL = 2000
MAX_BODY_BYTES = 256 * 1024
"""Bodies above this are cut in the letter; the message itself still lies in its stream under `sequence`."""


class DeadLetterV1(Payload):
    """One message that a service gave up on. `body` is text; `body_base64` holds it where it is no UTF-8."""

    SUBJECT: ClassVar[str] = "gpuyard.dlq.{service}"

    service: str
    original_subject: str
    stream: str
    sequence: int
    reason: str
    detail: str
    headers: dict[str, str]
    body: str | None = None
    body_base64: str | None = None
    is_cut: bool = False


def letter(
    service: str, subject: str, stream: str, sequence: int, reason: str, detail: str, headers: Mapping[str, str] | None, body: bytes
) -> DeadLetterV1:
    """The dead letter of one delivery."""
    cut = body[:MAX_BODY_BYTES]
    try:
        text, raw = cut.decode(), None
    except UnicodeDecodeError:
        text, raw = None, b64encode(cut).decode()
    return DeadLetterV1(
        service=service,
        original_subject=subject,
        stream=stream,
        sequence=sequence,
        reason=reason,
        detail=detail[:MAX_DETAIL],
        headers={name: str(value)[:MAX_DETAIL] for name, value in (headers or {}).items()},
        body=text,
        body_base64=raw,
        is_cut=len(cut) < len(body),
    )
