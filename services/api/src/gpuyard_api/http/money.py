"""Usage, balances, the ledger and prices: billing's answers, asked for on behalf of who may see them."""

from typing import Annotated

from fastapi import APIRouter, Query
from gpuyard_contracts.messages.asks import (
    BalanceAskV1,
    BalanceReplyV1,
    EntriesAskV1,
    EntriesReplyV1,
    GrantCreditAskV1,
    PriceBookAskV1,
    PriceBookReplyV1,
    SetPricesAskV1,
    UsageAskV1,
    UsageReplyV1,
    VerifyAskV1,
    VerifyReplyV1,
)
from gpuyard_contracts.types import Instant, JobId, TenantId, matching

from gpuyard_api import acts, problems
from gpuyard_api.domain.access import Principal
from gpuyard_api.http.answers import problem_responses
from gpuyard_api.http.context import Operator, TheYard, Who, bearer
from gpuyard_api.http.keys import IdempotencyKey, request_id_for
from gpuyard_api.http.tenants import visible_tenant
from gpuyard_api.problems import FieldError, Problem
from gpuyard_api.views.money import BalanceView, CreditBody, EntriesView, PricesBody, PricesView, UsageView, VerifyView

router = APIRouter(prefix="/v1", tags=["money"], dependencies=[bearer])

OfTenant = Annotated[TenantId | None, Query(description="For operators: only this tenant's.")]
OfJob = Annotated[JobId | None, Query()]
Cursor = Annotated[str | None, matching(r"[!-~]{1,200}", "a cursor of this API"), Query()]
Limit = Annotated[int, Query(ge=1, le=1000)]


def _scope(who: Principal, tenant: str | None) -> str | None:
    if tenant is not None and not who.may_see(tenant):
        raise problems.not_found("tenant", tenant)
    return who.tenant or tenant


@router.get("/usage", summary="What was used", response_model=UsageView, responses=problem_responses(404, 422))
async def usage(
    who: Who,
    yard: TheYard,
    tenant: OfTenant = None,
    job_id: OfJob = None,
    since: Annotated[Instant | None, Query()] = None,
    until: Annotated[Instant | None, Query()] = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> UsageView:
    """A row for each attempt that held GPUs, with the sum of everything that was asked for."""
    if since is not None and until is not None and until <= since:
        raise problems.invalid(FieldError("until", "is not after since"))
    ask = UsageAskV1(tenant=_scope(who, tenant), job_id=job_id, since=since, until=until, cursor=cursor, limit=limit)
    return UsageView.model_validate((await yard.ask(ask, UsageReplyV1)).model_dump())


@router.get("/tenants/{tenant}/balance", summary="What is left", response_model=BalanceView, responses=problem_responses(404))
async def balance(tenant: str, who: Who, yard: TheYard) -> BalanceView:
    """What the tenant was granted, has used and has left."""
    visible_tenant(yard, who, tenant)
    return BalanceView.model_validate((await yard.ask(BalanceAskV1(tenant=tenant), BalanceReplyV1)).model_dump())


@router.post("/tenants/{tenant}/credit", summary="Grant credit", response_model=BalanceView, responses=problem_responses(403, 404, 422))
async def credit(tenant: str, body: CreditBody, who: Operator, yard: TheYard, idempotency_key: IdempotencyKey = None) -> BalanceView:
    """Credit for the tenant. With the same `Idempotency-Key` again it is granted once."""
    visible_tenant(yard, who, tenant)
    ask = GrantCreditAskV1(tenant=tenant, request_id=request_id_for(idempotency_key), amount_micros=body.amount_micros, reason=body.reason)
    try:
        reply = await yard.ask(ask, BalanceReplyV1)
    except Problem as problem:
        raise await yard.refuse(who, "credit.grant", tenant, problem) from None
    await yard.act(acts.noted(who, "credit.grant", tenant, "done", f"{body.amount_micros} micros: {body.reason}"))
    return BalanceView.model_validate(reply.model_dump())


@router.get("/ledger/entries", summary="What stands in the ledger", response_model=EntriesView, responses=problem_responses(404, 422))
async def entries(
    who: Who, yard: TheYard, tenant: OfTenant = None, job_id: OfJob = None, cursor: Cursor = None, limit: Limit = 100
) -> EntriesView:
    """Entries in the order they were booked."""
    ask = EntriesAskV1(tenant=_scope(who, tenant), job_id=job_id, cursor=cursor, limit=limit)
    return EntriesView.model_validate((await yard.ask(ask, EntriesReplyV1)).model_dump())


@router.post("/ledger/verify", summary="Prove the ledger", response_model=VerifyView, responses=problem_responses(403))
async def verify(who: Operator, yard: TheYard) -> VerifyView:
    """Rebuild the money from the events and compare it to the ledger, to the unit. Reads only."""
    reply = await yard.ask(VerifyAskV1(), VerifyReplyV1, seconds=yard.pace.verify)
    return VerifyView.model_validate(reply.model_dump())


@router.get("/ledger/verify", include_in_schema=False, response_model=VerifyView)
async def verify_by_get(who: Operator, yard: TheYard) -> VerifyView:
    """The same, for a browser's address line."""
    return await verify(who, yard)


@router.get("/prices", summary="The price book", response_model=PricesView, responses=problem_responses())
async def prices(who: Who, yard: TheYard) -> PricesView:
    """All versions of the price book, the oldest first."""
    return PricesView.model_validate((await yard.ask(PriceBookAskV1(), PriceBookReplyV1)).model_dump())


@router.post(
    "/prices", status_code=201, summary="A new version of the price book", response_model=PricesView, responses=problem_responses(403, 422)
)
async def set_prices(body: PricesBody, who: Operator, yard: TheYard, idempotency_key: IdempotencyKey = None) -> PricesView:
    """New prices, from now or from a later instant on; what is already priced stays as it is."""
    ask = SetPricesAskV1(request_id=request_id_for(idempotency_key), valid_from=body.valid_from, prices=body.prices)
    try:
        reply = await yard.ask(ask, PriceBookReplyV1)
        if reply.problem:
            raise problems.invalid(FieldError("prices", reply.problem))
    except Problem as problem:
        raise await yard.refuse(who, "prices.set", "price-book", problem) from None
    await yard.act(acts.noted(who, "prices.set", "price-book", "done", f"version {reply.versions[-1].version if reply.versions else '?'}"))
    return PricesView.model_validate(reply.model_dump())
