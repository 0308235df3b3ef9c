"""Validation errors in plain English: the field, what is wrong with it, and what would be right.

Pure. Takes pydantic's error records (dicts) and the names that would have been known, gives sentences. Values are repeated only where they
are harmless: never those of `env` or `command`, which may be secrets.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from gpuyard_contracts.types import WRONG_FORM, form_told

from gpuyard_api.domain.suggest import nearest

SILENT = frozenset({"env", "command", "token", "headers"})
"""Fields whose values are never repeated."""

_LIMITS: dict[str, str] = {
    "greater_than": "must be above {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be below {lt}",
    "less_than_equal": "must be at most {le}",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "finite_number": "must be a finite number",
    "too_short": "must have at least {min_length} entries",
    "too_long": "must have at most {max_length} entries",
}
_KINDS: dict[str, str] = {
    "int": "a whole number",
    "bool": "true or false",
    "string": "text",
    "tuple": "a list",
    "list": "a list",
    "dict": "an object of names and values",
    "mapping": "an object of names and values",
    "model_attributes": "an object",
    "model": "an object",
    "float": "a number",
    "datetime": "an instant with offset, such as 2030-01-31T12:00:00Z",
    "timezone": "an instant with offset, such as 2030-01-31T12:00:00Z",
}

KnownFields = Callable[[tuple[Any, ...]], Collection[str]]
"""The names that are known at a place; empty where any name is."""


def sentence(error: Mapping[str, Any], known: KnownFields) -> tuple[str, str, str]:
    """Field, message and fix of one error record."""
    is_query = error["loc"][:1] == ("query",)  # there a name that is given several times is still one name
    place = tuple(
        part for part in error["loc"] if part not in ("body", "query", "path", "header") and not (is_query and isinstance(part, int))
    )
    field = ".".join(str(part) for part in place if part != "[key]" and not str(part).startswith(("function-", "constrained-")))
    kind = str(error["type"])
    if kind == "extra_forbidden":
        return field, "is not a known field", _known_name(place, known)
    if kind == "missing":
        return field or "the body", "is missing", ""
    if kind == "literal_error":
        return field, *_one_of(error, place)
    if kind in ("string_too_short", "too_short") and error.get("ctx", {}).get("min_length") == 1:
        return field, "must not be empty", ""
    if kind in _LIMITS:
        return field, _LIMITS[kind].format_map(_Limits(error.get("ctx", {}))) + _but(error, place), ""
    if kind == WRONG_FORM:
        return field, form_told(error), ""
    if kind == "value_error":
        return field, str(error["msg"]).removeprefix("Value error, "), ""
    for prefix, wanted in _KINDS.items():
        if kind.startswith(f"{prefix}_"):
            return field, f"must be {wanted}{_but(error, place)}", ""
    return field, str(error["msg"])[:300], ""


class _Limits(dict[str, Any]):
    def __missing__(self, key: str) -> str:
        return "the limit"


def _known_name(place: tuple[Any, ...], known: KnownFields) -> str:
    names = known(place[:-1])
    meant = nearest(str(place[-1]), names) if place else None
    if meant is not None:
        return f"did you mean '{meant}'?"
    return f"known here: {', '.join(sorted(names))}" if names else "remove it"


def _one_of(error: Mapping[str, Any], place: tuple[Any, ...]) -> tuple[str, str]:
    expected = str(error.get("ctx", {}).get("expected", ""))
    options = [part.strip().strip("'") for part in expected.replace(" or ", ", ").split(",") if part.strip()]
    given = error.get("input")
    meant = nearest(given, options) if isinstance(given, str) else None
    shown = _shown(given, place)
    message = f"{shown} is not one of {', '.join(options)}" if shown else f"must be one of {', '.join(options)}"
    return message, f"did you mean {meant}?" if meant else ""


def _but(error: Mapping[str, Any], place: tuple[Any, ...]) -> str:
    shown = _shown(error.get("input"), place)
    return f", but is {shown}" if shown else ""


def _shown(value: Any, place: tuple[Any, ...]) -> str:
    """A short harmless value as it was given; empty for anything else."""
    if SILENT & {str(part) for part in place} or not isinstance(value, str | int | float | bool | None):
        return ""
    text = {True: "true", False: "false", None: "null"}.get(value) if isinstance(value, bool | None) else repr(value)
    return text if text is not None and len(text) <= 60 else ""
