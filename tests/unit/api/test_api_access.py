"""Who may do what: tokens, tenants' walls, operators, and the log of what was done."""

from typing import Any

import pytest
from gpuyard_api.domain.secret import digest_of, is_token, token_of
from gpuyard_contracts.messages.api import TenantStateV1
from gpuyard_contracts.messages.asks import GrantCreditAskV1
from gpuyard_contracts.messages.placement import NodeCordonV1

from tests.support.api_yard import ADMIN, SPEC, ApiWorld, node_state

OPERATORS_ONLY = [
    ("post", "/v1/tenants", {"tenant": "gamma"}),
    ("patch", "/v1/tenants/acme", {"version": 1, "weight": 5}),
    ("post", "/v1/tenants/acme/tokens", {"name": "more"}),
    ("delete", "/v1/tenants/acme/tokens/tok-0", None),
    ("post", "/v1/tenants/acme/credit", {"amount_micros": 1, "reason": "gift"}),
    ("post", "/v1/nodes/a100-01/cordon", {}),
    ("post", "/v1/nodes/a100-01/uncordon", {}),
    ("post", "/v1/nodes/a100-01/drain", {}),
    ("post", "/v1/prices", {"prices": [{"model": "*", "micros_per_gpu_hour": 1}]}),
    ("post", "/v1/ledger/verify", None),
    ("get", "/v1/ledger/verify", None),
    ("get", "/v1/audit", None),
    ("get", "/v1/operators", None),
    ("post", "/v1/operators", {"name": "eve"}),
    ("delete", "/v1/operators/tok-0", None),
]


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer nonsense", "Basic Zm9v", "Bearer gpy_schlüssel", f"Bearer {token_of(b'x' * 32)}"]
)
async def test_without_a_good_token_nothing_is_answered(world: ApiWorld, header: str | None) -> None:
    """401 with the way in, and never a word of what was sent."""
    client = world.as_(None)
    headers = {} if header is None else {"authorization": header.encode()}
    answer = await client.get("/v1/jobs", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert header is None or header == "" or header == "Bearer" or header.split()[-1] not in answer.text


@pytest.mark.parametrize(("method", "path", "body"), OPERATORS_ONLY)
async def test_operators_acts_are_refused_to_tenants(world: ApiWorld, method: str, path: str, body: Any) -> None:
    """403, nothing is said, and a refused write stands in the audit log."""
    world.harness.feed(node_state(at=world.harness.clock.now()))
    said = len(world.harness.said)
    answer = await world.as_("acme").request(method, path, json=body)
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    assert len(world.harness.said) == said
    refused = [row for row in world.harness.journal("audit") if row.result == "forbidden"]
    assert [row.actor for row in refused] == ([] if method == "get" else ["tenant/acme/ci"])


@pytest.mark.parametrize("path", ["/v1/tenants/beta", "/v1/tenants/beta/tokens", "/v1/tenants/beta/balance", "/v1/events?tenant=beta"])
async def test_another_tenant_is_not_found(world: ApiWorld, path: str) -> None:
    """As if it were not there."""
    answer = await world.as_("acme").get(path)
    assert (answer.status_code, answer.json()["code"]) == (404, "not-found")
    nobody = await world.as_("acme").get(path.replace("beta", "nobody"))
    assert nobody.status_code == 404


async def test_a_token_is_shown_once_and_kept_as_a_digest(world: ApiWorld) -> None:
    """Neither the list, the audit log nor the rows hold it."""
    world.harness.clock.advance(1)
    made = await world.as_("admin").post("/v1/tenants/acme/tokens", json={"name": "laptop"})
    token = made.json()["token"]
    assert made.status_code == 201
    assert made.headers["cache-control"] == "no-store"
    assert is_token(token)
    assert (await world.as_(token).get("/v1/me")).json() == {
        "actor": "tenant/acme/laptop", "role": "tenant", "tenant": "acme", "token_id": made.json()["token_id"],
    }  # fmt: skip
    listed = await world.as_("acme").get("/v1/tenants/acme/tokens")
    assert [row["name"] for row in listed.json()["tokens"]] == ["ci", "laptop"]
    everything = listed.text + str(world.harness.database)
    assert token not in everything
    assert digest_of(token) in everything
    assert token[8:20] not in everything


async def test_a_revoked_token_stops_working(world: ApiWorld) -> None:
    """At once, and revoking it again changes nothing."""
    admin = world.as_("admin")
    token_id = (await world.as_("acme").get("/v1/me")).json()["token_id"]
    gone = await admin.delete(f"/v1/tenants/acme/tokens/{token_id}")
    assert gone.json()["revoked_at"] is not None
    assert (await world.as_("acme").get("/v1/me")).status_code == 401
    again = await admin.delete(f"/v1/tenants/acme/tokens/{token_id}")
    assert again.json() == gone.json()
    world.harness.restart()
    assert (await world.as_("acme").get("/v1/me")).status_code == 401


async def test_a_token_is_revoked_under_its_own_tenant_only(world: ApiWorld) -> None:
    """404 elsewhere, and it goes on working."""
    token_id = (await world.as_("acme").get("/v1/me")).json()["token_id"]
    admin = world.as_("admin")
    assert (await admin.delete(f"/v1/tenants/beta/tokens/{token_id}")).status_code == 404
    assert (await admin.delete(f"/v1/operators/{token_id}")).status_code == 404
    assert (await world.as_("acme").get("/v1/me")).status_code == 200


async def test_ones_own_token_can_be_replaced(world: ApiWorld) -> None:
    """B59: the new one works, the old one does not, other tokens stay."""
    made = await world.as_("acme").post("/v1/me/rotate")
    assert made.status_code == 201
    assert (await world.as_("acme").get("/v1/me")).status_code == 401
    fresh = (await world.as_(made.json()["token"]).get("/v1/me")).json()
    assert (fresh["tenant"], fresh["role"], fresh["actor"]) == ("acme", "tenant", "tenant/acme/ci")
    assert (await world.as_("beta").get("/v1/me")).status_code == 200


async def test_the_last_operator_stays(world: ApiWorld) -> None:
    """B59: 409 for the last one; with a second one the first can go. An operator's own rotation is no way around it."""
    admin = world.as_("admin")
    first = (await admin.get("/v1/me")).json()["token_id"]
    refused = await admin.delete(f"/v1/operators/{first}")
    assert (refused.status_code, refused.json()["code"]) == (409, "last-operator")
    rotated = (await admin.post("/v1/me/rotate")).json()["token"]
    other = (await world.as_(rotated).post("/v1/operators", json={"name": "eve"})).json()
    now = (await world.as_(rotated).get("/v1/me")).json()["token_id"]
    assert (await world.as_(other["token"]).delete(f"/v1/operators/{now}")).status_code == 200
    live = [row for row in (await world.as_(other["token"]).get("/v1/operators")).json()["tokens"] if row["revoked_at"] is None]
    assert [row["name"] for row in live] == ["eve"]


async def test_an_operators_name_is_the_holder_of_cordons(world: ApiWorld) -> None:
    """So that one sees who took the node out."""
    world.harness.feed(node_state(at=world.harness.clock.now()))
    eve = (await world.as_("admin").post("/v1/operators", json={"name": "eve"})).json()["token"]
    await world.as_(eve).post("/v1/nodes/a100-01/cordon", json={"reason": "fan"})
    assert world.harness.said_of(NodeCordonV1)[0].holder == "operator/eve"


async def test_every_write_is_in_the_audit_log(world: ApiWorld) -> None:
    """When, who, what, on what and with which result, the youngest first, in pages."""
    job_id = await world.job()
    await world.as_("acme").post(f"/v1/jobs/{job_id}/cancel", json={"reason": "typo"})
    await world.as_("admin").patch("/v1/tenants/acme", json={"version": 1, "weight": 7})
    await world.as_("admin").patch("/v1/tenants/acme", json={"version": 1, "weight": 8})
    client = world.as_("admin")
    page = (await client.get("/v1/audit?limit=3")).json()
    told = [(row["actor"], row["action"], row["target"], row["result"]) for row in page["entries"]]
    assert told == [
        ("operator/admin", "tenant.change", "acme", "version-conflict"),
        ("operator/admin", "tenant.change", "acme", "done"),
        ("tenant/acme/ci", "job.cancel", job_id, "done"),
    ]
    rest = (await client.get(f"/v1/audit?before={page['next_before']}")).json()
    assert [row["action"] for row in rest["entries"]][:2] == ["job.submit", "token.create"]
    assert rest["entries"][-1]["actor"] == "first-start"
    assert rest["next_before"] is None
    assert ADMIN not in str(page) + str(rest)


async def test_a_write_of_another_service_is_logged_with_its_result(world: ApiWorld) -> None:
    """Billing did not answer: the act is in the log, with the problem's code."""
    answer = await world.as_("admin").post("/v1/tenants/acme/credit", json={"amount_micros": 5, "reason": "gift"})
    assert answer.status_code == 503
    assert isinstance(world.engine.asked[-1], GrantCreditAskV1)
    last = world.harness.journal("audit")[-1]
    assert (last.action, last.target, last.result) == ("credit.grant", "acme", "billing-unavailable")


async def test_a_suspended_tenant_is_still_let_in(world: ApiWorld) -> None:
    """It may look and ask; whether it gets anything is the scheduler's to say."""
    await world.as_("admin").patch("/v1/tenants/acme", json={"version": 1, "is_suspended": True})
    assert world.harness.said_of(TenantStateV1)[-1].is_suspended
    assert (await world.as_("acme").post("/v1/jobs", json=SPEC)).status_code == 202
