"""The `gpuyard` command: what it prints, for people and for programs, and how it ends."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from gpuyard.cli.main import PARTS, build
from typer.testing import CliRunner

from tests.unit.client.client_api import Api, job, problem

Run = Callable[..., Any]


def refused(request: httpx.Request) -> httpx.Response:
    """Nobody listens."""
    raise httpx.ConnectError("connection refused", request=request)


@pytest.fixture
def train(tmp_path: Path) -> Path:
    """A job file."""
    path = tmp_path / "train.yaml"
    path.write_text("name: train\nrun: python3 train.py\ngpu: T4:1\n")
    return path


def test_apply_asks_for_the_job_and_says_where_it_is(api: Api, run: Run, train: Path) -> None:
    """With the command that shows what it writes."""
    api.on("POST", "/v1/jobs", httpx.Response(201, json=job("a", state="queued", reason="not-considered-yet")))
    api.jobs(job("a", placement=[{"rank": 0, "node_id": "sim-t4", "gpus": []}]))
    done = run("apply", "-f", train, "--tenant", "acme")
    assert done.exit_code == 0 and done.stdout == f"{job('a')['job_id']}  train: running on sim-t4\n"
    assert "gpuyard logs -f" in done.stderr and api.requests[0].url.params["tenant"] == "acme"


def test_apply_of_a_waiting_job_says_why_and_what_explains_it(api: Api, run: Run, train: Path) -> None:
    """The reason in the scheduler's words."""
    waiting = job("a", state="queued", reason="quota", detail="acme uses 8 of 8 cards")
    api.on("POST", "/v1/jobs", httpx.Response(201, json=waiting))
    api.jobs(waiting)
    done = run("apply", "-f", train)
    assert done.exit_code == 0 and "train: queued: acme uses 8 of 8 cards" in done.stdout and "gpuyard explain" in done.stderr


def test_apply_of_a_job_that_never_fits_fails_with_reason_and_a_way_out(api: Api, run: Run, train: Path) -> None:
    """Exit code 1: the job was not taken."""
    api.on("POST", "/v1/jobs", problem(422, "job-rejected", "needs 9 of T4, there are 4", reason="never-fits", job_id="job-x"))
    done = run("apply", "-f", train)
    assert done.exit_code == 1 and "never-fits" in done.stderr and "there are 4" in done.stderr and "gpuyard nodes" in done.stderr


def test_a_rejected_job_does_not_hold_up_the_others_of_its_file(api: Api, run: Run, tmp_path: Path) -> None:
    """All that were taken are named, and the exit code says that not all were."""
    (tmp_path / "two.yaml").write_text("name: big\nrun: a\n---\nname: small\nrun: b\n")
    api.on(
        "POST",
        "/v1/jobs",
        problem(422, "job-rejected", "no", reason="never-fits", job_id="job-x"),
        httpx.Response(201, json=job("b", "small")),
    )
    api.jobs(job("b", "small"))
    done = run("apply", "-f", tmp_path / "two.yaml")
    assert done.exit_code == 1 and "big was not taken (never-fits)" in done.stderr and job("b")["job_id"] in done.stdout


def test_jobs_that_were_taken_are_named_when_the_api_goes_away(api: Api, run: Run, tmp_path: Path) -> None:
    """Nobody has to guess what was asked for."""
    (tmp_path / "two.yaml").write_text("name: a\nrun: a\n---\nname: b\nrun: b\n")
    api.on("POST", "/v1/jobs", httpx.Response(201, json=job("a", "a")), refused)
    done = run("apply", "-f", tmp_path / "two.yaml")
    assert done.exit_code == 4 and job("a")["job_id"] in done.stderr


def test_an_operator_is_asked_whose_jobs_they_are(api: Api, run: Run, train: Path) -> None:
    """In the command's own words."""
    api.on(
        "POST",
        "/v1/jobs",
        problem(422, "invalid-request", "no", errors=[{"field": "tenant", "message": "is missing", "fix": "?tenant=acme"}]),
    )
    done = run("apply", "-f", train)
    assert done.exit_code == 2 and "--tenant NAME" in done.stderr and "?tenant" not in done.stderr and "tenant create" in done.stderr


def test_apply_says_when_nobody_has_decided_yet(api: Api, run: Run, train: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler that is away is not hidden behind a hint about output."""
    monkeypatch.setattr("gpuyard.cli.apply.STARTING_SECONDS", 0.0)
    api.on("POST", "/v1/jobs", httpx.Response(202, json=job("a", state="submitted")))
    api.jobs(job("a", state="submitted"))
    done = run("apply", "-f", train)
    assert done.exit_code == 0 and "has not answered yet" in done.stderr and "logs -f" not in done.stderr


def test_apply_places_the_apis_complaints_in_the_file(api: Api, run: Run, train: Path) -> None:
    """Line and field, as for what is found here."""
    api.on(
        "POST", "/v1/jobs", problem(422, "invalid-request", "no", errors=[{"field": "gpu", "message": "'T4:1' is odd", "fix": "write T4"}])
    )
    done = run("apply", "-f", train)
    assert done.exit_code == 2 and f"{train}:3: gpu: 'T4:1' is odd; write T4" in done.stderr.replace("\n", "")


def test_apply_sends_nothing_unless_every_file_can_be_read(api: Api, run: Run, train: Path, tmp_path: Path) -> None:
    """All or none."""
    (tmp_path / "bad.yaml").write_text("run: a\nmemory: 1\n")
    done = run("apply", "-f", train, "-f", tmp_path / "bad.yaml", "-f", tmp_path / "absent.yaml")
    assert (
        done.exit_code == 2 and "bad.yaml:2: memory" in done.stderr and "absent.yaml: cannot be read" in done.stderr and api.requests == []
    )


def test_apply_reads_standard_input(api: Api, run: Run) -> None:
    """With a dash for a file."""
    api.on("POST", "/v1/jobs", httpx.Response(201, json=job("a")))
    api.jobs(job("a"))
    assert run("apply", "-f", "-", input="run: a\n").exit_code == 0 and api.sent()[0]["name"] == "job"


@pytest.mark.parametrize(("state", "code"), [("succeeded", 0), ("failed", 1), ("cancelled", 1), ("expired", 1)])
def test_apply_and_wait_ends_as_the_job_does(api: Api, run: Run, train: Path, state: str, code: int) -> None:
    """Scripts can rely on it."""
    api.on("POST", "/v1/jobs", httpx.Response(201, json=job("a", state="queued")))
    api.jobs(job("a", state=state, detail="its words"))
    done = run("apply", "-f", train, "--wait")
    assert done.exit_code == code and f"train: {state}" in done.stdout and ("its words" in done.stdout) == (code == 1)


def test_apply_and_follow_shows_output_and_end(api: Api, run: Run, train: Path) -> None:
    """Output on standard output, progress on the other."""
    api.on("POST", "/v1/jobs", httpx.Response(201, json=job("a", state="queued")))
    api.jobs(job("a", state="succeeded"))
    line = {"attempt": 1, "rank": 0, "stream": "stdout", "number": 0, "text": "loss 0.1"}
    api.on("GET", f"/v1/jobs/{job('a')['job_id']}/logs", httpx.Response(200, text=json.dumps(line) + "\n"))
    done = run("apply", "-f", train, "--follow")
    assert done.exit_code == 0 and done.stdout.splitlines()[0] == "loss 0.1" and "train: succeeded" in done.stdout


def test_apply_as_json_prints_one_document_with_the_jobs(api: Api, run: Run, train: Path) -> None:
    """Whatever else is said goes to standard error."""
    api.on("POST", "/v1/jobs", httpx.Response(201, json=job("a", state="queued")))
    api.jobs(job("a", state="succeeded"))
    assert json.loads(run("apply", "-f", train, "--wait", "--json").stdout)["items"][0]["state"] == "succeeded"


def test_ps_lists_what_lives_within_eighty_columns(api: Api, run: Run) -> None:
    """Ids and states are never cut; long names are."""
    api.jobs(
        job("a", "n" * 100, placement=[{"rank": 0, "node_id": "node-" + "x" * 40, "gpus": []}], ranks=4),
        job("b", "waiting", "queued", reason="no-free-gpus"), job("c", "old", "failed"),
    )  # fmt: skip
    done = run("ps")
    assert done.exit_code == 0 and max(map(len, done.stdout.splitlines())) <= 80
    assert job("a")["job_id"] in done.stdout and "no-free-" in done.stdout and "old" not in done.stdout
    assert json.loads(run("ps", "-a", "--json").stdout)["items"][2]["state"] == "failed"


def test_what_still_runs_is_said_to_be_booked_later(api: Api, run: Run) -> None:
    """So that nobody takes the 0 of a job's first minute for its price; and short times are no zeros."""
    row = {"tenant": "acme", "job_id": "job-a", "allocation_id": "job-a-1", "models": ["T4"], "held_ms": 24, "gpu_ms": 6, "is_final": False}
    api.jobs(job("a"))
    api.on("GET", f"/v1/jobs/{job('a')['job_id']}/cost", {"currency": "USD", "total_micros": 0, "rows": [{**row, "amount_micros": 0}]})
    done = run("cost", "train")
    assert done.exit_code == 0 and "0.024s" in done.stdout and "0.006s" in done.stdout and "once a minute" in done.stderr


def test_a_fault_is_shown_with_all_its_evidence(api: Api, run: Run) -> None:
    """Cut off it would be worth nothing."""
    evidence = "GPU-sim-sim-a100-0 (A100-80GB): 93 °C, at or above 85 °C for 3 samples in a row"
    row = {"incident_id": "inc-a", "kind": "gpu-hot", "node_id": "sim-a100", "is_open": True, "evidence": evidence}
    api.on("GET", "/v1/incidents", {"incidents": [row]})
    assert run("incidents").stdout == f"inc-a  gpu-hot on sim-a100: open\n  {evidence}\n"


def test_a_node_that_is_not_there_is_not_an_empty_list(api: Api, run: Run) -> None:
    """With the command that lists those that are."""
    api.on("GET", "/v1/gpus", {"gpus": []})
    api.on("GET", "/v1/nodes", {"nodes": [{"node_id": "n1", "status": "ready"}]})
    done = run("gpus", "--node", "n2")
    assert done.exit_code == 3 and "there is no node 'n2'" in done.stderr and "gpuyard nodes" in done.stderr


def test_ps_of_nothing_says_so(api: Api, run: Run) -> None:
    """Not an empty table."""
    api.jobs()
    assert "no jobs now" in run("ps").stdout and json.loads(run("ps", "--json").stdout) == {"items": []}


def test_no_escape_sequences_leave_where_nobody_looks_on(api: Api, run: Run) -> None:
    """Colours are for terminals."""
    api.jobs(job("a"))
    assert "\x1b" not in run("ps").stdout


def test_stop_of_an_ambiguous_name_stops_nothing(api: Api, run: Run) -> None:
    """And names the candidates."""
    api.jobs(job("a", "train-1"), job("b", "train-2"))
    done = run("stop", "train")
    assert done.exit_code == 2 and "train-1" in done.stderr and "train-2" in done.stderr
    assert not [request for request in api.requests if request.method == "POST"]


def test_stop_tells_the_job_to_stop(api: Api, run: Run) -> None:
    """With the reason for the record."""
    api.jobs(job("a"))
    api.on("POST", f"/v1/jobs/{job('a')['job_id']}/cancel", job("a", state="stopping"))
    done = run("stop", "train", "--reason", "wrong data")
    assert done.exit_code == 0 and "was told to stop" in done.stdout and api.sent() == [{"reason": "wrong data"}]


def test_a_name_that_was_used_again_shows_its_youngest_job_and_says_so(api: Api, run: Run) -> None:
    """In every command that shows something; ending one of two asks which."""
    api.jobs(job("a"), job("b"))
    done = run("explain", "train")
    assert f"{job('a')['job_id']}: the youngest living job of this name; one more is called train" in done.stderr
    assert run("stop", "train").exit_code == 2


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        (problem(404, "not-found", "there is no job"), 3, "there is no job"),
        (problem(401, "unauthenticated", "a token is needed"), 3, "gpuyard login"),
        (problem(403, "forbidden", "not yours"), 3, "more rights"),
        (problem(422, "invalid-request", "odd"), 2, "odd"),
        (problem(503, "database-unavailable", "the database is away"), 4, "gpuyard doctor"),
        (refused, 4, "no api answers at http://api.test"),
        (httpx.Response(200, text="<html>"), 1, "does not speak gpuyard's language"),
    ],
)
def test_errors_have_their_exit_codes_and_a_way_out(api: Api, run: Run, answer: Any, code: int, said: str) -> None:
    """And never a traceback."""
    api.on("GET", "/v1/queue", answer)
    done = run("queue")
    assert (done.exit_code, "Traceback" in done.stderr, done.stdout) == (code, False, "") and said in done.stderr


def test_errors_as_json_keep_standard_output_clean(api: Api, run: Run) -> None:
    """The error is an object on standard error."""
    api.on("GET", "/v1/queue", problem(404, "not-found", "there is none"))
    done = run("queue", "--json")
    told = json.loads(done.stderr)["error"]
    assert done.stdout == "" and (told["code"], told["message"], told["exit"]) == ("not-found", "there is none", 3)


def test_a_mistake_of_our_own_is_told_in_a_line(api: Api, run: Run) -> None:
    """With how to see more."""
    api.on("GET", "/v1/queue", {"tenants": [{"tenant": "acme"}]})
    done = run("queue")
    assert done.exit_code == 1 and "a mistake of gpuyard's own" in done.stderr and "GPUYARD_DEBUG" in done.stderr


def test_ledger_verify_is_exit_code_one_where_it_is_wrong(api: Api, run: Run) -> None:
    """With every difference."""
    row = {"where": "tenant:acme", "expected": "5", "found": "6"}
    wrong = {"is_right": False, "differences": [row], "expected_micros": 5, "ledger_micros": 6}
    api.on("POST", "/v1/ledger/verify", wrong, wrong, {"is_right": True, "expected_micros": 5, "ledger_micros": 5})
    done = run("ledger", "verify")
    assert done.exit_code == 1 and "NOT RIGHT" in done.stdout and "tenant:acme: expected 5, found 6" in done.stdout
    assert run("ledger", "verify", "--json").exit_code == 1
    assert run("ledger", "verify").exit_code == 0


def test_tenant_settings_are_sent_in_the_apis_units(api: Api, run: Run) -> None:
    """Cards in thousandths, memory in MiB, 'none' as no limit."""
    api.on("POST", "/v1/tenants", {"tenant": "acme"})
    api.on("GET", "/v1/tenants/acme", {"tenant": "acme", "version": 1})
    api.on("PATCH", "/v1/tenants/acme", {"tenant": "acme", "version": 2})
    assert run("tenant", "create", "acme", "--sla", "gold", "--quota-gpus", "1.5", "--quota-gpu-memory", "80GiB").exit_code == 0
    assert run("tenant", "set", "acme", "--quota-gpus", "none", "--suspended").exit_code == 0
    assert api.sent() == [{"tenant": "acme", "name": "acme", "sla": "gold", "quota_gpu_milli": 1500, "quota_gpu_memory_mib": 81920}]
    assert api.sent("PATCH") == [{"quota_gpu_milli": None, "is_suspended": True, "version": 1}]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["tenant", "create", "acme", "--quota-gpus", "lots"], "--quota-gpus: 'lots' is no number of cards"),
        (["tenant", "set", "acme"], "nothing to change"),
        (["tenant", "credit", "acme", "ten"], "is no amount of money"),
        (["tenant", "credit", "acme", "0.0000001"], "at most six decimals"),
        (["frobnicate"], "No such command"),
        (["ps", "--limit", "0"], "0 is out of range; give 1 to"),
        (["logs", "x", "--rank", "two"], "'two' is not a whole number"),
        (["tenant", "set", "acme", "--weight", "-3"], "-3 is out of range; give 0 to"),
    ],
)
def test_bad_usage_is_exit_code_two_and_sends_nothing(api: Api, run: Run, arguments: list[str], said: str) -> None:
    """What is wrong is named."""
    done = run(*arguments)
    assert done.exit_code == 2 and said in " ".join((done.stderr + done.stdout).split()) and api.requests == []


def test_a_new_token_stands_alone_on_standard_output(api: Api, run: Run) -> None:
    """So that it can be piped to where it belongs."""
    api.on("POST", "/v1/tenants/acme/tokens", {"token": "gpy_x", "name": "ci"})
    assert run("tenant", "token", "acme", "--name", "ci").stdout == "gpy_x\n"


def test_doctor_says_what_is_not_well_and_how_to_fix_it(api: Api, run: Run) -> None:
    """One line for each check; exit code 1 if any fails."""
    api.on("GET", "/v1/health", httpx.Response(200, json={"status": "ready"}, headers={"date": "Thu, 01 Jan 1970 00:00:00 GMT"}))
    api.on("GET", "/v1/me", {"actor": "operator/admin"})
    api.on("GET", "/v1/nodes", {"nodes": [{"node_id": "n1", "status": "ready"}, {"node_id": "n2", "status": "lost"}]})
    api.on("GET", "/v1/incidents", {"incidents": []})
    done = run("doctor")
    assert done.exit_code == 1
    for part in (
        "ok    api: answers",
        "FAIL  clock: this machine's is",
        "synchronise",
        "FAIL  nodes: 1 of 2 ready; not: n2",
        "ok    faults: none is open",
    ):
        assert part in done.stdout
    assert {row["check"]: row["is_well"] for row in json.loads(run("doctor", "--json").stdout)["items"]}["nodes"] is False


def test_doctor_without_an_api_is_exit_code_four(api: Api, run: Run) -> None:
    """And says how to start one."""
    api.on("GET", "/v1/health", refused)
    done = run("doctor")
    assert done.exit_code == 4 and "make up" in done.stdout


def test_login_keeps_the_token_only_once_the_api_has_taken_it(api: Api, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A wrong one leaves nothing behind."""
    from functools import partial

    from gpuyard.client import Client

    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr("gpuyard.client.Client", partial(Client, handler=httpx.MockTransport(api.handle)))
    api.on("GET", "/v1/me", problem(401, "unauthenticated", "unknown token"), {"actor": "operator/admin", "tenant": None})
    arguments = ["login", "http://yard.test", "--token-file", "-"]
    assert CliRunner().invoke(build(), arguments, input="gpy_a\n").exit_code == 3 and not (tmp_path / "gpuyard").exists()
    done = CliRunner().invoke(build(), arguments, input="gpy_a\n")
    assert done.exit_code == 0 and "operator/admin" in done.stdout and "gpy_a" not in done.stdout
    assert (tmp_path / "gpuyard" / "token").read_text() == "gpy_a\n"


def test_every_command_explains_itself(run: Run) -> None:
    """And the exit codes stand at the top."""
    assert "Exit codes: 0 done" in " ".join(run("--help").stdout.split())
    for name in (
        "apply",
        "ps",
        "logs",
        "stop",
        "explain",
        "plan",
        "events",
        "cost",
        "trace",
        "nodes",
        "gpus",
        "queue",
        "login",
        "whoami",
        "doctor",
    ):
        assert run(name, "--help").exit_code == 0
    for name in ("cordon", "uncordon", "drain"):
        assert run("node", name, "--help").exit_code == 0


def test_a_command_is_the_same_whether_built_alone_or_with_all() -> None:
    """Only what was asked for is loaded; what each part is said to have is what it has."""
    whole = CliRunner().invoke(build(), ["--help"]).stdout
    for names in PARTS.values():
        for name in names.split():
            assert f"\n  {name} " in whole
            alone = CliRunner().invoke(build(name), [name, "--help"])
            assert (alone.exit_code, alone.stdout) == (0, CliRunner().invoke(build(), [name, "--help"]).stdout)
            assert "apply" in names or "\n  apply " not in CliRunner().invoke(build(name), ["--help"]).stdout
    assert sum(line.startswith("  ") and line[2:3].isalpha() for line in whole.partition("Commands:")[2].splitlines()) == sum(
        len(names.split()) for names in PARTS.values()
    )
