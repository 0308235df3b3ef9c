"""Job files: what they become, and what is said of wrong ones."""

import pytest
from gpuyard import jobfile
from gpuyard.errors import BadJobFile, FieldProblem
from gpuyard_contracts.spec import JobSpec
from hypothesis import given
from hypothesis import strategies as st

FULL = """
name: train
run: |
  python3 prepare.py
  python3 train.py --epochs 3
gpu: A100-80GB:2
ranks: 4
cpus: 1.5
memory: 16GiB
priority: high
zone: north
max_time: 1h30m
start_timeout: 2m
retries: 3
grace: 30s
env:
  DEBUG: yes
  EPOCHS: 007
labels: {team: vision}
node_labels: {disk: nvme}
"""


def problems_of(text: str) -> list[str]:
    """What is said of a file that cannot be read."""
    with pytest.raises(BadJobFile) as caught:
        jobfile.read(text, "train.yaml")
    return [str(problem) for problem in caught.value.problems]


def test_every_field_becomes_what_the_api_takes() -> None:
    """Units end up in the names that carry them."""
    (job,) = jobfile.read(FULL)
    assert job.spec == {
        "name": "train",
        "command": ["/bin/sh", "-ec", "python3 prepare.py\npython3 train.py --epochs 3\n"],
        "gpu": "A100-80GB:2",
        "ranks": 4,
        "cpu_milli": 1500,
        "memory_mib": 16384,
        "priority": "high",
        "zone": "north",
        "max_seconds": 5400,
        "start_timeout_seconds": 120,
        "retries": 3,
        "grace_seconds": 30,
        "env": {"DEBUG": "yes", "EPOCHS": "007"},
        "labels": {"team": "vision"},
        "node_labels": {"disk": "nvme"},
    }


def test_what_a_file_becomes_is_a_job_for_the_contracts() -> None:
    """The two sides agree on every field."""
    spec = JobSpec.model_validate(jobfile.read(FULL)[0].spec)
    assert spec.gpu.models == ("A100-80GB",) and spec.gpu.count == 2 and spec.max_seconds == 5400


def test_scalars_stay_the_text_that_was_written() -> None:
    """YAML's opinions on yes, 007, 1e3 and 22:30 do not reach the job."""
    (job,) = jobfile.read("run: x\ngpu: 1\nenv: {A: yes, B: 007, C: 1e3, D: 22:30, E: 1.50, F: , G: ''}\nlabels: {v: 1.10}")
    assert job.spec["env"] == {"A": "yes", "B": "007", "C": "1e3", "D": "22:30", "E": "1.50", "F": "", "G": ""}
    assert job.spec["labels"] == {"v": "1.10"} and job.spec["gpu"] == "1"


def test_several_documents_are_several_jobs_and_a_missing_name_is_the_files() -> None:
    """Numbered where there are several."""
    assert [job.name for job in jobfile.read("run: a\n---\nname: b\nrun: b\n---\n", "jobs/train.yaml")] == ["train-1", "b"]
    assert jobfile.read("run: a", "jobs/train.v2.yaml")[0].name == "train"


def test_a_command_list_stays_as_it_is() -> None:
    """No shell comes in between."""
    assert jobfile.read("command: [python3, -c, 'print(1)']")[0].spec["command"] == ["python3", "-c", "print(1)"]


def test_gpu_may_be_written_out() -> None:
    """As the api takes it, with whole numbers."""
    text = "run: a\ngpu:\n  count: 2\n  models: [T4, A100]\n  memory_mib: 15000\n"
    assert jobfile.read(text)[0].spec["gpu"] == {"count": 2, "models": ["T4", "A100"], "memory_mib": 15000}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("run: a\ngpuu: 1", "train.yaml:2: gpuu: is not a known field; did you mean 'gpu'?"),
        ("run: a\ngpus: 1", "train.yaml:2: gpus: is not a known field; write 'gpu', such as gpu: A100-80GB:2"),
        ("run: a\nresources: {gpu: 1}", "train.yaml:2: resources: is not a known field; gpuyard's job files are flat"),
        ("run: a\nmax_seconds: 60", "train.yaml:2: max_seconds: is not a known field; in job files it is 'max_time'"),
        ("run: a\nmemory: 16", "train.yaml:2: memory: '16' is no amount of memory; write it with its unit"),
        ("run: a\nmax_time: soon", "train.yaml:2: max_time: 'soon' is no duration; write it like"),
        ("run: a\ncpus: 1.23456", "train.yaml:2: cpus: '1.23456' is finer than a thousandth"),
        ("run: a\nranks: two", "train.yaml:2: ranks: 'two' is not a whole number"),
        ("run: a\nranks: 0", "train.yaml:2: ranks: 0 is out of range; give 1 to 1024"),
        ("run: a\nretries: 3.5", "train.yaml:2: retries: '3.5' is not a whole number"),
        ("run: a\npriority: urgent", "train.yaml:2: priority: 'urgent' is not a priority; write low, normal or high"),
        ("run: a\nrun: b", "train.yaml:2: run: is given twice (before in line 1); leave one of them"),
        ("run: a\ncommand: [b]", "train.yaml:2: command: cannot stand beside the other of 'run' and 'command'"),
        ("gpu: 1", "train.yaml:1: run: is missing; say what to run"),
        ("run:", "train.yaml:1: run: is empty; give it a value or leave it out"),
        ("run: [a, b]", "train.yaml:1: run: must be a single value"),
        ("command: python3", "train.yaml:1: command: must be a list"),
        ("run: a\nenv: [A, B]", "train.yaml:2: env: must be a mapping"),
        ("run: a\nenv:\n  A: {b: c}", "train.yaml:3: env: must be a single value"),
        ("run: a\nenv: {A: 1, A: 2}", "train.yaml:2: env: 'A' is given twice"),
        ("run: a\ngpu: {cuont: 1}", "train.yaml:2: gpu: 'cuont' is not a known field of gpu"),
        ("- run: a", "train.yaml:1: a job is a mapping"),
        ("just words", "train.yaml:1: a job is a mapping"),
        ("run: 'a", "train.yaml:1: is not YAML: found unexpected end of stream"),
        ("a: b\n\tc: d", "train.yaml:2: is not YAML"),
        ("", "train.yaml: has no job in it"),
        ("---\n---\n", "train.yaml: has no job in it"),
        ("# nothing\n", "train.yaml: has no job in it"),
    ],
)
def test_a_wrong_file_is_told_with_line_field_and_fix(text: str, said: str) -> None:
    """Each in one line."""
    assert problems_of(text)[0].startswith(said)


def test_all_problems_of_all_documents_are_told_at_once() -> None:
    """Nobody has to run it five times."""
    found = problems_of("run: a\ngpuu: 1\nmemory: 16\n---\nname: b\nranks: x\nrun: b\n")
    assert [line.split(": ", 2)[:2] for line in found] == [["train.yaml:2", "gpuu"], ["train.yaml:3", "memory"], ["train.yaml:6", "ranks"]]


def test_aliases_that_multiply_do_not_eat_the_memory() -> None:
    """A bomb of aliases is refused like any wrong value."""
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [{','.join([f'*{chr(97 + n)}'] * 9)}]\n" for n in range(9)
    )
    assert any("is not a known field" in line for line in problems_of(bomb))


def test_the_apis_complaints_are_placed_in_the_file() -> None:
    """By the names that stand in the file, with their lines."""
    (job,) = jobfile.read("name: a\nrun: |\n  x\ngpu: Z9:1\nmax_time: 1h\nenv:\n  RANK: 1\n", "t.yaml")
    told = jobfile.locate(
        job,
        [
            FieldProblem("gpu", "no such card"),
            FieldProblem("max_seconds", "too long", "at most a year"),
            FieldProblem("command.2", "too long"),
            FieldProblem("env.RANK", "is set by gpuyard"),
            FieldProblem("ranks", "odd"),
        ],
    )
    assert [(problem.line, problem.field) for problem in told] == [(4, "gpu"), (5, "max_time"), (2, "run"), (6, "env.RANK"), (1, "ranks")]
    assert str(told[1]) == "t.yaml:5: max_time: too long; at most a year"


@given(st.text(max_size=300))
def test_any_text_is_read_or_refused_with_reasons(text: str) -> None:
    """No other error comes out, whatever a file holds."""
    try:
        jobs = jobfile.read(text)
    except BadJobFile as bad:
        assert bad.problems
    else:
        assert all(job.spec["command"] for job in jobs)
