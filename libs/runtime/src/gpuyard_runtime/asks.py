"""Request and reply on core NATS: reading what was asked and writing the answer, or the refusal.

An answer's body is the reply class as JSON. A refusal carries the header ``problem`` with its reason, and its body is a ProblemV1.
"""

from collections.abc import Mapping
from typing import Any

from gpuyard_contracts import subjects
from gpuyard_contracts.envelope import MAX_BODY_BYTES, Ask, Malformed, Shape, explain
from gpuyard_contracts.messages.asks import ProblemV1
from pydantic import ValidationError
from pydantic_core import from_json

from gpuyard_runtime.faults import Poison, Refused, RetryLater, Unavailable

PROBLEM = "problem"


def read_ask(kind: type[Ask], subject: str, body: bytes) -> Ask:
    """What was asked; fields that the subject carries are taken from it and must not contradict the body. Raises Malformed only."""
    if len(body) > MAX_BODY_BYTES:
        raise Malformed("too-large", f"the body has {len(body)} bytes; at most {MAX_BODY_BYTES} are taken")
    try:
        content: Any = from_json(body or b"{}", allow_inf_nan=False)
    except ValueError as error:
        raise Malformed("bad-json", f"the body is not JSON: {str(error)[:200]}") from None
    if not isinstance(content, dict):
        raise Malformed("bad-json", f"the body is a JSON {type(content).__name__}; an object is wanted")
    for field, value in (subjects.read(kind.SUBJECT, subject) or {}).items():
        if content.setdefault(field, value) != value:
            raise Malformed("subject-mismatch", f"{field} is {str(content[field])[:80]!r} in the body, but {value!r} in the subject")
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        raise Malformed("invalid", explain(error)) from None


def write_answer(answer: Shape) -> tuple[dict[str, str], bytes]:
    """Headers and body of an answer."""
    return {}, answer.model_dump_json(exclude_none=True).encode()


def refusal_of(error: BaseException) -> Refused:
    """What the asker is told of an error: its own reason where it is a refusal, and nothing of our inside where it is not."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, (Poison, Malformed)):
        return Refused(error.reason, error.detail)
    if isinstance(error, (Unavailable, RetryLater)):
        return Refused("unavailable", "cannot be done just now; try again")
    return Refused("internal", f"failed with {type(error).__name__}")


def write_refusal(refused: Refused) -> tuple[dict[str, str], bytes]:
    """Headers and body of a refusal."""
    return {PROBLEM: refused.reason}, ProblemV1(problem=refused.reason, detail=refused.detail).model_dump_json().encode()


def read_answer(kind: type[Ask], headers: Mapping[str, str] | None, body: bytes) -> Shape:
    """The answer to an ask of this kind. Raises Refused for a refusal, and for an answer that cannot be read."""
    if headers and PROBLEM in headers:
        content: Any = from_json(body or b"{}")
        raise Refused(headers[PROBLEM], str(content.get("detail", "")))
    try:
        return kind.REPLY.model_validate_json(body)
    except ValidationError as error:
        raise Refused("bad-answer", explain(error)) from None
