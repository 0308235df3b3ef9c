"""The examples are jobs that the api would take, and programs that really do what they say."""

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gpuyard import jobfile
from gpuyard_contracts.spec import JobSpec

EXAMPLES = Path(__file__).parents[3] / "examples"
FILES = sorted(EXAMPLES.glob("*.yaml"))


def jobs_of(name: str) -> list[JobSpec]:
    """The jobs of an example, as the api would understand them."""
    return [JobSpec.model_validate(job.spec) for job in jobfile.read((EXAMPLES / name).read_text(), name)]


def start(job: JobSpec, **environment: Any) -> "subprocess.Popen[str]":
    """Start a job's program as a node would, with this Python for `python3`."""
    command = [sys.executable if part == "python3" else part for part in job.command]
    env = {"PATH": os.environ.get("PATH", "/bin"), **job.env, **{name: str(value) for name, value in environment.items()}}
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def end(*running: "subprocess.Popen[str]") -> list[str]:
    """What they wrote, once all have ended well."""
    written = [process.communicate(timeout=60)[0] for process in running]
    assert [process.returncode for process in running] == [0] * len(running), written
    return written


def test_every_example_is_named_in_the_readme() -> None:
    """And every file that is named is there."""
    text = (EXAMPLES / "README.md").read_text()
    assert all(f"`{path.name}`" in text for path in EXAMPLES.iterdir() if path.suffix in (".yaml", ".py"))


@pytest.mark.parametrize("path", FILES, ids=[path.name for path in FILES])
def test_every_job_file_is_one_that_the_api_takes(path: Path) -> None:
    """By the contracts' own model."""
    assert all(job.max_seconds for job in jobs_of(path.name))


def test_the_product_of_matrices_is_verified_and_a_wrong_one_is_found() -> None:
    """The check would fail if the product were wrong."""
    (job,) = jobs_of("matmul.yaml")
    (written,) = end(start(job, CUDA_VISIBLE_DEVICES="GPU-1"))
    assert "product verified on GPU-1" in written
    program = job.command[2].replace("    # Freivalds", "#").replace("# Freivalds", "product[3][4] += 1\n# Freivalds", 1)
    wrong = start(job.model_copy(update={"command": (*job.command[:2], program)}))
    assert "is wrong" in wrong.communicate(timeout=60)[0] and wrong.returncode == 1


def test_a_gang_meets_and_every_rank_gets_the_sum() -> None:
    """Four processes, one rendezvous."""
    (job,) = jobs_of("gang.yaml")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks = [start(job, RANK=rank, WORLD_SIZE=job.ranks, MASTER_ADDR="127.0.0.1", MASTER_PORT=port) for rank in (3, 1, 0, 2)]
    assert all("has the right sum of all ranks" in written for written in end(*ranks))


def test_the_counter_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    """On another card, after another attempt."""
    (job,) = jobs_of("counter.yaml")
    job = job.model_copy(update={"env": {}})
    (first,) = end(start(job, UNTIL=7, PAUSE=0, GPUYARD_CHECKPOINT_DIR=tmp_path, GPUYARD_ATTEMPT=1))
    (second,) = end(start(job, UNTIL=12, PAUSE=0, GPUYARD_CHECKPOINT_DIR=tmp_path, GPUYARD_ATTEMPT=2))
    assert "begins at 0" in first and "attempt 2 begins at 7" in second and second.endswith("counter: 10\ncounter: 12\ncounter: done\n")


def test_shares_are_two_halves_of_less_than_a_card() -> None:
    """Together they fit on one."""
    jobs = jobs_of("shares.yaml")
    assert len(jobs) == 2 and all(job.gpu.is_share for job in jobs) and sum(job.gpu.milli for job in jobs) <= 1000
