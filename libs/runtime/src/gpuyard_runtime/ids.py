"""Ids and trace contexts that are computed, so that doing a thing again names it the same.

A trace context (W3C ``traceparent``) is ``00-<trace: 32 hex>-<span: 16 hex>-<flags>``. An event's span id comes from its own id, so a
repeated publish shows the same span and not a second one.
"""

from hashlib import sha1
from uuid import UUID

NAMESPACE = UUID("6f1c1c9e-2f0a-5d55-9b5e-3f0a6c1a7d11")
"""Keeps gpuyard's computed ids apart from everybody else's uuid5."""
_PREFIX = NAMESPACE.bytes
_VARIANT = {digit: f"{int(digit, 16) & 3 | 8:x}" for digit in "0123456789abcdef"}


def derive(cause: str, kind: str, key: str) -> str:
    """The id of what `cause` makes of this kind under this key: the same three, the same id."""
    digits = sha1(b"%b%b" % (_PREFIX, f"{cause}|{kind}|{key}".encode()), usedforsecurity=False).hexdigest()
    # This is uuid5 (RFC 9562), without the cost of a UUID object for each message: the version, and two bits of the variant.
    return f"{digits[:8]}-{digits[8:12]}-5{digits[13:16]}-{_VARIANT[digits[16]]}{digits[17:20]}-{digits[20:32]}"


def child_of(traceparent: str | None, event_id: str) -> str:
    """The trace context of an event with this uuid: in its parent's trace, or the root of a new one."""
    own = event_id.replace("-", "")
    if traceparent is None:
        return f"00-{own}-{own[16:]}-01"
    return f"{traceparent[:36]}{own[16:]}{traceparent[52:]}"
