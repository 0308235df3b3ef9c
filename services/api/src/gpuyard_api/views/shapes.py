"""What all views stand on: bodies refuse unknown fields, answers and bodies show an example."""

from typing import Any

from pydantic import BaseModel, ConfigDict


def example(**values: Any) -> dict[str, Any]:
    """The schema's example."""
    return {"examples": [values]}


class Answer(BaseModel):
    """What is answered."""

    model_config = ConfigDict(frozen=True)


class Body(BaseModel):
    """What is sent; a field that is not known is refused by name."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class FieldErrorView(Answer):
    """One field with what is wrong and how to put it right."""

    field: str
    message: str
    fix: str = ""


class ProblemView(BaseModel):
    """A problem (RFC 9457). `code` is stable and made for programs; the texts are for people."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra=example(
            type="urn:gpuyard:problem:invalid-request",
            title="The request is not valid",
            status=422,
            code="invalid-request",
            detail="priority: 'urgent' is not one of low, normal, high; did you mean high?",
            errors=[{"field": "priority", "message": "'urgent' is not one of low, normal, high", "fix": "did you mean high?"}],
        ),
    )

    type: str
    title: str
    status: int
    code: str
    detail: str
    errors: list[FieldErrorView] = []


TENANT = "acme"
JOB = "job-3xk5q2m7vtzlnab6"
NODE = "a100-01"
GPU = "GPU-5c0f2f8e-0001"
AT = "2030-01-31T12:00:00Z"
SPEC: dict[str, Any] = {
    "name": "train",
    "command": ["python", "train.py"],
    "gpu": {"count": 2, "models": ["A100-80GB"]},
    "max_seconds": 3600,
}
