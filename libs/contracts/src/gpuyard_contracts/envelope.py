"""What a message is: a frozen payload in a CloudEvents envelope (binary mode: attributes are headers, the body is the payload).

Three kinds share one way of naming: :class:`Payload` travels through JetStream, :class:`Ask` is answered on core NATS. A class says
its subject as a template over its own fields; :mod:`gpuyard_contracts.subjects` builds and reads subjects from it. Decoding
never raises anything but :class:`Malformed`, whatever a stranger put on the bus.
"""

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, lru_cache
from types import ModuleType
from typing import Any, ClassVar, Generic, TypeVar
from uuid import NAMESPACE_URL, uuid5

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import from_json

from gpuyard_contracts import subjects, upcast
from gpuyard_contracts.types import WRONG_FORM, form_told, within_calendar

MAX_BODY_BYTES = 512 * 1024
"""Bodies above this are refused at every door (the server's own limit is 1 MiB, headers included)."""

MAX_ID_LENGTH = 128

TRACEPARENT = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
"""W3C trace context, version 00."""


class Shape(BaseModel):
    """A frozen part of a message. Unknown fields are ignored: a reader lives through additions."""

    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_inf_nan="strings", allow_inf_nan=False)


class Message(Shape):
    """What every message class says of itself."""

    SUBJECT: ClassVar[str] = ""
    TYPE: ClassVar[str] = ""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        if cls.SUBJECT:
            cls.TYPE = subjects.type_of_template(cls.SUBJECT)

    def subject(self) -> str:
        """The subject that this very message is published on."""
        return subjects.build(self.SUBJECT, self)


class Payload(Message):
    """The body of a message on a stream."""

    def correlation(self) -> str | None:
        """What the message belongs to: its job, where it has one."""
        value = self.__dict__.get("job_id")  # pydantic's `getattr` of a field that is not there costs ten times as much
        return value if isinstance(value, str) else None


class Ask(Message):
    """The body of a request on core NATS; `REPLY` is the class of its answer."""

    REPLY: ClassVar[type[Shape]]


P = TypeVar("P", bound=Payload, covariant=True)


class Malformed(Exception):
    """This message cannot be read."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Envelope(Generic[P]):
    """One message: CloudEvents attributes plus gpuyard's chain of causes.

    `id` is deterministic where an event can be emitted twice. `correlation_id` is what it belongs to (a job), `causation_id` the id
    of the message that made it, `traceparent` W3C trace context. `raw` is the body as it was received, where it
    says the payload completely and in today's form.
    """

    id: str
    source: str
    time: datetime
    data: P
    subject: str = ""
    correlation_id: str | None = None
    causation_id: str | None = None
    traceparent: str | None = None
    raw: bytes | None = dataclasses.field(default=None, compare=False, repr=False)

    @property
    def type(self) -> str:
        """The message's type, such as ``gpuyard.evt.scheduler.job.queued.v1``."""
        return self.data.TYPE

    @property
    def inbox_key(self) -> str:
        """What makes a second delivery recognisable. A request's id is its tenant's own, so its key carries the tenant."""
        if self.type.startswith("gpuyard.req."):
            return f"{getattr(self.data, 'tenant', '')}/{self.id}"
        return self.id

    def headers(self) -> dict[str, str]:
        """Headers for the bus; `Nats-Msg-Id` for services only (see `inbox_key`)."""
        kind = self.data.TYPE
        found = {
            "ce-specversion": "1.0",
            "ce-id": self.id,
            "ce-type": kind,
            "ce-source": self.source,
            "ce-time": _stamp(self.time),
        }
        if not kind.startswith("gpuyard.req."):
            found["Nats-Msg-Id"] = self.id
        if self.correlation_id is not None:
            found["correlation_id"] = self.correlation_id
        if self.causation_id is not None:
            found["causation_id"] = self.causation_id
        if self.traceparent is not None:
            found["traceparent"] = self.traceparent
        return found

    def body(self) -> bytes:
        """The payload as JSON."""
        return self.data.model_dump_json(exclude_none=True).encode()


def decode(subject: str, headers: Mapping[str, str] | None, body: bytes, *, sequence: int, arrived: datetime) -> Envelope[Payload]:
    """Read one message of a stream.

    `sequence` and `arrived` are the stream's: they stand in for an id or a time that a plain publisher left out. Fields that the subject
    carries are taken from it and must not contradict the body. Raises :class:`Malformed` only.
    """
    given = headers or {}
    kind, wanted = _catalog().find(subject)
    if kind is None:
        raise Malformed("unknown-type", f"no message of this version is published on {subject[:200]!r}")
    if len(body) > MAX_BODY_BYTES:
        raise Malformed("too-large", f"the body has {len(body)} bytes; at most {MAX_BODY_BYTES} are taken")
    plain = _read_plain(kind, wanted, body)
    data = plain or _read_with_care(kind, wanted, body)
    return Envelope(
        id=_id(given, subject, sequence),
        source=given.get("ce-source", "")[:MAX_ID_LENGTH] or "unknown",
        time=_time(given.get("ce-time"), arrived),
        data=data,
        subject=subject,
        correlation_id=given.get("correlation_id", "")[:MAX_ID_LENGTH] or data.correlation(),
        causation_id=given.get("causation_id", "")[:MAX_ID_LENGTH] or None,
        traceparent=_traceparent(given.get("traceparent")),
        raw=None if plain is None else body,
    )


@lru_cache(maxsize=64)
def _stamp(time: datetime) -> str:
    """An instant as it travels: in UTC. All that one unit of work says has the same."""
    return time.astimezone(UTC).isoformat()


@cache
def _catalog() -> ModuleType:
    """The catalog imports this module, so it is found at the first message and not at the import."""
    from gpuyard_contracts import catalog

    return catalog


def _read_plain(kind: type[P], wanted: Mapping[str, str], body: bytes) -> P | None:
    """The usual message: today's form, complete, in agreement with its subject. Validated straight from its bytes, which takes half the
    time of going through Python's values. None for any other, which :func:`_read_with_care` then judges."""
    if kind.TYPE in upcast.UPCASTERS:
        return None
    try:
        data = kind.model_validate_json(body)
    except ValidationError:
        return None
    values = data.__dict__
    for field, value in wanted.items():
        if str(values[field]) != value:  # a rank is a number in the body
            return None
    return data


def _read_with_care(kind: type[P], wanted: Mapping[str, str], body: bytes) -> P:
    """Step by step, so that old forms are lifted, what the subject carries is filled in, and what is wrong is named. Raises Malformed."""
    content = upcast.up(kind, _object(body))
    for field, value in wanted.items():
        if str(content.setdefault(field, value)) != value:
            raise Malformed("subject-mismatch", f"{field} is {str(content[field])[:80]!r} in the body, but {value!r} in the subject")
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        raise Malformed("invalid", explain(error)) from None


def explain(error: ValidationError) -> str:
    """A validation error as a person reads it: every field with what is wrong, at most five of them."""
    told = [
        f"{'.'.join(str(part) for part in found['loc']) or 'the message'}: {_plain(found)}" for found in error.errors(include_url=False)
    ]
    return "; ".join(told[:5]) + (f"; and {len(told) - 5} more" if len(told) > 5 else "")


def _plain(found: Any) -> str:
    message = str(found["msg"]).removeprefix("Value error, ")
    if found["type"] == WRONG_FORM:
        return form_told(found)
    if found["type"] == "missing":
        return "is missing"
    if found["type"] == "extra_forbidden":
        return "is not a known field"
    shown = repr(found.get("input"))
    return message if len(shown) > 60 or shown in message else f"{message}, but is {shown}"


def _object(body: bytes) -> dict[str, Any]:
    try:
        content = from_json(body or b"{}", allow_inf_nan=False)
    except ValueError as error:
        raise Malformed("bad-json", f"the body is not JSON: {str(error)[:200]}") from None
    if not isinstance(content, dict):
        raise Malformed("bad-json", f"the body is a JSON {type(content).__name__}; an object is wanted")
    return content


def _id(headers: Mapping[str, str], subject: str, sequence: int) -> str:
    """The given id if it is one; else one from the place in the stream, which is the same at every delivery."""
    given = headers.get("ce-id", "")
    if given and len(given) <= MAX_ID_LENGTH and given.isascii() and given.isprintable() and " " not in given:
        return given
    return str(uuid5(NAMESPACE_URL, f"{subject}#{sequence}"))


def _time(given: str | None, arrived: datetime) -> datetime:
    try:
        told = datetime.fromisoformat(given) if given else arrived
        return arrived if told.tzinfo is None else within_calendar(told)
    except ValueError:
        return arrived


def _traceparent(given: str | None) -> str | None:
    return given if given and TRACEPARENT.fullmatch(given) else None
