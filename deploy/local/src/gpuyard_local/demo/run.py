"""The demo: a fresh stack, the steps in order, the count of checks at the end."""

import shutil
import traceback
from collections.abc import Callable
from pathlib import Path

from gpuyard import Client

from gpuyard_local.demo import faults, people, proof
from gpuyard_local.demo.stage import Stage
from gpuyard_local.stack import Stack

STEPS: tuple[Callable[[Stage], None], ...] = (
    people.make_tenants,
    people.multiply,
    people.ask_on_the_bus,
    people.gang,
    people.shares,
    people.quota,
    faults.telemetry,
    faults.heat,
    faults.killed_services,
    faults.killed_agent,
    proof.money,
    proof.trace,
)


def run(state: Path) -> int:
    """Run the demo on a fresh stack in `state`, and leave nothing running. Returns the exit code."""
    print("gpuyard demo: a real nats-server, a real PostgreSQL, six services, two simulated nodes", flush=True)
    stack = Stack(state, own_gpus=False, say=lambda line: print(f"    {line}", flush=True))
    if stack.layout.facts.exists():
        stack.purge()
    stage: Stage | None = None
    try:
        stack.start()
        stage = Stage(stack=stack, admin=Client(url=stack.api_url, token=stack.admin_token))
        for step in STEPS:
            _play(stage, step)
        is_good = stage.failed == 0
    except KeyboardInterrupt:
        print("\ninterrupted; stopping", flush=True)
        is_good = False
    finally:
        _keep_logs(stack, is_good=stage is not None and stage.failed == 0)
        stack.purge()
    print(f"\ndemo: {stage.passed if stage else 0} checks passed, {stage.failed if stage else 1} failed", flush=True)
    return 0 if is_good else 1


def _play(stage: Stage, step: Callable[[Stage], None]) -> None:
    """One step; what goes wrong in it is a failed check, and the others are still played."""
    try:
        step(stage)
    except Exception as error:  # the demo must say what failed, whatever it was
        stage.check(False, f"{step.__name__.replace('_', ' ')}: {type(error).__name__}: {error}")
        frame = traceback.extract_tb(error.__traceback__)[-1]
        stage.say(f"at {Path(frame.filename).name}:{frame.lineno}")


def _keep_logs(stack: Stack, *, is_good: bool) -> None:
    """The services' logs of a failed demo are kept for whoever wants to know why."""
    if is_good or not stack.layout.logs.is_dir():
        return
    kept = stack.layout.root.with_name(stack.layout.root.name + "-failed-logs")
    shutil.rmtree(kept, ignore_errors=True)
    shutil.copytree(stack.layout.logs, kept)
    print(f"\nthe services' logs are kept in {kept}", flush=True)
