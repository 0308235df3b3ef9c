"""Value types: what an id, an amount or a text may be.

Ids are safe as NATS subject tokens, as file names and as label values at once; capacity and money are integers in the unit that
the name ends with. Free text from people or programs is checked once here, so that no store behind it can choke on a character.
"""

import hashlib
import re
from base64 import b32encode
from collections.abc import Mapping
from datetime import MAXYEAR, UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AwareDatetime, BeforeValidator, Field, GetCoreSchemaHandler, StringConstraints
from pydantic_core import core_schema

MAX_INT64 = 2**63 - 1

SHARE_FULL_MILLI = 1000
"""A whole GPU in milli-GPU."""


WRONG_FORM = "wrong_form"
"""The type of pydantic's error where a text has not the form that its type wants: tell it by :func:`form_told`."""


class _Pattern:
    """A check of a text that pydantic's core makes by itself, which takes a quarter of the time of a function; `says` is the error."""

    def __init__(self, pattern: str, error_type: str, says: str) -> None:
        self._pattern = pattern
        self._error_type = error_type
        self._says = says.replace("{", "{{").replace("}", "}}")

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        form = core_schema.str_schema(pattern=self._pattern)
        return core_schema.chain_schema(
            [handler(source), core_schema.custom_error_schema(form, self._error_type, custom_error_message=self._says)]
        )


def matching(pattern: str, says: str) -> _Pattern:
    """A check that the whole text has this form (without look-around); `says` finishes the sentence "… is not" for people."""
    return _Pattern(f"^(?:{pattern})$", WRONG_FORM, f"is not {says}")


def form_told(error: Mapping[str, Any]) -> str:
    """A `WRONG_FORM` error as a person reads it: the text, and what it is not."""
    return f"{error['input'][:80]!r} {error['msg']}"


_SLUG = r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?"
_NODE = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"

TenantId = Annotated[str, matching(_SLUG, "a tenant id: 1 to 40 lower-case letters, digits and inner hyphens, such as 'acme' or 'team-7'")]
NodeId = Annotated[str, matching(_NODE, "a node id: 1 to 63 lower-case letters, digits and inner hyphens, such as 'a100-01'")]
JobId = Annotated[str, matching(r"job-[a-z2-7]{16}", "a job id, such as 'job-abcdefghijklmnop'")]
AllocationId = Annotated[str, matching(r"job-[a-z2-7]{16}-[0-9]{1,6}", "an allocation id: the job id, a hyphen and the attempt")]
GpuUuid = Annotated[str, matching(r"[A-Za-z0-9][A-Za-z0-9-]{0,79}", "a GPU UUID, such as 'GPU-5c0f…'")]
IncidentId = Annotated[str, matching(r"inc-[a-z2-7]{16}", "an incident id")]
RequestId = Annotated[str, matching(r"[!-~]{1,128}", "a request id: 1 to 128 printable ASCII characters without spaces")]
Token = Annotated[str, matching(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}", "a name of 1 to 63 letters, digits, '_' and '-'")]
GpuModel = Annotated[str, matching(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,62}", "a GPU model, such as 'A100-80GB'")]
LabelKey = Annotated[
    str, matching(r"[A-Za-z0-9]([A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?", "a label key: letters, digits, '.', '_', '/' and '-'")
]

Mib = Annotated[int, Field(ge=0, le=2**40, strict=True)]
Milli = Annotated[int, Field(ge=0, le=2**40, strict=True)]
Micros = Annotated[int, Field(ge=-MAX_INT64, le=MAX_INT64, strict=True)]
Millis = Annotated[int, Field(ge=0, le=2**52, strict=True)]
Count = Annotated[int, Field(ge=0, le=2**52, strict=True)]
Attempt = Annotated[int, Field(ge=1, le=999_999, strict=True)]
Rank = Annotated[int, Field(ge=0, le=4095, strict=True)]

_NUL_OR_LONE = re.compile(r"[\x00\ud800-\udfff]")
_LAST_CHARACTERS = 4000

_one_line = _Pattern(r"^[^\x00-\x1f\x7f]*$", "control_character", "must be one line without control characters")
_no_nul = _Pattern(r"^[^\x00]*$", "nul", "must not contain NUL or half of a surrogate pair")


def _scrub(value: Any) -> Any:
    """What programs print is kept as well as a database can: NUL and lone surrogates become U+FFFD, the end is what matters."""
    if not isinstance(value, str) or (len(value) <= _LAST_CHARACTERS and value.isprintable()):
        return value
    return _NUL_OR_LONE.sub("\ufffd", value)[-_LAST_CHARACTERS:]


Line = Annotated[str, StringConstraints(min_length=1, max_length=120), _one_line]
"""One line that a person wrote: a name, a holder."""
Reason = Annotated[str, StringConstraints(max_length=500), _no_nul]
"""Why a person acts; refused when a store could not hold it."""
Detail = Annotated[str, BeforeValidator(_scrub)]
"""What a program says for people: repaired instead of refused, since losing the event would be worse than losing a character."""
Plain = Annotated[str, _no_nul]
"""Any text without NUL: an argument, a value of the environment."""

Labels = Annotated[
    Mapping[LabelKey, Annotated[str, StringConstraints(max_length=120), _one_line]],
    Field(max_length=64),
]


def within_calendar(value: datetime) -> datetime:
    """The instant, if it has a UTC date: what lies hours before year 1 or after 9999 by its offset can be neither stored nor told.

    Raises ValueError.
    """
    if 1 < value.year < MAXYEAR:
        return value
    try:
        value.astimezone(UTC)
    except OverflowError:
        raise ValueError("has no date in UTC") from None
    return value


Instant = Annotated[AwareDatetime, AfterValidator(within_calendar)]
"""An instant with its offset; naive ones are refused."""

PriorityClass = Literal["low", "normal", "high"]
SlaClass = Literal["gold", "silver", "bronze"]


def short_hash(*parts: str) -> str:
    """16 base-32 characters (80 bits) of the parts' SHA-256; parts are length-prefixed, so ('ab','c') and ('a','bc') differ."""
    digest = hashlib.sha256()
    for part in parts:
        raw = part.encode()
        digest.update(len(raw).to_bytes(4, "big") + raw)
    return b32encode(digest.digest()[:10]).decode().lower()


def job_id_of(tenant: str, request_id: str) -> str:
    """The id of the job that a tenant's request makes: the same request always names the same job, whoever computes it."""
    return f"job-{short_hash('job', tenant, request_id)}"


def allocation_id_of(job_id: str, attempt: int) -> str:
    """The id of one attempt's hold on hardware; the attempt is the fencing epoch."""
    return f"{job_id}-{attempt}"


def incident_id_of(node_id: str, kind: str, gpu_uuid: str, opened_at: datetime) -> str:
    """The id of one opening of a fault: the same fault opened at the same instant is the same incident."""
    return f"inc-{short_hash(node_id, kind, gpu_uuid, opened_at.astimezone(UTC).isoformat())}"
