"""How long each service takes from being started to being ready, with many jobs in the past."""

import time

from gpuyard_contracts.topology import SERVICES
from gpuyard_local import readiness
from gpuyard_local.stack import Stack

from bench import past
from bench.figures import Figures, median
from bench.lab import run, wait_until
from bench.scale import Scale
from bench.stage import Stage

MAKING_SECONDS = 900.0


def measure(figures: Figures, stage: Stage, scale: Scale) -> None:
    """Put `restart.past_jobs` and `restart.<service>.ready_ms`."""
    print(f"  putting {scale.past_jobs:,} jobs into the past …", flush=True)
    run(past.make(stage.stack.dsn(), scale.past_jobs), seconds=MAKING_SECONDS)
    figures.put("restart.past_jobs", scale.past_jobs)
    for service in SERVICES:
        took = [_restart(stage.stack, service) for _ in range(scale.rounds)]
        figures.put(f"restart.{service}.ready_ms", median(took))


def _restart(stack: Stack, service: str) -> float:
    """Milliseconds until a service that was stopped gently says that it is ready. The interpreter's own start is in it."""
    port = stack.health_ports()[service]
    stack.halt(service)
    began = time.perf_counter()
    stack.resume(service, wait=False)
    wait_until(lambda: readiness.ask(port) is None)
    return (time.perf_counter() - began) * 1000
