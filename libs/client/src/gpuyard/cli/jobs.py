"""Commands about jobs: ps, logs, stop, events, cost, trace. A job is named by id, name, or the beginning of either."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from gpuyard.cli import output
from gpuyard.cli.session import FAILED, AsJson, client, command, meant, whole

if TYPE_CHECKING:
    from gpuyard.results import Event, Job

Ref = Annotated[str, typer.Argument(metavar="JOB", help="Id or name of the job, or the beginning of either if only one begins so.")]

LIVE = ("submitted", "queued", "placing", "starting", "running", "stopping")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    command(app, "ps")(ps)
    command(app, "logs")(logs)
    command(app, "stop")(stop)
    command(app, "events")(events)
    command(app, "cost")(cost)
    command(app, "trace")(trace)


def ps(
    everything: Annotated[bool, typer.Option("--all", "-a", help="Ended jobs too.")] = False,
    state: Annotated[str | None, typer.Option("--state", "-s", help="Only these states, divided by commas.")] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", "-t", help="Only this tenant's.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", parser=whole(1, 100_000), metavar="N", help="How many at most.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List jobs, the youngest first: those that are not over, unless asked otherwise."""
    from itertools import islice

    with client() as yard:
        wanted = [part.strip() for part in state.split(",")] if state else None if everything else list(LIVE)
        found = list(islice(yard.list(state=wanted, tenant=tenant, limit=min(limit, 200)), limit))
    if as_json:
        output.print_items(job.raw for job in found)
        return
    several = len({job.tenant for job in found}) > 1
    headers = ["JOB", *(["TENANT"] if several else []), "NAME", "STATE", "ASKED", "AGE", "WHERE OR WHY"]
    rows = [_row(job, several=several) for job in found]
    output.table(
        headers,
        rows,
        whole=("JOB", "STATE", "AGE"),
        empty="no jobs" if everything or state else "no jobs now; `gpuyard ps -a` shows ended ones",
    )


def _row(job: "Job", *, several: bool) -> list[str]:
    state = f"{job.state}?" if job.is_unknown and not job.is_ended else job.state
    where = ", ".join(job.nodes) if job.state in ("running", "starting", "placing", "stopping") else job.reason.removeprefix("cancelled-")
    asked = output.ask_of(job.gpu, job.ranks)
    return [job.job_id, *([job.tenant] if several else []), job.name, state, asked, output.age(job.submitted_at), where]


def logs(
    ref: Ref,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job ends.")] = False,
    rank: Annotated[int | None, typer.Option("--rank", "-r", parser=whole(0), metavar="N", help="Only this rank's.")] = None,
    tail: Annotated[int | None, typer.Option("--tail", "-n", parser=whole(0), metavar="N", help="Only so many lines from before.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show what a job writes."""
    from gpuyard.cli.streams import show_logs

    with client() as yard:
        job = meant(yard, ref)
        if follow and job.state in ("submitted", "queued", "placing", "starting"):
            from gpuyard.cli.progress import Progress

            with Progress() as progress:
                job = yard.wait(job.job_id, until=lambda found: found.is_ended or found.state == "running", seen=progress.seen)
        show_logs(yard, job, follow=follow, rank=rank, tail=tail, as_json=as_json)


def stop(
    ref: Ref,
    reason: Annotated[str, typer.Option("--reason", help="Why, for the record.")] = "",
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Wait until it has ended.")] = False,
    as_json: AsJson = False,
) -> None:
    """End a job: at once if it waits, with its grace if it runs."""
    from gpuyard import naming

    with client() as yard:
        job = naming.find(yard, ref, live_only=True)
        if job.is_ended:
            output.note(f"{job.job_id} had ended already: {job.state}")
        else:
            job = yard.cancel(job.job_id, reason)
            if wait:
                job = yard.wait(job.job_id)
    if as_json:
        output.print_json(job.raw)
    else:
        output.say(f"{job.job_id}  {job.name}: {job.state}" if job.is_ended else f"{job.job_id}  {job.name}: was told to stop")


def events(
    ref: Annotated[str | None, typer.Argument(metavar="JOB", help="Only this job's events.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as more come.")] = False,
    after: Annotated[
        int | None, typer.Option("--after", parser=whole(0, 10**18), metavar="N", help="Only those behind this number.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what happened, event by event."""

    with client() as yard:
        if ref is None:
            stream = yard.all_events(follow=follow, after=after)
        else:
            stream = yard.events(meant(yard, ref).job_id, follow=follow, after=after)
        for event in stream:
            if as_json:
                output.print_json_line(event.raw)
            else:
                output.say(_event_line(event, with_job=ref is None))


def _event_line(event: "Event", *, with_job: bool) -> str:
    data = event.data
    said = [str(data[name]) for name in ("state", "node_id", "reason", "cause", "detail") if data.get(name)]
    if event.name.startswith("workload.") and data.get("rank") is not None:
        said.insert(0, f"rank {data['rank']}")
    job = f" {event.job_id}" if with_job and event.job_id else ""
    return f"{event.seq:>6}  {output.clock(event.at)}  {event.name}{job}" + (f"  {': '.join(said)}" if said else "")


def cost(
    ref: Annotated[str | None, typer.Argument(metavar="JOB", help="One job; without it, all that was used.")] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", "-t", help="Only this tenant's.")] = None,
    as_json: AsJson = False,
) -> None:
    """What a job, or everything, has cost so far."""
    from gpuyard import amounts

    with client() as yard:
        found = yard.usage(tenant=tenant, limit=1000) if ref is None else yard.cost(meant(yard, ref).job_id)
    if as_json:
        output.print_json(found.raw)
        return
    rows = [
        (
            row.allocation_id,
            "+".join(row.models),
            amounts.show_ms(row.held_ms),
            amounts.show_ms(row.gpu_ms),
            amounts.show_money(row.amount_micros) + ("" if row.is_final else " so far"),
        )
        for row in found.rows
    ]
    output.table(("ALLOCATION", "CARDS", "HELD", "GPU TIME", "COST"), rows, whole=("ALLOCATION", "COST"), empty="nothing has been used yet")
    if found.next_cursor is not None:
        output.note("(only the first 1000 are listed)")
    output.say(f"in total {amounts.show_money(found.total_micros, found.currency)}")
    if not all(row.is_final for row in found.rows):
        output.note("(what still runs is booked about once a minute, and at its end)")


def trace(ref: Ref, as_json: AsJson = False) -> None:
    """A job's way from the request to the ledger, as a waterfall."""
    from gpuyard.cli.waterfall import draw

    with client() as yard:
        found = yard.trace(meant(yard, ref).job_id)
    if as_json:
        output.print_json(found.raw)
        return
    for line in draw(found, width=output.width_of(sys.stdout), is_utf8=output.is_utf8(sys.stdout)):
        output.say(line)
    if not found.steps:
        raise typer.Exit(FAILED)
