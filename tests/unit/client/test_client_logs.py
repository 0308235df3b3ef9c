"""What a job wrote, as the command shows it."""

import json

import httpx
import pytest
from gpuyard.cli.streams import show_logs
from gpuyard.results import Job
from gpuyard.results import build as made

from tests.unit.client.client_api import Api, job


def test_logs_of_a_gang_name_the_rank_and_cannot_steer_the_terminal(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    """Colours and cursor movements of a workload do not reach the terminal."""
    rows = [{"attempt": 1, "rank": rank, "stream": "stdout", "number": 0, "text": "\x1b[31mred\x1b[0m\tx\x07"} for rank in (0, 1)]
    api.on("GET", f"/v1/jobs/{job('a')['job_id']}/logs", httpx.Response(200, text="".join(json.dumps(row) + "\n" for row in rows)))
    show_logs(api.client(), made(Job, job("a", ranks=2)), follow=False)
    assert capsys.readouterr().out == "[0] red\tx\ufffd\n[1] red\tx\ufffd\n"


def test_what_is_missing_of_a_flood_is_said_beside_the_output(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    """On standard error: what the job wrote stays what it wrote."""
    rows = [
        {"attempt": 1, "rank": 0, "stream": "stdout", "number": 6, "text": "[7 lines were dropped here]", "dropped_lines": 7},
        {"attempt": 1, "rank": 0, "stream": "stdout", "number": 7, "text": "on"},
    ]
    api.on("GET", f"/v1/jobs/{job('a')['job_id']}/logs", httpx.Response(200, text="".join(json.dumps(row) + "\n" for row in rows)))
    assert [line.dropped_lines for line in api.client().logs(job("a")["job_id"])] == [7, 0]
    show_logs(api.client(), made(Job, job("a")), follow=False)
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("on\n", "--- 7 lines were dropped here ---\n")
