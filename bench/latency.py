"""From asking to running: one job after the other on an idle stack, and fifty in each second.

The clock starts before the request leaves the client and stops when the tenant's program on the bus hears that the job runs. When the
workload itself began, by its node's clock (it is this machine's), stands beside it.
"""

import asyncio
import json
import time
from datetime import datetime

from bench.door import Door
from bench.figures import Figures
from bench.lab import run
from bench.scale import Scale
from bench.stage import SPEC, Eyes, Stage

WARM_UP = 10
PER_SECOND = 50
DOORS = 16
BODY = json.dumps(SPEC).encode()


def measure(figures: Figures, stage: Stage, scale: Scale) -> None:
    """Put `submit_to_running.idle.*` and `submit_to_running.at_50_per_s.*`."""
    run(_idle(figures, stage, scale.idle_jobs))
    run(_steady(figures, stage, scale.steady_seconds * PER_SECOND))


async def _idle(figures: Figures, stage: Stage, count: int) -> None:
    """Each job is over before the next is asked for."""
    (door,) = await stage.doors(1)
    async with stage.eyes() as eyes:
        asked: dict[str, float] = {}
        for number in range(WARM_UP + count):
            began = time.time()
            job_id = await _ask(door)
            await eyes.until(lambda job_id=job_id: job_id in eyes.running_at and job_id in eyes.paid_at)
            if number >= WARM_UP:
                asked[job_id] = began
    door.close()
    _put(figures, "submit_to_running.idle", asked, eyes)


async def _steady(figures: Figures, stage: Stage, count: int) -> None:
    """Jobs are asked for at fixed instants, whether the ones before have been answered or not; waiting counts from those instants."""
    doors: asyncio.Queue[Door] = asyncio.Queue()
    for door in await stage.doors(DOORS):
        doors.put_nowait(door)
    asked: dict[str, float] = {}

    async def one(due: float) -> None:
        door = await doors.get()
        asked[await _ask(door)] = due
        doors.put_nowait(door)

    async with stage.eyes() as eyes, asyncio.TaskGroup() as group:
        begin = time.time() + 0.1
        for number in range(count):
            due = begin + number / PER_SECOND
            await asyncio.sleep(max(0.0, due - time.time()))
            group.create_task(one(due))
        await eyes.until(lambda: len(asked) == count and eyes.running_at.keys() >= asked.keys() and eyes.paid_at.keys() >= asked.keys())
    while not doors.empty():
        doors.get_nowait().close()
    _put(figures, f"submit_to_running.at_{PER_SECOND}_per_s", asked, eyes)


async def _ask(door: Door) -> str:
    return str(json.loads(await door.ask("POST", "/v1/jobs", BODY))["job_id"])


def _put(figures: Figures, key: str, asked: dict[str, float], eyes: Eyes) -> None:
    figures.put_latencies(key, [(eyes.running_at[job_id] - began) * 1000 for job_id, began in asked.items()])
    began = {job_id: datetime.fromisoformat(eyes.started_at[job_id]).timestamp() for job_id in asked}
    figures.put_latencies(f"{key}.process_begins", [(began[job_id] - at) * 1000 for job_id, at in asked.items()])
