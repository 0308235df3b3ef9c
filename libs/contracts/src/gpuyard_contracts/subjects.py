"""Subjects, built and read in one place.

A message class carries a template such as ``gpuyard.evt.scheduler.job.queued.v1.{tenant}.{job_id}``. Its type is the
template without the placeholders, up to and including the version.
"""

import re
from functools import lru_cache
from typing import Any

_PLACE = re.compile(r"\{([a-z_]+)\}")
_SAFE = re.compile(r"[A-Za-z0-9_-]+")

NOBODY = "_"
"""Stands where a subject has a tenant and the message has none."""


def fields_of(template: str) -> tuple[str, ...]:
    """The fields that a template takes from its message, in order."""
    return tuple(_PLACE.findall(template))


@lru_cache(maxsize=512)
def type_of_template(template: str) -> str:
    """``gpuyard.req.{tenant}.job.submit.v1`` → ``gpuyard.req.job.submit.v1``."""
    return ".".join(part for part in template.split(".") if not part.startswith("{") and part != NOBODY)


@lru_cache(maxsize=512)
def _format(template: str) -> tuple[str, tuple[str, ...]]:
    """The template as a %-format, and its fields."""
    return _PLACE.sub("%s", template.replace("%", "%%")), fields_of(template)


def build(template: str, message: Any) -> str:
    """The subject of one message. Raises ValueError for a field that is no safe token."""
    pattern, names = _format(template)
    return pattern % tuple([_safe(name, getattr(message, name)) for name in names])


@lru_cache(maxsize=8192)
def _safe(name: str, value: object) -> str:
    """The value as a token; the same few come in one message after the other."""
    token = str(value)
    if _SAFE.fullmatch(token) is None:
        raise ValueError(f"{name}={token!r} cannot be a subject token")
    return token


@lru_cache(maxsize=512)
def _pattern(template: str) -> re.Pattern[str]:
    parts = (f"(?P<{found[1]}>[^.]+)" if (found := _PLACE.fullmatch(part)) else re.escape(part) for part in template.split("."))
    return re.compile(r"\.".join(parts))


def read(template: str, subject: str) -> dict[str, str] | None:
    """The fields that a subject carries, or None where it is not of this template."""
    found = _pattern(template).fullmatch(subject)
    return None if found is None else found.groupdict()


def wildcard(template: str, **known: str) -> str:
    """The template as a NATS filter: known fields in place, ``*`` for the others."""
    return _PLACE.sub(lambda found: known.get(found[1], "*"), template)
