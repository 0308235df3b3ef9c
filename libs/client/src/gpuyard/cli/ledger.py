"""Commands about the ledger."""

from itertools import islice
from typing import Annotated

import typer

from gpuyard import amounts
from gpuyard.cli import output
from gpuyard.cli.session import FAILED, AsJson, client, command, meant, whole


def register(app: typer.Typer) -> None:
    """Add the commands."""
    ledger = typer.Typer(help="The double-entry ledger: what it says, and whether it is right.", no_args_is_help=True)
    command(ledger, "verify")(verify)
    command(ledger, "entries")(entries)
    app.add_typer(ledger, name="ledger")


def verify(as_json: AsJson = False) -> None:
    """Rebuild the money from the events and compare it with the ledger, to the unit. A difference is exit code 1."""
    with client() as yard:
        found = yard.verify_ledger()
    if as_json:
        output.print_json(found.raw)
    else:
        said = "the ledger is right" if found.is_right else "THE LEDGER IS NOT RIGHT"
        output.say(f"{said}: {amounts.show_money(found.ledger_micros)} booked, {amounts.show_money(found.expected_micros)} by the events")
        output.say(f"  {found.transactions} transactions, {found.entries} entries, {found.allocations} allocations, {found.events} events")
        if found.detail:
            output.say(f"  {found.detail}")
        for row in found.differences:
            output.say(f"  {row['where']}: expected {row['expected']}, found {row['found']}")
    if not found.is_right:
        raise typer.Exit(FAILED)


def entries(
    tenant: Annotated[str | None, typer.Option("--tenant", "-t", help="Only this tenant's.")] = None,
    job: Annotated[str | None, typer.Option("--job", help="Only this job's: id, name, or the beginning of either.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", parser=whole(1), metavar="N", help="How many at most.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List the ledger's entries in the order in which they were booked."""

    with client() as yard:
        job_id = None if job is None else meant(yard, job).job_id
        found = list(islice(yard.entries(tenant=tenant, job_id=job_id), limit))
    if as_json:
        output.print_items(entry.raw for entry in found)
        return
    rows = [
        (
            str(entry.entry_id),
            entry.kind,
            entry.account,
            amounts.show_money(entry.amount_micros),
            entry.currency,
            entry.job_id or "",
            entry.memo,
        )
        for entry in found
    ]
    output.table(("ENTRY", "KIND", "ACCOUNT", "AMOUNT", "", "JOB", "MEMO"), rows, whole=("ENTRY", "AMOUNT"), empty="the ledger is empty")
