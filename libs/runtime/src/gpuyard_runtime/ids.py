"""Ids and trace contexts that are computed, so that doing a thing again names it the same.

A trace context (W3C ``traceparent``) is ``00-<trace: 32 hex>-<span: 16 hex>-<flags>``. An event's span id comes from its own id, so a
repeated publish shows the same span and not a second one.
"""

from hashlib import sha1
from uuid import UUID

NAMESPACE = UUID("6f1c1c9e-2f0a-5d55-9b5e-3f0a6c1a7d11")
"""Keeps gpuyard's computed ids apart from everybody else's uuid5."""
_PREFIX = NAMESPACE.bytes


def derive(cause: str, kind: str, key: str) -> str:
    """The id of what `cause` makes of this kind under this key: the same three, the same id."""
    raw = bytearray(sha1(b"%b%b" % (_PREFIX, f"{cause}|{kind}|{key}".encode()), usedforsecurity=False).digest()[:16])
    raw[6] = raw[6] & 0x0F | 0x50  # this is uuid5 (RFC 9562), without the cost of a UUID object for each message
    raw[8] = raw[8] & 0x3F | 0x80
    digits = raw.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def child_of(traceparent: str | None, event_id: str) -> str:
    """The trace context of an event with this uuid: in its parent's trace, or the root of a new one."""
    own = event_id.replace("-", "")
    if traceparent is None:
        return f"00-{own}-{own[16:]}-01"
    return f"{traceparent[:36]}{own[16:]}{traceparent[52:]}"
