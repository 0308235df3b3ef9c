"""Tenants, tokens, operators and the audit log as they are seen over HTTP."""

from datetime import datetime
from typing import Annotated, Any, Literal

from gpuyard_contracts.types import Line, SlaClass, TenantId, matching
from pydantic import ConfigDict, Field

from gpuyard_api.domain.model import AuditRow, Tenant, Token
from gpuyard_api.views.shapes import AT, JOB, TENANT, Answer, Body, example

Weight = Annotated[int, Field(ge=0, le=1_000_000, strict=True)]
Quota = Annotated[int, Field(ge=0, le=2**40, strict=True)]
Cap = Annotated[int, Field(ge=0, le=10**9, strict=True)]
Version = Annotated[int, Field(ge=1, le=2**52, strict=True)]
TokenName = Annotated[str, matching(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", "a name of 1 to 63 letters, digits, '.', '_' and '-'")]

_SETTINGS: dict[str, Any] = {
    "name": "Acme Robotics",
    "sla": "gold",
    "weight": 100,
    "quota_gpu_milli": 8000,
    "quota_gpu_memory_mib": None,
    "guarantee_gpu_milli": 4000,
    "max_waiting": 10000,
    "max_requests_per_minute": 60000,
    "is_suspended": False,
}
_TENANT_EXAMPLE = {"tenant": TENANT, "version": 3, **_SETTINGS, "created_at": AT, "changed_at": AT}
_TOKEN_EXAMPLE = {
    "token_id": "tok-0f1e2d3c4b5a6978",
    "role": "tenant",
    "tenant": TENANT,
    "name": "ci",
    "hint": "gpy_Ab3d",
    "created_at": AT,
    "created_by": "operator/admin",
    "revoked_at": None,
}


class NewTenant(Body):
    """A tenant to be made. A quota of null is no limit, 0 is nothing; shares of a card count by thousandths and MiB.

    What a tenant holds above its guarantee is borrowed: tenants that are below theirs may take it back.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", json_schema_extra=example(tenant=TENANT, **_SETTINGS))

    tenant: TenantId
    name: Line | None = None
    """For people; the id where it is left out."""
    sla: SlaClass = "bronze"
    weight: Weight = 100
    quota_gpu_milli: Quota | None = None
    quota_gpu_memory_mib: Quota | None = None
    guarantee_gpu_milli: Quota = 0
    max_waiting: Cap = 10_000
    max_requests_per_minute: Cap = 60_000
    is_suspended: bool = False


class TenantChange(Body):
    """What is to change, and the version that it was decided on."""

    model_config = ConfigDict(frozen=True, extra="forbid", json_schema_extra=example(version=3, quota_gpu_milli=16000))

    version: Version
    name: Line | None = None
    sla: SlaClass | None = None
    weight: Weight | None = None
    quota_gpu_milli: Quota | None = None
    quota_gpu_memory_mib: Quota | None = None
    guarantee_gpu_milli: Quota | None = None
    max_waiting: Cap | None = None
    max_requests_per_minute: Cap | None = None
    is_suspended: bool | None = None

    def changes(self) -> dict[str, Any]:
        """What was given. Null is a value for quotas (no limit) and nothing for the others."""
        given = self.model_dump(include=self.model_fields_set - {"version"})
        return {field: value for field, value in given.items() if value is not None or field.startswith("quota_")}


class TenantView(Answer):
    """A tenant. `version` is what a change must name."""

    model_config = ConfigDict(frozen=True, json_schema_extra=example(**_TENANT_EXAMPLE))

    tenant: str
    version: int
    name: str
    sla: SlaClass
    weight: int
    quota_gpu_milli: int | None
    quota_gpu_memory_mib: int | None
    guarantee_gpu_milli: int
    max_waiting: int
    max_requests_per_minute: int
    is_suspended: bool
    created_at: datetime
    changed_at: datetime


class TenantList(Answer):
    """Tenants by id; a tenant's token sees its own only."""

    model_config = ConfigDict(frozen=True, json_schema_extra=example(tenants=[_TENANT_EXAMPLE]))

    tenants: list[TenantView]


def tenant_view(row: Tenant) -> TenantView:
    """A tenant."""
    return TenantView.model_validate(row, from_attributes=True)


class NewToken(Body):
    """What the token is for."""

    model_config = ConfigDict(frozen=True, extra="forbid", json_schema_extra=example(name="ci"))

    name: TokenName


class TokenView(Answer):
    """A token without its secret."""

    model_config = ConfigDict(frozen=True, json_schema_extra=example(**_TOKEN_EXAMPLE))

    token_id: str
    role: Literal["admin", "tenant"]
    tenant: str | None
    name: str
    hint: str
    created_at: datetime
    created_by: str
    revoked_at: datetime | None


class MadeToken(TokenView):
    """A new token with its secret, which is shown this once and kept nowhere."""

    model_config = ConfigDict(frozen=True, json_schema_extra=example(**_TOKEN_EXAMPLE, token="gpy_…43 characters…"))  # noqa: S106

    token: str


class TokenList(Answer):
    """Tokens, the oldest first, without their secrets."""

    model_config = ConfigDict(frozen=True, json_schema_extra=example(tokens=[_TOKEN_EXAMPLE]))

    tokens: list[TokenView]


def token_view(row: Token) -> TokenView:
    """A token without its secret."""
    return TokenView.model_validate(row, from_attributes=True)


def made_token(row: Token, secret: str) -> MadeToken:
    """A token with its secret."""
    return MadeToken.model_validate({**token_view(row).model_dump(), "token": secret})


class MeView(Answer):
    """Whose token this is."""

    model_config = ConfigDict(
        frozen=True, json_schema_extra=example(actor="tenant/acme/ci", role="tenant", tenant=TENANT, token_id=_TOKEN_EXAMPLE["token_id"])
    )

    actor: str
    role: Literal["admin", "tenant"]
    tenant: str | None
    token_id: str


class AuditView(Answer):
    """One write act. `result` is ``done`` or the code of the problem that was answered."""

    seq: int
    at: datetime
    actor: str
    tenant: str | None
    action: str
    target: str
    result: str
    detail: str


class AuditPage(Answer):
    """The audit log, the youngest first. `next_before` continues it; None: there is no more."""

    model_config = ConfigDict(
        frozen=True,
        json_schema_extra=example(
            entries=[
                {
                    "seq": 7,
                    "at": AT,
                    "actor": "tenant/acme/ci",
                    "tenant": TENANT,
                    "action": "job.submit",
                    "target": JOB,
                    "result": "done",
                    "detail": "",
                }
            ],
            next_before=None,
        ),
    )

    entries: list[AuditView]
    next_before: int | None


def audit_view(row: AuditRow) -> AuditView:
    """One write act."""
    return AuditView.model_validate(row, from_attributes=True)
