"""Tenants: made once, changed by who saw them last, told to the others."""

from typing import Any

import pytest
from gpuyard_contracts.messages.api import TenantStateV1

from tests.support.api_yard import ApiWorld


async def test_a_new_tenant_is_told(world: ApiWorld) -> None:
    """With everything that the scheduler needs."""
    body = {"tenant": "gamma", "name": "Gamma Ränge", "sla": "gold", "weight": 7, "quota_gpu_milli": 2500, "max_waiting": 3}
    made = await world.as_("admin").post("/v1/tenants", json=body)
    assert (made.status_code, made.json()["version"], made.json()["quota_gpu_memory_mib"]) == (201, 1, None)
    assert world.harness.said[-1] == TenantStateV1(**body, version=1)


async def test_the_same_tenant_again_is_no_second_one(world: ApiWorld) -> None:
    """The same settings are answered as they are, others are a conflict."""
    admin = world.as_("admin")
    said = len(world.harness.said)
    again = await admin.post("/v1/tenants", json={"tenant": "acme"})
    assert (again.status_code, again.json()["version"]) == (201, 1)
    other = await admin.post("/v1/tenants", json={"tenant": "acme", "sla": "gold"})
    assert (other.status_code, other.json()["code"], other.json()["version"]) == (409, "tenant-exists", 1)
    assert len(world.harness.said) == said


async def test_a_change_names_the_version_it_was_decided_on(world: ApiWorld) -> None:
    """B59: of two who change at once, the second is told and nothing is overwritten."""
    admin = world.as_("admin")
    first = await admin.patch("/v1/tenants/acme", json={"version": 1, "quota_gpu_milli": 4000})
    assert (first.status_code, first.json()["version"], first.json()["quota_gpu_milli"]) == (200, 2, 4000)
    second = await admin.patch("/v1/tenants/acme", json={"version": 1, "quota_gpu_milli": 9000})
    assert (second.status_code, second.json()["code"], second.json()["version"]) == (409, "version-conflict", 2)
    assert (await admin.get("/v1/tenants/acme")).json() == first.json()
    assert [state.version for state in world.harness.said_of(TenantStateV1) if state.tenant == "acme"] == [1, 2]


async def test_null_lifts_a_quota_and_leaves_the_rest(world: ApiWorld) -> None:
    """No limit is a value; for settings without such a value null is as if it were not given."""
    admin = world.as_("admin")
    await admin.patch("/v1/tenants/acme", json={"version": 1, "quota_gpu_milli": 4000, "weight": 7})
    changed = (await admin.patch("/v1/tenants/acme", json={"version": 2, "quota_gpu_milli": None, "weight": None})).json()
    assert (changed["quota_gpu_milli"], changed["weight"], changed["version"]) == (None, 7, 3)


async def test_a_tenant_sees_itself(world: ApiWorld) -> None:
    """And an operator everybody."""
    assert [row["tenant"] for row in (await world.as_("acme").get("/v1/tenants")).json()["tenants"]] == ["acme"]
    assert [row["tenant"] for row in (await world.as_("admin").get("/v1/tenants")).json()["tenants"]] == ["acme", "beta"]
    assert (await world.as_("acme").get("/v1/tenants/acme")).json()["sla"] == "bronze"


async def test_tenants_are_told_again_at_every_start(world: ApiWorld) -> None:
    """Under the ids they had, so that a bus which lost them is whole and any other is not disturbed."""
    before = {envelope.data.tenant: envelope.id for envelope in world.harness.envelopes if isinstance(envelope.data, TenantStateV1)}
    count = len(world.harness.envelopes)
    world.harness.restart()
    after = {envelope.data.tenant: envelope.id for envelope in world.harness.envelopes[count:]}
    assert after == before
    assert set(after) == {"acme", "beta"}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"tenant": "Größe"}, "tenant"),
        ({"tenant": "a.b"}, "tenant"),
        ({"tenant": "x" * 41}, "tenant"),
        ({"tenant": "ok", "sla": "platinum"}, "sla"),
        ({"tenant": "ok", "weight": -1}, "weight"),
        ({"tenant": "ok", "quota_gpu_milli": 1.5}, "quota_gpu_milli"),
        ({"tenant": "ok", "quota_gpu_milli": 10**30}, "quota_gpu_milli"),
        ({"tenant": "ok", "name": "a\u0000"}, "name"),
        ({"tenant": "ok", "quota": 5}, "quota"),
        ({}, "tenant"),
    ],
)
async def test_a_bad_tenant_is_refused(world: ApiWorld, body: dict[str, Any], field: str) -> None:
    """By the name of the field; nothing is told."""
    said = len(world.harness.said)
    answer = await world.as_("admin").post("/v1/tenants", json=body)
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, field)
    assert len(world.harness.said) == said


@pytest.mark.parametrize("body", [{"weight": 1}, {"version": 0}, {"version": "1"}, {"version": 1, "tenant": "other"}])
async def test_a_bad_change_is_refused(world: ApiWorld, body: dict[str, Any]) -> None:
    """Without a version nothing is changed, and a tenant's id never."""
    assert (await world.as_("admin").patch("/v1/tenants/acme", json=body)).status_code == 422


async def test_what_is_not_there_is_not_changed(world: ApiWorld) -> None:
    """404 for tenants and for tokens of no tenant."""
    admin = world.as_("admin")
    assert (await admin.patch("/v1/tenants/nobody", json={"version": 1})).status_code == 404
    assert (await admin.post("/v1/tenants/nobody/tokens", json={"name": "ci"})).status_code == 404
    assert (await admin.get("/v1/tenants/nobody/tokens")).status_code == 404
