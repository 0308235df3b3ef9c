"""Whole job lives: from the request to the final ledger entry, everything durable, with workloads that end at once.

So many jobs are under way at any time; a new one is asked for when one has been paid for. CPU is that of each process with all its
children, workloads included; what the measuring client takes is shown for itself and is no part of the sum.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from uuid import uuid4

from gpuyard_contracts.messages.requests import JobSubmitV1
from gpuyard_contracts.types import job_id_of
from gpuyard_local import bus_config, services, tenants
from gpuyard_runtime.bus import Bus, connect
from gpuyard_runtime.saying import enveloped
from gpuyard_runtime.settings import BusSettings

from bench.cpu import of_ourselves_ms, spent_ms
from bench.door import Door
from bench.figures import Figures, median
from bench.lab import run
from bench.latency import BODY
from bench.scale import Scale
from bench.stage import TENANT, Stage

CLIENTS = 32
UNDER_WAY = 256
WARM_UP_SHARE = 5
"""One round's part of jobs that warm everything up."""

Submit = Callable[[int], Awaitable[None]]
"""Ask for one job, as the client of this number."""


def measure(figures: Figures, stage: Stage, scale: Scale) -> None:
    """Put `job_lives.*`: over HTTP with CPU by process, and on NATS with the tenant's own credentials."""
    rates: list[float] = []
    costs: list[dict[str, float]] = []
    run(_over_http(stage, max(CLIENTS, scale.life_jobs // WARM_UP_SHARE)))
    for _ in range(scale.rounds):
        before = _spent(stage)
        rates.append(run(_over_http(stage, scale.life_jobs)))
        costs.append({name: (used - before.get(name, 0.0)) / scale.life_jobs for name, used in _spent(stage).items()})
    figures.put("job_lives.per_s", median(rates))
    by_name = {name: median([cost.get(name, 0.0) for cost in costs]) for name in sorted(costs[-1])}
    figures.put("job_lives.cpu_ms_per_job", sum(cost for name, cost in by_name.items() if name != "client"))
    for name, cost in sorted(by_name.items(), key=lambda item: -item[1]):
        figures.put(f"job_lives.cpu.{name}_ms_per_job", cost)
    tenants.add_bus_user(stage.stack, TENANT)
    figures.put("job_lives.nats.per_s", median([run(_over_nats(stage, scale.life_jobs)) for _ in range(scale.rounds)]))


def _spent(stage: Stage) -> dict[str, float]:
    """CPU by kind of program: agents together, keepers and workloads together."""
    kinds = {services.agent_of(node): "node_agent" for node in stage.stack.node_ids}
    found: dict[str, float] = {"client": of_ourselves_ms()}
    for name, used in spent_ms(stage.programs()).items():
        kind = "keeper" if name.startswith("keeper-") else kinds.get(name, name)
        found[kind] = found.get(kind, 0.0) + used
    return found


async def _over_http(stage: Stage, count: int) -> float:
    """Jobs per second over HTTP."""
    doors = await stage.doors(CLIENTS)
    asked: set[str] = set()

    async def submit(client: int) -> None:
        asked.add(str(json.loads(await doors[client].ask("POST", "/v1/jobs", BODY))["job_id"]))

    rate = await _lives(stage, count, submit, asked)
    await _all_well(doors[0])
    for door in doors:
        door.close()
    return rate


async def _over_nats(stage: Stage, count: int) -> float:
    """Jobs per second, published by a tenant's program."""
    bus = await _tenant_bus(stage)
    asked: set[str] = set()
    spec = stage.spec

    async def submit(client: int) -> None:
        request_id = uuid4().hex
        asked.add(job_id_of(TENANT, request_id))
        said = JobSubmitV1(tenant=TENANT, spec=spec, request_id=request_id)
        await bus.publish(enveloped(said, source=f"client-{client}", at=stage.now(), event_id=str(uuid4())))

    rate = await _lives(stage, count, submit, asked)
    await bus.close()
    return rate


async def _tenant_bus(stage: Stage) -> Bus:
    user = f"tenant-{TENANT}"
    password = bus_config.password_of(stage.stack.layout, user)
    settings = BusSettings.model_validate({"nats_url": stage.stack.nats_url, "nats_user": user, "nats_password": password})
    return await connect(settings, name=user, on_fatal=lambda fatal: None)


async def _lives(stage: Stage, count: int, submit: Submit, asked: set[str]) -> float:
    """Keep so many jobs under way until all have been paid for; returns how many were in each second."""
    room = asyncio.Semaphore(UNDER_WAY)
    left = count

    async def client(number: int) -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await room.acquire()
            await submit(number)

    async with stage.eyes() as eyes:
        eyes.paid = room.release
        began = time.time()
        await asyncio.gather(*(client(number) for number in range(CLIENTS)))
        await eyes.until(lambda: len(eyes.paid_at) >= count and eyes.paid_at.keys() >= asked)
        return count / (max(eyes.paid_at.values()) - began)


async def _all_well(door: Door) -> None:
    """No job failed: then it would not be jobs' lives that were measured."""
    failed = json.loads(await door.ask("GET", "/v1/jobs?state=failed&state=rejected&limit=1"))["jobs"]
    if failed:
        raise RuntimeError(f"a job {failed[0]['state']}: {failed[0]['reason']}: {failed[0]['detail']}")
