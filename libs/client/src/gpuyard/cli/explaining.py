"""``gpuyard explain`` and ``gpuyard plan``: why a job waits, why it lies where it lies, and what would become of one."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuyard.cli import output
from gpuyard.cli.apply import read_files
from gpuyard.cli.jobs import Ref
from gpuyard.cli.session import AsJson, client, command, meant

if TYPE_CHECKING:
    from gpuyard.results import Explanation, Planned

_NAMES = 3
_TERMS = {
    "waste": "rests of cards that no usual job fills",
    "starved": "cards without the cores to use them",
    "kept": "nodes broken up that larger jobs want whole",
    "apart": "cards that are not linked with each other",
    "fragment": "cards of no use to the next job",
    "pack": "idle cards left on the node",
    "spread": "idle cards left on the node, the more the better",
}


def register(app: typer.Typer) -> None:
    """Add the commands."""
    command(app, "explain")(explain)
    command(app, "plan")(plan)


def instant(text: str) -> datetime:
    """An instant as people write it, local time unless it says otherwise. Raises BadParameter."""
    try:
        return datetime.fromisoformat(str(text)).astimezone()
    except (ValueError, OverflowError):
        raise typer.BadParameter(f"{text!r} is no instant; write it like 2026-03-01T12:30:00 or 2026-03-01T12:30:00Z") from None


At = Annotated[
    datetime | None,
    typer.Option("--at", parser=instant, metavar="INSTANT", help="What was in force then, such as 2026-03-01T12:30:00Z."),
]


def explain(ref: Ref, at: At = None, as_json: AsJson = False) -> None:
    """Why a job waits, when it may start and what would start it now; of a job that was placed, why there."""
    with client() as yard:
        job = meant(yard, ref)
        found = yard.explain(job.job_id, at=at)
    if as_json:
        output.print_json(found.raw)
        return
    output.say(f"{job.job_id}  {job.name}: {found.state}" + (f" ({found.reason})" if found.reason else ""))
    if found.since is not None:
        output.say(f"  since {_when(found.since)}")
    _waiting(found)
    if found.state not in ("queued", "submitted") and found.receipt is not None:
        _receipt(found.receipt, "placed")


def plan(
    file: Annotated[list[str], typer.Option("--file", "-f", help="A job file; '-' is standard input. May be given several times.")],
    tenant: Annotated[
        str | None, typer.Option("--tenant", "-t", envvar="GPUYARD_TENANT", help="For which tenant; needed with an operator's token.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """What would become of the jobs of a file if each were submitted now. Nothing is submitted."""
    jobs = read_files(file)
    with client() as yard:
        found = [(job, yard.plan(job.spec, tenant=tenant)) for job in jobs]
    if as_json:
        output.print_items(planned.raw for _, planned in found)
        return
    for job, planned in found:
        if planned.rejected:
            output.say(f"{job.name}: would be refused ({planned.rejected})")
        elif planned.places:
            output.say(f"{job.name}: would start at once")
        else:
            output.say(f"{job.name}: would wait ({planned.reason})")
        _waiting(planned)
        for place in planned.places:
            output.say(f"  rank {place['rank']} on {place['node_id']}: {', '.join(place['gpu_uuids'])}")
        if planned.receipt is not None:
            _receipt(planned.receipt, "would be placed")


def _waiting(found: "Explanation | Planned") -> None:
    """What keeps it, its place, what would help, when it may start, what the nodes say."""
    if found.detail:
        output.say(f"  {found.detail}")
    if found.binding is not None:
        output.say(f"  what binds: {found.binding['constraint']}, on {found.binding['nodes']} of {found.binding['of']} nodes")
    if found.position is not None:
        ahead = f"; ahead of it: {', '.join(found.ahead)}" if found.ahead else ""
        output.say(f"  place {found.position} of {max(found.waiting, found.position)} that wait{ahead}")
    if found.estimate is not None:
        _estimate(found.estimate)
    if found.suggestions:
        output.say("  each of these would start it now (tried, not guessed):")
        for each in found.suggestions:
            output.say(f"    {_change(each)}: {each['effect']}")
    if found.groups:
        rows = [(_names(row), "fits" if row["is_fit"] else str(row["constraint"]), str(row["detail"])) for row in found.groups]
        output.table(("NODES", "VERDICT", "DETAIL"), rows, whole=("NODES", "VERDICT"))


def _change(row: Mapping[str, Any]) -> str:
    if row["field"] == "stop":
        return f"stop your job {row['was']}"
    if not row["to"]:
        return f"leave out {row['field']} (now {row['was']})"
    return f"{row['field']}: {row['to']}" + (f" (now {row['was']})" if row["was"] else "")


def _names(row: Mapping[str, Any]) -> str:
    names: Sequence[str] = row["node_ids"]
    shown = ", ".join(names[:_NAMES])
    return shown if row["nodes"] <= _NAMES else f"{shown} and {row['nodes'] - min(_NAMES, len(names))} more"


def _estimate(row: Mapping[str, Any]) -> None:
    earliest, latest = (None if row[name] is None else datetime.fromisoformat(row[name]) for name in ("earliest", "latest"))
    if earliest is None:
        output.say(f"  start: not known; {row['assumption']}")
        return
    until = f"between {_when(earliest)} and {_when(latest)}" if latest is not None and latest > earliest else f"from {_when(earliest)}"
    accuracy = row["accuracy"]
    measured = "how good such estimates are is not measured yet"
    if accuracy["number"]:
        median, p90 = accuracy["median_ms"] / 1000, accuracy["p90_ms"] / 1000
        measured = f"the last {accuracy['number']} estimates were off by {median:.0f} s (median), {p90:.0f} s (p90)"
    output.say(f"  start: {until}, if {row['assumption']}")
    output.say(f"         {measured}")


def _when(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _receipt(row: Mapping[str, Any], verb: str) -> None:
    """Why there: how many places fitted; where there was a choice, how the chosen one and the next best compared, term by term."""
    turn, fits = row["turn"], row["fits"]
    output.say(f"  {verb} on {row['nodes']} of {fits} {'node' if fits == 1 else 'nodes'} that had the room (receipt {row['inputs'][:12]})")
    waited, share = turn["urgency"] / 4, turn["share_ppm"] / 10_000
    output.say(f"  its turn: priority {turn['rank']}, waited {waited:.2f} of what is promised, its tenant uses {share:.2f} % by weight")
    if fits <= row["nodes"]:
        return
    best = min(one["score"] for one in (*row["chosen"], *row["runners_up"]))
    terms = sorted({name for one in (*row["chosen"], *row["runners_up"]) for name in one["terms"]})
    rows = [
        [str(one["node_id"]), said, str(one["score"] - best), *(f"{one['terms'].get(name, 0) / 1_000_000:+.3f}" for name in terms)]
        for said, some in (("taken", row["chosen"]), ("next best", row["runners_up"]))
        for one in some
    ]
    output.table(("NODE", "", "BEHIND", *(name.upper() for name in terms)), rows, whole=("NODE", ""))
    output.say("  BEHIND: the score less the best one; the terms are GPUs that would stay unused because of the place:")
    output.say("  " + "; ".join(f"{name.upper()} {_TERMS[name]}" for name in terms if name in _TERMS))
