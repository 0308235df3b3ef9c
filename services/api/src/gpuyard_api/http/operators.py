"""Operators, the caller's own token, and the audit log."""

from typing import Annotated

from fastapi import APIRouter, Query
from gpuyard_contracts.types import MAX_INT64
from starlette.responses import Response

from gpuyard_api import acts
from gpuyard_api.admin_file import new_token
from gpuyard_api.http.answers import problem_responses
from gpuyard_api.http.context import Operator, TheYard, Who, bearer
from gpuyard_api.views.tenants import AuditPage, MadeToken, MeView, NewToken, TokenList, TokenView, audit_view, made_token, token_view

router = APIRouter(prefix="/v1", tags=["operators"], dependencies=[bearer])


@router.get("/me", summary="Whose token this is", response_model=MeView, responses=problem_responses())
async def me(who: Who) -> MeView:
    """Who the API takes the caller for."""
    return MeView(actor=who.actor, role=who.token.role, tenant=who.tenant, token_id=who.token.token_id)


@router.post("/me/rotate", status_code=201, summary="Replace one's own token", response_model=MadeToken, responses=problem_responses())
async def rotate(who: Who, yard: TheYard, response: Response) -> MadeToken:
    """A new token with the same rights; the one that was sent stops working in the same moment."""
    secret = new_token()
    row = await yard.act(acts.rotate_token(who, secret))
    response.headers["Cache-Control"] = "no-store"
    return made_token(row, secret)


@router.get("/operators", summary="List operators' tokens", response_model=TokenList, responses=problem_responses(403))
async def list_operators(who: Operator, yard: TheYard) -> TokenList:
    """Operators' tokens, the oldest first, without their secrets."""
    rows = sorted(yard.engine.store.tokens_of.get(""), key=lambda row: (row.created_at, row.token_id))
    return TokenList(tokens=[token_view(row) for row in rows])


@router.post(
    "/operators", status_code=201, summary="Make an operator's token", response_model=MadeToken, responses=problem_responses(403, 422)
)
async def create_operator(body: NewToken, who: Operator, yard: TheYard, response: Response) -> MadeToken:
    """A token for another operator, whose name stands in the audit log and as the holder of cordons."""
    secret = new_token()
    row = await yard.act(acts.create_token(who, None, body.name, secret))
    response.headers["Cache-Control"] = "no-store"
    return made_token(row, secret)


@router.delete(
    "/operators/{token_id}", summary="Revoke an operator's token", response_model=TokenView, responses=problem_responses(403, 404, 409)
)
async def revoke_operator(token_id: str, who: Operator, yard: TheYard) -> TokenView:
    """The token stops working at once. The last one cannot be revoked."""
    return token_view(await yard.act(acts.revoke_token(who, None, token_id)))


@router.get("/audit", summary="Who did what", response_model=AuditPage, responses=problem_responses(403, 422))
async def audit(
    who: Operator,
    yard: TheYard,
    before: Annotated[int | None, Query(ge=0, le=MAX_INT64)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> AuditPage:
    """Every write act with its result, the youngest first: also those that were refused."""
    found = await yard.reads.audit(before, limit + 1)
    page = found[:limit]
    return AuditPage(entries=[audit_view(row) for row in page], next_before=page[-1].seq if len(found) > limit else None)
