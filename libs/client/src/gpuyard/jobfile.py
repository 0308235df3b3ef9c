"""Job files: YAML for people, read into what ``POST /v1/jobs`` takes.

Promise: nothing is guessed and nothing is lost. Every scalar is taken as it is written (`env: {DEBUG: yes}` stays the text ``yes``, a
multi-line `run` keeps its lines), unknown fields are refused with their line and the name that was probably meant, and all problems of
a file are told at once. The api checks the job again and has the last word; :func:`locate` turns its complaints into lines of the file.
Read :func:`read` first.
"""

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from gpuyard import amounts
from gpuyard.errors import BadJobFile, FieldProblem, FileProblem

SHELL = ("/bin/sh", "-ec")
"""What runs a `run` text: it stops at the first line that fails."""

MAX_FILE_BYTES = 4 * 1024 * 1024

_GPU_FIELDS = ("count", "milli", "share_memory_mib", "memory_mib", "memory_max_mib", "models", "mig_profile")

_HINTS: Mapping[str, str] = {
    "commands": "write the lines under 'run: |'",
    "script": "write the lines under 'run: |'",
    "setup": "write it as the first lines of 'run: |'",
    "resources": "gpuyard's job files are flat: write gpu, cpus and memory at the top",
    "nodes": "write 'ranks' for the number of processes",
    "num_nodes": "write 'ranks' for the number of processes",
    "replicas": "write 'ranks' for the number of processes",
    "envs": "write 'env'",
    "environment": "write 'env'",
    "accelerators": "write 'gpu', such as gpu: A100-80GB:2",
    "gpus": "write 'gpu', such as gpu: A100-80GB:2",
    "max_duration": "write 'max_time', such as max_time: 2h",
    "timeout": "write 'max_time', such as max_time: 2h",
    "retry": "write 'retries', such as retries: 3",
    "image": "leave it out: jobs run as processes on the node",
    "type": "leave it out: every job file describes jobs",
}


@dataclass(frozen=True, slots=True)
class Job:
    """One job of a file: `spec` is the body for the api, `lines` the line of each field in the file (field names of the file)."""

    spec: dict[str, Any]
    file: str
    line: int
    lines: Mapping[str, int]

    @property
    def name(self) -> str:
        """What the job is called."""
        return str(self.spec["name"])


class _Wrong(Exception):
    """One field cannot be read."""

    def __init__(self, node: yaml.Node | None, message: str, fix: str = "") -> None:
        super().__init__(message)
        self.node = node
        self.fix = fix


def _text(node: yaml.Node) -> str:
    if not isinstance(node, yaml.ScalarNode):
        raise _Wrong(node, "must be a single value, not a list or a mapping")
    if node.tag.endswith(":null"):
        raise _Wrong(node, "is empty", "give it a value or leave it out")
    return str(node.value)


def _texts(node: yaml.Node) -> list[str]:
    if not isinstance(node, yaml.SequenceNode):
        raise _Wrong(node, "must be a list", "write it like [python3, train.py]")
    return [_text(part) for part in node.value]


def _mapping(node: yaml.Node) -> dict[str, str]:
    if not isinstance(node, yaml.MappingNode):
        raise _Wrong(node, "must be a mapping", "write one 'NAME: value' a line under it")
    found: dict[str, str] = {}
    for key, value in node.value:
        name = _text(key)
        if name in found:
            raise _Wrong(key, f"{name!r} is given twice")
        found[name] = "" if isinstance(value, yaml.ScalarNode) and value.value in ("", "~") else _text(value)
    return found


def _number(at_least: int, at_most: int = 10**9) -> Callable[[yaml.Node], int]:
    return lambda node: amounts.whole(_text(node), at_least=at_least, at_most=at_most)


def _gpu(node: yaml.Node) -> Any:
    if not isinstance(node, yaml.MappingNode):
        return _text(node)
    asked: dict[str, Any] = {}
    for key, value in node.value:
        name = _text(key)
        if name not in _GPU_FIELDS:
            raise _Wrong(
                key, f"{name!r} is not a known field of gpu", f"known are {', '.join(_GPU_FIELDS)}; or write it short: gpu: A100-80GB:2"
            )
        plain = name in ("models", "mig_profile")
        asked[name] = _texts(value) if name == "models" else _text(value) if plain else amounts.whole(_text(value), at_most=2**40)
    return asked


def _priority(node: yaml.Node) -> str:
    text = _text(node)
    if text not in ("low", "normal", "high"):
        raise _Wrong(node, f"{text!r} is not a priority", "write low, normal or high")
    return text


def _yes(node: yaml.Node) -> bool:
    text = _text(node)
    if text not in ("true", "false"):
        raise _Wrong(node, f"{text!r} is neither true nor false", "write true or false")
    return text == "true"


@dataclass(frozen=True, slots=True)
class _Field:
    to: str
    read: Callable[[yaml.Node], Any]


_FIELDS: Mapping[str, _Field] = {
    "name": _Field("name", _text),
    "run": _Field("command", lambda node: [*SHELL, _text(node)]),
    "command": _Field("command", _texts),
    "env": _Field("env", _mapping),
    "gpu": _Field("gpu", _gpu),
    "ranks": _Field("ranks", _number(1, 1024)),
    "cpus": _Field("cpu_milli", lambda node: amounts.cpu_milli(_text(node))),
    "memory": _Field("memory_mib", lambda node: amounts.memory_mib(_text(node))),
    "priority": _Field("priority", _priority),
    "spot": _Field("spot", _yes),
    "zone": _Field("zone", _text),
    "node_labels": _Field("node_labels", _mapping),
    "labels": _Field("labels", _mapping),
    "max_time": _Field("max_seconds", lambda node: amounts.seconds(_text(node))),
    "start_timeout": _Field("start_timeout_seconds", lambda node: amounts.seconds(_text(node))),
    "retries": _Field("retries", _number(0, 100)),
    "grace": _Field("grace_seconds", lambda node: amounts.seconds(_text(node)) if _text(node).strip() not in ("0", "0s") else 0),
}

FIELDS = tuple(_FIELDS)
"""The fields of a job file."""


def read(text: str, file: str = "job.yaml") -> list[Job]:
    """All jobs of a file, in order; several are divided by ``---``. Raises :class:`BadJobFile` with every problem found."""
    if len(text.encode("utf-8", "replace")) > MAX_FILE_BYTES:
        raise BadJobFile([FileProblem(file, 0, "", "is larger than 4 MiB", "put the program into a file of its own")])
    try:
        documents = [node for node in yaml.compose_all(text, Loader=yaml.SafeLoader) if node is not None and not _is_empty(node)]
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BadJobFile([_unreadable(error, file)]) from None
    if not documents:
        raise BadJobFile([FileProblem(file, 0, "", "has no job in it", "write for example: name, run and gpu, one a line")])
    problems: list[FileProblem] = []
    stem = file.rsplit("/", 1)[-1].split(".", 1)[0] or "job"
    names = [stem if len(documents) == 1 else f"{stem}-{place}" for place in range(1, len(documents) + 1)]
    jobs = [_job(node, file, name, problems) for node, name in zip(documents, names, strict=True)]
    if problems:
        raise BadJobFile(problems)
    return [job for job in jobs if job is not None]


def _is_empty(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag.endswith(":null")


def _line(node: yaml.Node | None) -> int:
    return 0 if node is None else node.start_mark.line + 1


def _unreadable(error: Exception, file: str) -> FileProblem:
    mark: Any = getattr(error, "problem_mark", None)
    said = str(getattr(error, "problem", None) or error).split("\n", 1)[0]
    fix = (
        "indent with spaces, not with tabs"
        if "\\t" in said
        else "look for a missing ':' or quote, or a wrong indent, here or one line above"
    )
    return FileProblem(file, 0 if mark is None else mark.line + 1, "", f"is not YAML: {said}", fix)


def _job(node: yaml.Node, file: str, name: str, problems: list[FileProblem]) -> Job | None:
    """One document. Appends what is wrong to `problems`, and goes on to find everything that is."""
    if not isinstance(node, yaml.MappingNode):
        problems.append(FileProblem(file, _line(node), "", "a job is a mapping", "write it as 'name: …', 'run: …', 'gpu: …', one a line"))
        return None
    spec: dict[str, Any] = {}
    lines: dict[str, int] = {}
    before = len(problems)
    for key, value in node.value:
        field = str(key.value) if isinstance(key, yaml.ScalarNode) else "?"
        if problem := _take(field, key, value, spec, lines):
            problems.append(FileProblem(file, problem.line, problem.field, problem.message, problem.fix))
    if "command" not in spec and len(problems) == before:
        problems.append(FileProblem(file, _line(node), "run", "is missing", "say what to run: 'run: python3 train.py'"))
    spec.setdefault("name", name)
    return Job(spec, file, _line(node), lines)


def _take(field: str, key: yaml.Node, value: yaml.Node, spec: dict[str, Any], lines: dict[str, int]) -> FileProblem | None:
    """Read one field into `spec`; the problem if it cannot be (its file is the caller's to fill in)."""
    known = _FIELDS.get(field)
    if known is None:
        return FileProblem("", _line(key), field, "is not a known field", _meant(field))
    if field in lines:
        return FileProblem("", _line(key), field, f"is given twice (before in line {lines[field]})", "leave one of them")
    lines[field] = _line(key)
    if known.to in spec:
        return FileProblem("", _line(key), field, "cannot stand beside the other of 'run' and 'command'", "leave one of them")
    try:
        spec[known.to] = known.read(value)
    except _Wrong as wrong:
        return FileProblem("", _line(wrong.node or value), field, str(wrong), wrong.fix)
    except ValueError as error:
        message, _, fix = str(error).partition("; ")
        return FileProblem("", _line(value), field, message, fix)
    return None


def _meant(field: str) -> str:
    if field in _HINTS:
        return _HINTS[field]
    by_api = {known.to: name for name, known in _FIELDS.items() if known.to != "command"}
    if field in by_api:
        return f"in job files it is {by_api[field]!r}"
    near = difflib.get_close_matches(field, FIELDS, n=1, cutoff=0.6)
    return f"did you mean {near[0]!r}?" if near else f"known are {', '.join(FIELDS)}"


def locate(job: Job, problems: Sequence[FieldProblem]) -> list[FileProblem]:
    """The api's complaints about a job, as places in its file."""
    names = {known.to: name for name, known in _FIELDS.items() if name in job.lines or known.to != "command"}
    told: list[FileProblem] = []
    for problem in problems:
        head, _, rest = problem.field.removeprefix("body.").removeprefix("spec.").partition(".")
        name = names.get(head, head)
        field = f"{name}.{rest}" if rest and name not in ("run", "command") else name
        told.append(FileProblem(job.file, job.lines.get(name, job.line), field, problem.message, problem.fix))
    return told
