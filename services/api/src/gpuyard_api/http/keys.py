"""Idempotency keys: a caller's name for one request, so that asking again after a lost answer asks for the same."""

import re
from typing import Annotated
from uuid import uuid4

from fastapi import Header

from gpuyard_api import problems
from gpuyard_api.domain.secret import request_id_of
from gpuyard_api.problems import FieldError

IdempotencyKey = Annotated[
    str | None,
    Header(description="Names the request (1 to 255 printable ASCII characters): the same key and body again is the same request."),
]
_KEY = re.compile(r"[!-~]([ -~]{0,253}[!-~])?")


def request_id_for(key: str | None) -> str:
    """The request id under a caller's key; a new one without a key. Raises Problem 422 for a key that is none."""
    if key is None:
        return f"req-{uuid4().hex}"
    if _KEY.fullmatch(key) is None:
        raise problems.invalid(FieldError("Idempotency-Key", "must be 1 to 255 printable ASCII characters", "a UUID is a good one"))
    return request_id_of(key)
