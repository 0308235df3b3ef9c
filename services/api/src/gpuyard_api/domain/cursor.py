"""Opaque cursors: the sort key of the last row of a page, so that rows that come or go in between neither repeat nor skip any."""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import datetime

MAX_LENGTH = 200


def of_row(at: datetime, key: str) -> str:
    """The cursor that stands after the row with this instant and key."""
    return urlsafe_b64encode(json.dumps([at.isoformat(), key]).encode()).decode().rstrip("=")


def read(cursor: str) -> tuple[datetime, str]:
    """Instant and key of a cursor. Raises ValueError for anything that :func:`of_row` did not make."""
    if len(cursor) > MAX_LENGTH:
        raise ValueError("is no cursor of this API")
    try:
        at, key = json.loads(urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        instant = datetime.fromisoformat(at)
    except (ValueError, TypeError):
        raise ValueError("is no cursor of this API") from None
    if instant.tzinfo is None or not isinstance(key, str) or not key.isascii() or not key.isprintable():
        raise ValueError("is no cursor of this API")
    return instant, key
