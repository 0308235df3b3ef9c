"""What is answered when something cannot be done: ``application/problem+json`` (RFC 9457) with a stable `code`.

A :class:`Problem` is raised or returned where it is found; :mod:`gpuyard_api.http.answers` renders it. Codes never change their meaning;
texts may. No text repeats a secret: values of `env` and `command`, headers and tokens are never shown.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MEDIA_TYPE = "application/problem+json"


@dataclass(frozen=True, slots=True)
class FieldError:
    """One field with what is wrong and how to put it right."""

    field: str
    message: str
    fix: str = ""


class Problem(Exception):
    """Cannot be done, for this reason."""

    def __init__(
        self,
        status: int,
        code: str,
        title: str,
        detail: str = "",
        *,
        errors: tuple[FieldError, ...] = (),
        extra: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(f"{code}: {detail or title}")
        self.status = status
        self.code = code
        self.title = title
        self.detail = detail
        self.errors = errors
        self.extra = dict(extra or {})
        self.headers = dict(headers or {})

    def content(self) -> dict[str, Any]:
        """The body."""
        told = [{"field": error.field, "message": error.message, "fix": error.fix} for error in self.errors]
        return {
            "type": f"urn:gpuyard:problem:{self.code}",
            "title": self.title,
            "status": self.status,
            "code": self.code,
            "detail": self.detail or self.title,
            **({"errors": told} if told else {}),
            **self.extra,
        }


def not_found(what: str, name: str) -> Problem:
    """There is none of this name, or it is somebody else's: the two look the same."""
    return Problem(404, "not-found", f"No such {what}", f"There is no {what} {shown(name)!r} that you may see.")


def forbidden(detail: str) -> Problem:
    """The token is good but may not do this."""
    return Problem(403, "forbidden", "Not permitted", detail)


def unauthenticated(detail: str) -> Problem:
    """No token, or one that does not work."""
    return Problem(401, "unauthenticated", "A token is needed", detail, headers={"WWW-Authenticate": 'Bearer realm="gpuyard"'})


def unavailable(who: str, detail: str) -> Problem:
    """Something behind api does not answer; `who` names it (``database``, ``bus``, a service)."""
    return Problem(503, f"{who}-unavailable", f"The {who} does not answer", detail, extra={"retryable": True}, headers={"Retry-After": "2"})


def invalid(*errors: FieldError) -> Problem:
    """The request was understood and its content is wrong."""
    detail = "; ".join(_sentence(error) for error in errors[:5])
    return Problem(422, "invalid-request", "The request is not valid", detail, errors=errors)


def conflict(code: str, title: str, detail: str, **extra: Any) -> Problem:
    """The present state does not allow it."""
    return Problem(409, code, title, detail, extra=extra)


def rejected(job_id: str, reason: str, detail: str) -> Problem:
    """The scheduler did not take the job."""
    told = detail or f"The scheduler did not take the job: {reason}."
    return Problem(422, "job-rejected", "The job was not taken", told, extra={"reason": reason, "job_id": job_id})


def _sentence(error: FieldError) -> str:
    fix = f"; {error.fix}" if error.fix else ""
    return f"{error.field}: {error.message}{fix}" if error.field else f"{error.message}{fix}"


def shown(text: str) -> str:
    """A name as it was given, safe to repeat."""
    return text[:80].encode("ascii", "backslashreplace").decode()
