"""Ask for a job by publishing on NATS, with a tenant's own credentials, and hear what becomes of it.

gpuyard tenant create acme && gpuyard-local nats-user tenant acme
python examples/submit_on_nats.py .gpuyard/secrets/nats-tenant-acme.json acme
"""

import asyncio
import json
import sys
import uuid
from pathlib import Path

import nats


async def main(credentials: str, tenant: str) -> None:
    """Publish one request, and print its events until it has ended."""
    me = json.loads(Path(credentials).read_text())
    bus = await nats.connect(me["url"], user=me["user"], password=me["password"], inbox_prefix=me["inbox_prefix"].encode())
    events = await bus.subscribe(f"gpuyard.evt.scheduler.job.*.v1.{tenant}.>")
    request = str(uuid.uuid4())  # the same id again is the same request: it makes no second job
    spec = {"name": "from-nats", "command": ["/bin/sh", "-c", "echo hello from $CUDA_VISIBLE_DEVICES"], "gpu": "T4:1"}
    await bus.publish(f"gpuyard.req.{tenant}.job.submit.v1", json.dumps({"spec": spec, "request_id": request}).encode())
    job = None
    async for event in events.messages:
        body = json.loads(event.data)
        if body.get("request_id") == request:
            job = body["job_id"]
        if job is not None and body["job_id"] == job:
            print(event.subject.split(".")[4], job, body.get("detail") or body.get("state") or "")  # noqa: T201
            if "job.ended" in event.subject or "job.rejected" in event.subject:
                break
    await bus.close()


if __name__ == "__main__":
    if len(sys.argv) != 3:  # the file with the credentials, the tenant
        sys.exit(__doc__)
    asyncio.run(main(*sys.argv[1:]))
