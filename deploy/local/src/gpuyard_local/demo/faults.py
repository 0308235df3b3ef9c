"""The steps of things that go wrong: a hot card, killed processes."""

import os
import tempfile
from collections import Counter
from pathlib import Path

from gpuyard.results import Job

from gpuyard_local import faults as injected
from gpuyard_local.demo.stage import Stage

NODE = "sim-a100"
BATCH = 16


def telemetry(stage: Stage) -> None:
    """Live samples of every simulated card."""
    stage.title("telemetry flows")

    def live() -> list[str] | None:
        cards = [gpu for gpu in stage.admin.gpus() if gpu.node_id.startswith("sim-")]
        shown = [gpu.uuid for gpu in cards if gpu.telemetry == "live" and gpu.sample and gpu.sample.temperature_c is not None]
        return shown if cards and len(shown) == len(cards) else None

    stage.check(len(stage.until("live samples", live)) == 12, "12 cards tell their temperature")


def heat(stage: Stage) -> None:
    """A card overheats; its job moves to a healthy one and goes on from its checkpoint."""
    stage.title("heat: a card goes over 85 °C under a job that counts and checkpoints")
    job = stage.example("acme", "counter", env={"UNTIL": "150", "PAUSE": "0.1"})[0]
    running = stage.running("acme", job.job_id)
    first = running.placement[0].gpus[0]
    stage.until("a checkpoint", lambda: "counter: 20" in stage.log("acme", job.job_id))
    stage.say(f"injecting 93 °C into {first} of {running.placement[0].node_id}")
    injected.inject(stage.stack, running.placement[0].node_id, "temperature", gpu=first, value=93)
    incident = stage.until(
        "an incident", lambda: next((found for found in stage.admin.incidents() if found.get("gpu_uuid") == first), None)
    )
    stage.say(f"incident: {incident['kind']}: {incident['evidence']}"[:150])
    stage.check(incident["kind"] == "gpu-hot", "monitor opened an incident with its evidence")
    moved = stage.until("the move", lambda: _moved(stage, job.job_id, first))
    stage.check(moved.placement[0].gpus[0] != first, f"the job runs again, on another card (attempt {moved.attempt})")
    cordoned = [gpu for gpu in stage.admin.gpus() if gpu.uuid == first and gpu.cordons]
    stage.check(bool(cordoned), "the hot card is cordoned by the incident")
    ended = stage.ended("acme", job.job_id)
    begins = [int(line.rsplit(" ", 1)[1]) for line in stage.log("acme", job.job_id).splitlines() if "begins at" in line]
    stage.say(f"attempts began at {', '.join(map(str, begins))}")
    stage.check(
        ended.state == "succeeded" and len(begins) == 2 and begins[1] >= 20, "it went on from its checkpoint and counted to the end"
    )
    injected.inject(stage.stack, running.placement[0].node_id, "recover", gpu=first)
    stage.until("the recovery", lambda: all(found.get("gpu_uuid") != first for found in stage.admin.incidents()))
    stage.until("the uncordon", lambda: all(not gpu.cordons for gpu in stage.admin.gpus() if gpu.uuid == first))
    stage.check(True, "cooled down: the incident is closed and the card is back")


def _moved(stage: Stage, job_id: str, first: str) -> Job | None:
    job = stage.clients["acme"].get(job_id)
    return job if job.attempt > 1 and job.state == "running" and job.placement[0].gpus[0] != first else None


def killed_services(stage: Stage) -> None:
    """Scheduler and placement are killed while jobs are under way: each job runs exactly once."""
    stage.title(f"kill -9 of scheduler and placement with {BATCH} jobs in mid-flight")
    with tempfile.TemporaryDirectory(prefix="gpuyard-demo-") as folder:
        tally = Path(folder) / "ran"
        tally.touch()
        script = f'echo "$GPUYARD_JOB_ID" >> {tally}; sleep 0.2'
        jobs = [stage.shell("acme", f"batch-{number}", script, gpu="A100:1", wait_seconds=0) for number in range(BATCH // 2)]
        stage.say(f"killed scheduler (pid {stage.stack.kill('scheduler')})")
        jobs += [stage.shell("acme", f"batch-{number}", script, gpu="A100:1", wait_seconds=0) for number in range(BATCH // 2, BATCH)]
        stage.say(f"killed placement (pid {stage.stack.kill('placement')})")
        ended = [stage.ended("acme", job.job_id) for job in jobs]
        stage.check(all(job.state == "succeeded" for job in ended), f"{BATCH} of {BATCH} jobs succeeded: nothing was lost")
        ran = Counter(tally.read_text(encoding="utf-8").split())
        stage.check(ran == Counter(job.job_id for job in jobs), "each of them ran exactly once: nothing was doubled")


def killed_agent(stage: Stage) -> None:
    """The agent of a node is killed: its workload lives on and is adopted."""
    stage.title("kill -9 of a node agent under a running job")
    job = stage.shell("acme", "outlives", 'echo "pid $$"; sleep 6; echo "still pid $$"')
    stage.running("acme", job.job_id)
    stage.until("its first line", lambda: "pid" in stage.log("acme", job.job_id))
    stage.say(f"killed the agent of {NODE} (pid {stage.stack.kill(f'agent-{NODE}')})")
    pid = int(stage.log("acme", job.job_id).split()[1])
    stage.check(_lives(pid), f"the workload (pid {pid}) lives on")
    ended = stage.ended("acme", job.job_id)
    log = stage.log("acme", job.job_id)
    stage.check(
        ended.state == "succeeded" and ended.attempt == 1 and f"still pid {pid}" in log,
        "the new agent adopted it: same process, first attempt, its end and output arrived",
    )


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
