"""The steps of the tenants: jobs over HTTP and on the bus, gangs, shares, quota."""

import asyncio
import json
from pathlib import Path
from typing import Any

from gpuyard import Client

from gpuyard_local import tenants
from gpuyard_local.demo.stage import WAIT_SECONDS, Stage


def make_tenants(stage: Stage) -> None:
    """Two tenants: acme (gold) with a token, beta (bronze, two GPUs) with credentials of its own on the bus."""
    stage.title("two tenants: acme (gold) over HTTP, beta (bronze, at most 2 GPUs) on NATS")
    stage.admin.create_tenant("acme", name="Acme", sla="gold", weight=300)
    stage.admin.create_tenant("beta", name="Beta", sla="bronze", weight=100, quota_gpu_milli=2000)
    for tenant in ("acme", "beta"):
        stage.clients[tenant] = Client(url=stage.stack.api_url, token=str(stage.admin.create_token(tenant)["token"]))
    stage.check(stage.clients["acme"].whoami()["tenant"] == "acme", "acme's token is acme's")


def multiply(stage: Stage) -> None:
    """acme multiplies matrices over HTTP."""
    stage.title("acme, over HTTP: a job that multiplies matrices and proves the product right")
    job = stage.example("acme", "matmul")[0]
    ended = stage.ended("acme", job.job_id)
    log = stage.log("acme", job.job_id)
    stage.say(log.strip().splitlines()[-1][:76] if log.strip() else "(no output)")
    stage.check(ended.state == "succeeded" and "product verified" in log, f"matmul: {ended.state}, product verified")
    gpus = ended.placement[0].gpus if ended.placement else ()
    stage.check(bool(gpus) and gpus[0] in log, "the process saw exactly the card that it was given")


def ask_on_the_bus(stage: Stage) -> None:
    """beta publishes a request with its own credentials and hears its own events."""
    stage.title("beta, on NATS: publishes a job-request event with credentials of its own")
    path = tenants.add_bus_user(stage.stack, "beta")
    heard, foreign = asyncio.run(_publish(path))
    stage.say(" → ".join(event["verb"] for event in heard))
    last: dict[str, Any] = heard[-1] if heard else {"verb": "", "body": {}}
    stage.check(last["verb"] == "ended" and last["body"].get("state") == "succeeded", "beta heard its job from queued to succeeded")
    stage.check(foreign, "the bus refused beta a request in acme's name")
    stage.jobs["from-nats"] = last["body"].get("job_id", "")


async def _publish(credentials: Path) -> tuple[list[dict[str, Any]], bool]:
    import nats

    me = json.loads(credentials.read_text(encoding="utf-8"))
    refused = asyncio.Event()

    async def on_error(error: Exception) -> None:
        if "permissions violation" in str(error).lower():
            refused.set()

    bus = await nats.connect(
        me["url"], user=me["user"], password=me["password"], inbox_prefix=me["inbox_prefix"].encode(), error_cb=on_error
    )
    events = await bus.subscribe("gpuyard.evt.scheduler.job.*.v1.beta.>")
    await bus.publish("gpuyard.req.acme.job.submit.v1", b"{}")
    spec = {"name": "from-nats", "command": ["/bin/sh", "-c", "echo hello"], "gpu": "T4:1", "cpu_milli": 100, "memory_mib": 64}
    await bus.publish("gpuyard.req.beta.job.submit.v1", json.dumps({"spec": spec, "request_id": "demo-1"}).encode())
    heard: list[dict[str, Any]] = []
    async with asyncio.timeout(WAIT_SECONDS):
        async for message in events.messages:
            heard.append({"verb": message.subject.split(".")[4], "body": json.loads(message.data)})
            if heard[-1]["verb"] in ("ended", "rejected"):
                break
        await refused.wait()
    await bus.close()
    return heard, refused.is_set()


def gang(stage: Stage) -> None:
    """Four ranks find each other and exchange data."""
    stage.title("acme: a gang of four ranks that find each other and sum their numbers")
    job = stage.example("acme", "gang")[0]
    ended = stage.ended("acme", job.job_id)
    right = stage.log("acme", job.job_id).count("has the right sum")
    stage.check(ended.state == "succeeded" and right == 4, f"gang: {ended.state}, {right} of 4 ranks have the right sum")
    cards = [gpu for place in ended.placement for gpu in place.gpus]
    stage.check(len(cards) == len(set(cards)) == 4, "four ranks had four different cards")


def shares(stage: Stage) -> None:
    """Two fractional jobs on one card at the same time."""
    stage.title("acme: two quarter-card jobs at the same time")
    jobs = stage.example("acme", "shares")
    seen = [stage.running("acme", job.job_id) for job in jobs]
    cards = {gpu for job in seen for place in job.placement for gpu in place.gpus}
    stage.check(len(seen) == 2 and len(cards) == 1, "both run on one card")
    held = [gpu for gpu in stage.admin.gpus() if gpu.uuid in cards]
    stage.check(bool(held) and held[0].used_milli == 500, f"{held[0].used_milli if held else '?'} of 1000 thousandths of it are held")
    for job in jobs:
        stage.ended("acme", job.job_id)


def quota(stage: Stage) -> None:
    """A job over its tenant's quota waits, says why, and starts when there is room."""
    stage.title("beta: a job over its quota waits with that reason")
    first = stage.shell("beta", "within-quota", "sleep 30", gpu="A100:2")
    stage.running("beta", first.job_id)
    second = stage.shell("beta", "over-quota", "echo at last", gpu="A100:1")
    told = stage.until("the reason", lambda: stage.clients["beta"].explain(second.job_id), lambda found: found.reason == "quota")
    stage.say(f"explain: {told.detail}"[:150])
    stage.check(told.reason == "quota", "it waits for quota, not for cards: 8 A100 are there")
    stage.clients["beta"].cancel(first.job_id, "making room")
    stage.check(stage.ended("beta", first.job_id).state == "cancelled", "the first one is cancelled")
    stage.check(stage.ended("beta", second.job_id).state == "succeeded", "then the second one runs")
