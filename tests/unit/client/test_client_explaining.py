"""``gpuyard explain`` and ``gpuyard plan``: what people see who ask why."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.client.client_api import Api, job

Run = Callable[..., Any]


@pytest.fixture
def train(tmp_path: Path) -> Path:
    """A job file."""
    path = tmp_path / "train.yaml"
    path.write_text("name: train\nrun: python3 train.py\ngpu: T4:1\n")
    return path


ROUND = {
    "reason": "no-free-gpus",
    "detail": "needs 2 of T4, 1 is free",
    "position": 2,
    "waiting": 5,
    "ahead": ["job-x"],
    "binding": {"constraint": "gpus", "nodes": 12, "of": 14},
    "groups": [
        {"nodes": 12, "node_ids": ["t4-1", "t4-2", "t4-3", "t4-4", "t4-5"], "is_fit": False, "constraint": "gpus", "detail": "1 of 4 free"},
        {"nodes": 1, "node_ids": ["a100"], "is_fit": True, "constraint": "", "detail": "fits now"},
    ],
    "suggestions": [
        {"field": "gpu", "was": "T4:2", "to": "T4:1", "effect": "starts at once on t4-1"},
        {"field": "zone", "was": "eu-1", "to": "", "effect": "starts at once on a100"},
        {"field": "stop", "was": "job-y", "to": "", "effect": "once it has ended, starts at once on t4-2"},
    ],
    "estimate": {
        "earliest": "2026-03-01T12:00:00Z",
        "latest": "2026-03-01T12:30:00Z",
        "assumption": "running jobs end at their time limits",
        "accuracy": {"number": 40, "median_ms": 9000, "p90_ms": 61000},
    },
}
RECEIPT = {
    "fits": 9,
    "nodes": 1,
    "kept_nodes": 0,
    "chosen": [{"node_id": "t4-1", "version": 7, "score": 640, "terms": {"waste": -4000, "kept": 250_000}}],
    "runners_up": [{"node_id": "t4-2", "version": 3, "score": 704, "terms": {"waste": 0, "kept": 1_250_000}}],
    "turn": {"is_spare": False, "rank": 1, "urgency": 3, "share_ppm": 12_500, "aged_at_us": 1},
    "weights": {"waste": 1000},
    "policy": "p",
    "outlook": "o",
    "fleet": "f",
    "inputs": "c3a1b2d4e5f60718",
}


def test_explain_shows_what_binds_what_helps_and_when(api: Api, run: Run) -> None:
    """Nodes of which the same can be said stand together; changes are written as one writes them in a job file."""
    api.jobs(job("a", state="queued"))
    api.on("GET", f"/v1/jobs/{job('a')['job_id']}/explain", {"job_id": job("a")["job_id"], "state": "queued", **ROUND})
    shown = run("explain", "train").stdout
    for part in (
        "queued (no-free-gpus)",
        "needs 2 of T4",
        "what binds: gpus, on 12 of 14 nodes",
        "place 2 of 5",
        "job-x",
        "gpu: T4:1 (now T4:2): starts at once on t4-1",
        "leave out zone (now eu-1)",
        "stop your job job-y: once it has ended",
        "between 2026-03-01 12:00:00 UTC and 2026-03-01 12:30:00 UTC",
        "the last 40 estimates were off by 9 s (median), 61 s (p90)",
        "t4-1, t4-2, t4-3 and 9 more",
        "1 of 4 free",
    ):
        assert part in shown


def test_explain_of_a_running_job_shows_why_it_lies_there(api: Api, run: Run) -> None:
    """The chosen node and the next best, term by term in GPUs."""
    api.jobs(job("a", state="running"))
    api.on("GET", f"/v1/jobs/{job('a')['job_id']}/explain", {"job_id": job("a")["job_id"], "state": "running", "receipt": RECEIPT})
    shown = run("explain", "train").stdout
    for part in (
        "placed on 1 of 9 nodes that had the room (receipt c3a1b2d4e5f6)",
        "waited 0.75 of what is promised",
        "1.25 % by weight",
        "t4-1",
        "taken",
        "next best",
        "+1.250",
        "-0.004",
    ):
        assert part in shown


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"rejected": "never-fits", "detail": "no node has that"}, ("train: would be refused (never-fits)", "no node has that")),
        (ROUND, ("train: would wait (no-free-gpus)", "place 2 of 5", "gpu: T4:1")),
        (
            {"places": [{"rank": 0, "node_id": "t4-1", "gpu_uuids": ["GPU-1", "GPU-2"]}], "receipt": RECEIPT},
            ("train: would start at once", "rank 0 on t4-1: GPU-1, GPU-2", "next best"),
        ),
    ],
)
def test_plan_says_what_would_become_of_a_job_and_sends_none(
    api: Api, run: Run, train: Path, answer: dict[str, Any], said: tuple[str, ...]
) -> None:
    """Refused, made to wait, or started at once and where."""
    api.on("POST", "/v1/plan", answer)
    done = run("plan", "-f", str(train))
    assert done.exit_code == 0
    assert all(part in done.stdout for part in said)
    assert [sent["name"] for sent in api.sent()] == ["train"]


def test_explain_of_a_past_instant_asks_for_it_and_says_since_when(api: Api, run: Run) -> None:
    """In UTC, whatever zone it was written in; what is no instant is bad usage."""
    api.jobs(job("a"))
    content = {"job_id": job("a")["job_id"], "state": "queued", "reason": "quota", "detail": "8 of 8 in use"}
    api.on("GET", f"/v1/jobs/{job('a')['job_id']}/explain", {**content, "since": "2026-03-01T11:00:00Z", "at": "2026-03-01T11:30:00Z"})
    shown = run("explain", "train", "--at", "2026-03-01T12:30:00+01:00").stdout
    assert "queued (quota)" in shown
    assert "since 2026-03-01 11:00:00 UTC" in shown
    assert api.requests[-1].url.params["at"] == "2026-03-01T11:30:00+00:00"
    assert run("explain", "train", "--at", "yesterday").exit_code == 2
