"""The steps of proof: the money against the intervals, and one trace from the request to the ledger."""

import shutil
from datetime import datetime

from gpuyard.cli import waterfall

from gpuyard_local.demo.stage import Stage

HOUR_MS = 3_600_000


def money(stage: Stage) -> None:
    """The ledger is what the intervals say, for one job by hand and for everything by rebuilding it from the events."""
    stage.title("money: the ledger against the intervals")
    acme = stage.clients["acme"]
    job_id = stage.jobs["counter"]
    cost = stage.until("the final bill", lambda: acme.cost(job_id), lambda found: found.is_final)
    expected = sum(_expected(stage, row.models, row.started_at, row.billed_until) for row in cost.rows)
    stage.say(f"counter: {len(cost.rows)} attempts, {cost.total_gpu_ms / 1000:.1f} GPU-seconds, {cost.total_micros} micro-{cost.currency}")
    stage.check(
        len(cost.rows) == 2 and cost.total_micros == expected > 0, f"two intervals times the price are {expected}: equal to the unit"
    )
    spent = -sum(entry.amount_micros for entry in acme.entries(job_id=job_id) if entry.account == "revenue")
    stage.check(spent == cost.total_micros, "the ledger's entries for the job sum to the same")
    _everything_is_billed(stage)
    report = stage.admin.verify_ledger()
    stage.say(
        f"verify: {report.events} events, {report.allocations} allocations, {report.transactions} transactions, {report.entries} entries"
    )
    stage.check(report.is_right and report.ledger_micros == report.expected_micros > 0, "the money rebuilt from the events is the ledger's")


def _everything_is_billed(stage: Stage) -> None:
    """Wait until the last ended job's money is there: billing is beside a job's way."""
    for tenant in ("acme", "beta"):
        stage.until(f"{tenant}'s bills", lambda tenant=tenant: all(row.is_final for row in stage.clients[tenant].usage(limit=500).rows))


def _expected(stage: Stage, models: tuple[str, ...], start: datetime | None, end: datetime | None) -> int:
    """Price × cards × time by hand, rounded half to even."""
    if start is None or end is None:
        return -1
    book = stage.admin.prices()["versions"][-1]
    prices = {row["model"]: row["micros_per_gpu_hour"] for row in book["prices"]}
    held_ms = (end - start) // (end - end).resolution // 1000
    micros = sum(prices.get(model, prices.get("*", 0)) for model in models) * held_ms
    whole, rest = divmod(micros, HOUR_MS)
    return whole + (rest * 2 > HOUR_MS or (rest * 2 == HOUR_MS and whole % 2 == 1))


def trace(stage: Stage) -> None:
    """One job's trace as a waterfall."""
    stage.title("one trace, from the request to the ledger")
    job_id = stage.jobs["matmul"]
    found = stage.until("a complete trace", lambda: stage.clients["acme"].trace(job_id), lambda seen: seen.is_complete)
    for line in waterfall.draw(found, width=min(76, shutil.get_terminal_size().columns - 4)):
        stage.say(line)
    names = [step.name for step in found.steps]
    wanted = ("job.queued", "job.placing", "allocation.committed", "workload.started", "allocation.started", "job.running")
    wanted += ("workload.ended", "allocation.released", "job.ended", "ledger.posted")
    missing = [name for name in wanted if name not in names]
    services = {step.service for step in found.steps}
    stage.check(not missing and bool(found.trace_id), f"{len(names)} steps of {len(services)} services under trace {found.trace_id}")
