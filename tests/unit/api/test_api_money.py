"""Money over HTTP: billing's answers for whoever may see them."""

import pytest
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
from gpuyard_runtime.faults import Refused, Unavailable

from tests.support.api_yard import ApiWorld

BALANCE = BalanceReplyV1(tenant="acme", currency="EUR", credit_micros=2**62, used_micros=1, balance_micros=2**62 - 1)


async def test_a_tenant_asks_for_its_own_money(world: ApiWorld) -> None:
    """Whatever it gives, the question that goes out is about itself."""
    world.engine.answers |= {
        UsageAskV1: UsageReplyV1(rows=(), currency="EUR", total_micros=0, total_gpu_ms=0),
        EntriesAskV1: EntriesReplyV1(entries=()),
        BalanceAskV1: BALANCE,
    }
    client = world.as_("acme")
    for path in ("/v1/usage", "/v1/ledger/entries", "/v1/usage?tenant=acme"):
        assert (await client.get(path)).status_code == 200
    assert (await client.get("/v1/tenants/acme/balance")).json()["balance_micros"] == 2**62 - 1
    assert {getattr(ask, "tenant", None) for ask in world.engine.asked} == {"acme"}
    asked = len(world.engine.asked)
    for path in ("/v1/usage?tenant=beta", "/v1/ledger/entries?tenant=beta", "/v1/tenants/beta/balance"):
        assert (await client.get(path)).status_code == 404
    assert len(world.engine.asked) == asked


@pytest.mark.parametrize(
    "query",
    [
        "since=2030-01-01",
        "since=soon",
        "since=1893456000000000",
        "limit=0",
        "job_id=x",
        "cursor=%00",
        "since=2030-01-02T00:00:00Z&until=2030-01-01T00:00:00Z",
    ],
)
async def test_a_bad_question_is_not_passed_on(world: ApiWorld, query: str) -> None:
    """B54: instants have an offset, and an end lies after its start."""
    answer = await world.as_("acme").get(f"/v1/usage?{query}")
    assert answer.status_code == 422
    assert world.engine.asked == []


async def test_credit_with_a_key_is_one_grant(world: ApiWorld) -> None:
    """The same key names the same grant; without one each is its own."""
    world.engine.answers[GrantCreditAskV1] = BALANCE
    admin = world.as_("admin")
    body = {"amount_micros": 5, "reason": "gift"}
    for headers in ({"idempotency-key": "g1"}, {"idempotency-key": "g1"}, {}, {}):
        assert (await admin.post("/v1/tenants/acme/credit", json=body, headers=headers)).status_code == 200
    ids = [ask.request_id for ask in world.engine.asked if isinstance(ask, GrantCreditAskV1)]
    assert (ids[0] == ids[1], len(set(ids))) == (True, 3)
    assert world.harness.journal("audit")[-1].detail == "5 micros: gift"


@pytest.mark.parametrize("amount", [0, -1, 1.5, "5", 10**16, True])
async def test_a_bad_amount_is_refused(world: ApiWorld, amount: object) -> None:
    """Whole micro-units above zero."""
    answer = await world.as_("admin").post("/v1/tenants/acme/credit", json={"amount_micros": amount, "reason": "gift"})
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "amount_micros")


async def test_the_ledger_is_proved_for_operators(world: ApiWorld) -> None:
    """By POST, or by GET for a browser."""
    world.engine.answers[VerifyAskV1] = VerifyReplyV1(
        is_right=True, transactions=1, entries=2, allocations=1, events=3, expected_micros=5, ledger_micros=5
    )
    for method in ("POST", "GET"):
        answer = await world.as_("admin").request(method, "/v1/ledger/verify")
        assert (answer.status_code, answer.json()["is_right"]) == (200, True)


async def test_prices_are_read_by_all_and_set_by_operators(world: ApiWorld) -> None:
    """Billing's no is a problem with its words, and in the audit log."""
    world.engine.answers |= {PriceBookAskV1: PriceBookReplyV1(versions=()), SetPricesAskV1: PriceBookReplyV1(versions=())}
    assert (await world.as_("acme").get("/v1/prices")).json()["versions"] == []
    body = {"prices": [{"model": "*", "micros_per_gpu_hour": 7}], "valid_from": "2030-06-01T00:00:00Z"}
    assert (await world.as_("admin").post("/v1/prices", json=body)).status_code == 201
    world.engine.answers[SetPricesAskV1] = PriceBookReplyV1(versions=(), problem="begins before what is priced already")
    answer = await world.as_("admin").post("/v1/prices", json=body)
    assert (answer.status_code, answer.json()["errors"][0]["message"]) == (422, "begins before what is priced already")
    assert world.harness.journal("audit")[-1].result == "invalid-request"


@pytest.mark.parametrize(
    ("failure", "status", "code"),
    [
        (Unavailable("no"), 503, "billing-unavailable"),
        (Refused("internal", "failed with KeyError"), 503, "billing-unavailable"),
        (Refused("unavailable", "database"), 503, "billing-unavailable"),
        (Refused("unknown-tenant", "never heard"), 422, "unknown-tenant"),
    ],
)
async def test_billings_silence_is_not_a_bill_of_zero(world: ApiWorld, failure: Exception, status: int, code: str) -> None:
    """An answer that did not come is a problem."""
    world.engine.answers[UsageAskV1] = failure
    answer = await world.as_("acme").get("/v1/usage")
    assert (answer.status_code, answer.json()["code"]) == (status, code)
