"""What every step of the demo holds: a stack, clients for its people, and the count of checks."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from gpuyard import Client, jobfile
from gpuyard.results import Job

from gpuyard_local.stack import Stack

T = TypeVar("T")

WAIT_SECONDS = 60.0
POLL_SECONDS = 0.1
EXAMPLES = Path(__file__).parents[5] / "examples"


class StepFailed(Exception):
    """A step cannot go on."""


@dataclass
class Stage:
    """The demo's state. `passed` and `failed` count checks."""

    stack: Stack
    admin: Client
    clients: dict[str, Client] = field(default_factory=dict[str, Client])
    jobs: dict[str, str] = field(default_factory=dict[str, str])
    passed: int = 0
    failed: int = 0
    began: float = field(default_factory=time.monotonic)

    def title(self, text: str) -> None:
        """Announce a step."""
        print(f"\n[{time.monotonic() - self.began:5.1f} s] {text}", flush=True)

    def say(self, text: str) -> None:
        """One line of what happens."""
        print(f"    {text}", flush=True)

    def check(self, is_true: bool, text: str) -> bool:
        """Count one check and show it."""
        self.passed += is_true
        self.failed += not is_true
        print(f"  {'ok  ' if is_true else 'FAIL'} {text}", flush=True)
        return is_true

    def until(self, what: str, look: Callable[[], T | None], when: Callable[[T], bool] = bool, *, seconds: float = WAIT_SECONDS) -> T:
        """Look until there is something to see, and it is as wanted. Raises StepFailed after `seconds`."""
        deadline = time.monotonic() + seconds
        while True:
            found = look()
            if found is not None and when(found):
                return found
            if time.monotonic() > deadline:
                raise StepFailed(f"{what}: not within {seconds:.0f} s")
            time.sleep(POLL_SECONDS)

    def ended(self, tenant: str, job_id: str) -> Job:
        """The job once it has ended."""
        return self.clients[tenant].wait(job_id, timeout_seconds=WAIT_SECONDS)

    def running(self, tenant: str, job_id: str) -> Job:
        """The job once it runs. Raises StepFailed where it ends first."""
        job = self.clients[tenant].wait(job_id, until=lambda seen: seen.is_ended or seen.state == "running", timeout_seconds=WAIT_SECONDS)
        if job.state != "running":
            raise StepFailed(f"{job.name} is {job.state} ({job.reason}: {job.detail})")
        return job

    def log(self, tenant: str, job_id: str) -> str:
        """Everything that a job has written so far."""
        return "\n".join(line.text for line in self.clients[tenant].logs(job_id))

    def example(self, tenant: str, name: str, **changes: Any) -> list[Job]:
        """Submit the jobs of a file of `examples/`, with some fields changed."""
        text = (EXAMPLES / f"{name}.yaml").read_text(encoding="utf-8")
        client = self.clients[tenant]
        made = [client.submit_spec({**dict(job.spec), **changes}) for job in jobfile.read(text, f"{name}.yaml")]
        self.jobs.update({job.name: job.job_id for job in made})
        return made

    def shell(self, tenant: str, name: str, script: str, *, gpu: str = "A100:1", **spec: Any) -> Job:
        """Submit a small shell job."""
        spec = {"cpu_milli": 100, "memory_mib": 64, **spec}
        made = self.clients[tenant].submit(name, ["/bin/sh", "-c", script], gpu=gpu, **spec)
        self.jobs[name] = made.job_id
        return made
