"""``/v1/tenants``: who shares the fleet, how much of it is theirs, and their tokens."""

from fastapi import APIRouter
from starlette.responses import Response

from gpuyard_api import acts, problems
from gpuyard_api.admin_file import new_token
from gpuyard_api.domain.access import Principal
from gpuyard_api.domain.model import Tenant
from gpuyard_api.http.answers import problem_responses
from gpuyard_api.http.context import Operator, TheYard, Who, Yard, bearer
from gpuyard_api.views.tenants import (
    MadeToken,
    NewTenant,
    NewToken,
    TenantChange,
    TenantList,
    TenantView,
    TokenList,
    TokenView,
    made_token,
    tenant_view,
    token_view,
)

router = APIRouter(prefix="/v1/tenants", tags=["tenants"], dependencies=[bearer])


@router.get("", summary="List tenants", response_model=TenantList, responses=problem_responses())
async def list_tenants(who: Who, yard: TheYard) -> TenantList:
    """Tenants by id; a tenant's token sees its own."""
    rows = sorted(yard.engine.store.tenants.values(), key=lambda row: row.tenant)
    return TenantList(tenants=[tenant_view(row) for row in rows if who.may_see(row.tenant)])


@router.post("", status_code=201, summary="Make a tenant", response_model=TenantView, responses=problem_responses(403, 409, 422))
async def create_tenant(body: NewTenant, who: Operator, yard: TheYard) -> TenantView:
    """A new tenant. The same one again is answered as it is; one of this id with other settings is a conflict."""
    wanted = body.model_dump() | {"name": body.name or body.tenant}
    return tenant_view(await yard.act(acts.create_tenant(who, wanted)))


def visible_tenant(yard: Yard, who: Principal, tenant: str) -> Tenant:
    """The tenant. Raises Problem 404 for an unknown one and for another's alike."""
    row = yard.engine.store.tenants.get(tenant)
    if row is None or not who.may_see(tenant):
        raise problems.not_found("tenant", tenant)
    return row


@router.get("/{tenant}", summary="One tenant", response_model=TenantView, responses=problem_responses(404))
async def get_tenant(tenant: str, who: Who, yard: TheYard) -> TenantView:
    """The tenant's settings and their version."""
    return tenant_view(visible_tenant(yard, who, tenant))


@router.patch("/{tenant}", summary="Change a tenant", response_model=TenantView, responses=problem_responses(403, 404, 409, 422))
async def change_tenant(tenant: str, body: TenantChange, who: Operator, yard: TheYard) -> TenantView:
    """Change what is given, if nobody has changed the tenant since `version`. A quota of null is no limit."""
    return tenant_view(await yard.act(acts.change_tenant(who, tenant, body.version, body.changes())))


@router.get("/{tenant}/tokens", summary="List a tenant's tokens", response_model=TokenList, responses=problem_responses(404))
async def list_tokens(tenant: str, who: Who, yard: TheYard) -> TokenList:
    """The tenant's tokens, the oldest first, without their secrets."""
    visible_tenant(yard, who, tenant)
    rows = sorted(yard.engine.store.tokens_of.get(tenant), key=lambda row: (row.created_at, row.token_id))
    return TokenList(tokens=[token_view(row) for row in rows])


@router.post(
    "/{tenant}/tokens", status_code=201, summary="Make a token", response_model=MadeToken, responses=problem_responses(403, 404, 422)
)
async def create_token(tenant: str, body: NewToken, who: Operator, yard: TheYard, response: Response) -> MadeToken:
    """A new token for the tenant. Its secret is in this answer and nowhere else."""
    secret = new_token()
    row = await yard.act(acts.create_token(who, tenant, body.name, secret))
    response.headers["Cache-Control"] = "no-store"
    return made_token(row, secret)


@router.delete("/{tenant}/tokens/{token_id}", summary="Revoke a token", response_model=TokenView, responses=problem_responses(403, 404))
async def revoke_token(tenant: str, token_id: str, who: Operator, yard: TheYard) -> TokenView:
    """The token stops working at once; streams opened with it end within seconds."""
    visible_tenant(yard, who, tenant)
    return token_view(await yard.act(acts.revoke_token(who, tenant, token_id)))
