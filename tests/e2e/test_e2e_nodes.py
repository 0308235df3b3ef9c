"""Nodes that fall silent, freeze, overheat, are cordoned and drained."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from gpuyard_local import faults

from tests.support.yard import Yard

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]


def test_a_frozen_agent_loses_its_jobs_and_leaves_no_process(yard: Yard) -> None:
    """B49: the job of a node that is cut off past its lease runs elsewhere; when the node is back, exactly one process is left."""
    tally = yard.tally()
    job = yard.shell(f"echo $$ >> {tally}; sleep 25", gpu="1", node_labels={})
    first = yard.running(job).placement[0]
    agent = f"agent-{first.node_id}"
    yard.stack.signal(agent, signal.SIGSTOP)
    try:
        flagged = yard.until("the flag", lambda: yard.client("acme").get(job.job_id), lambda seen: seen.is_unknown or seen.attempt > 1)
        assert flagged.attempt == 1, "nothing is moved before the lease is over"
        moved = yard.until(
            "the move", lambda: yard.client("acme").get(job.job_id), lambda seen: seen.attempt == 2 and seen.state == "running"
        )
        assert moved.placement[0].node_id != first.node_id
    finally:
        yard.stack.signal(agent, signal.SIGCONT)
    old, new = (int(pid) for pid in yard.until("both starts", lambda: tally.read_text().split(), lambda pids: len(pids) == 2))
    yard.until("the old process's end", lambda: not Path(f"/proc/{old}").exists())
    assert Path(f"/proc/{new}").exists()
    yard.until("the node's return", yard.admin.nodes, lambda nodes: all(node.status == "ready" for node in nodes))
    assert yard.ended(job).state == "succeeded"
    yard.nothing_is_held()
    yard.money_is_right()


def test_a_short_silence_changes_nothing(yard: Yard) -> None:
    """A node that is silent for less than its lease is unknown, and its job goes on as the same process."""
    job = yard.shell("sleep 14", gpu="A100:1")
    node = yard.running(job).placement[0].node_id
    yard.stack.signal(f"agent-{node}", signal.SIGSTOP)
    yard.until("unknown", yard.admin.nodes, lambda nodes: any(found.node_id == node and found.status == "unknown" for found in nodes))
    yard.stack.signal(f"agent-{node}", signal.SIGCONT)
    ended = yard.ended(job)
    assert (ended.state, ended.attempt, ended.is_unknown) == ("succeeded", 1, False)


def test_a_killed_agents_job_is_adopted_with_its_output_and_exit_code(yard: Yard) -> None:
    """The workload outlives the agent; what it says and how it ends while nobody looks is not lost."""
    job = yard.shell("echo before; sleep 1.5; echo after; exit 7", gpu="T4:1")
    yard.running(job)
    yard.stack.kill("agent-sim-t4")
    ended = yard.ended(job)
    assert (ended.state, ended.exit_code, ended.attempt) == ("failed", 7, 1)
    assert yard.log(ended).split() == ["before", "after"]


def test_the_whole_group_is_killed_after_the_grace(yard: Yard) -> None:
    """A job that ignores SIGTERM, with a child in a session of its own, is gone after its grace."""
    tally = yard.tally()
    stubborn = f"trap '' TERM; echo $$ >> {tally}; while :; do sleep 0.2; done"
    script = f'setsid sh -c "{stubborn.replace("$", chr(92) + "$")}" & {stubborn}'
    job = yard.shell(script, grace_seconds=1)
    yard.running(job)
    pids = yard.until("both processes", lambda: tally.read_text().split(), lambda found: len(found) == 2)
    yard.client("acme").cancel(job.job_id, "enough")
    assert yard.ended(job).state == "cancelled"
    for pid in pids:
        yard.until("its end", lambda pid=pid: not _lives(int(pid)))


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_hot_card_is_left_and_comes_back(yard: Yard) -> None:
    """Heat: incident with evidence, cordon by it, the job elsewhere from its checkpoint; cooled down, all of it is undone."""
    script = (
        "n=$(cat $GPUYARD_CHECKPOINT_DIR/n 2>/dev/null || echo 0); echo from $n; "
        "while [ $n -lt 120 ]; do n=$((n+1)); echo $n > $GPUYARD_CHECKPOINT_DIR/n; sleep 0.1; done"
    )
    job = yard.shell(script)
    first = yard.running(job).placement[0]
    faults.inject(yard.stack, first.node_id, "temperature", gpu=first.gpus[0], value=95)
    try:
        ended = yard.ended(job)
        assert ended.state == "succeeded"
        assert ended.attempt == 2
        assert ended.placement[0].gpus != first.gpus
        begins = [int(line.split()[1]) for line in yard.log(ended).splitlines() if line.startswith("from")]
        assert begins[0] == 0 < begins[1]
        hot = next(gpu for gpu in yard.admin.gpus() if gpu.uuid == first.gpus[0])
        assert hot.cordons[0]["holder"].startswith("incident/")
    finally:
        faults.inject(yard.stack, first.node_id, "recover", gpu=first.gpus[0])
    yard.until("the card's return", yard.admin.gpus, lambda gpus: all(not gpu.cordons for gpu in gpus))


def test_a_drained_node_is_emptied_and_gets_nothing_until_it_is_uncordoned(yard: Yard) -> None:
    """INV-9: what ran there runs elsewhere, what asks for it waits, and it works again afterwards."""
    job = yard.shell("sleep 4", gpu="1")
    node = yard.running(job).placement[0].node_id
    yard.admin.drain(node, "new fan")
    try:
        ended = yard.ended(job)
        assert ended.state == "succeeded"
        assert ended.placement[0].node_id != node
        models = {"sim-t4": "T4", "sim-a100": "A100"}
        waits = yard.shell("true", gpu=f"{models[node]}:1")
        told = yard.until(
            "the reason", lambda: yard.client("acme").explain(waits.job_id), lambda found: found.state == "queued" and bool(found.verdicts)
        )
        assert any("cordon" in str(verdict) for verdict in told.verdicts)
    finally:
        yard.admin.uncordon(node)
    assert yard.ended(waits).state == "succeeded"
    yard.nothing_is_held()


def test_a_database_that_hangs_for_longer_than_a_lease_stops_no_work(yard: Yard) -> None:
    """Leases go on while placement cannot write: a job that runs, and one that ends meanwhile, are both told right afterwards."""
    long, short = yard.shell("sleep 28; echo through"), yard.shell("sleep 6")
    pid = [yard.running(job) for job in (long, short)] and yard.stack.process("postgres")
    assert pid is not None
    with frozen(yard, pid.pid):
        yard.until("placement's word", lambda: yard.unready("placement"), lambda told: "database" in told)
        yard.until("more than a lease", clock_after(20.0))
    ended = [yard.ended(job) for job in (long, short)]
    assert [(job.state, job.attempt) for job in ended] == [("succeeded", 1)] * 2, [(job.reason, job.detail) for job in ended]
    yard.stack.wait_ready(seconds=60)
    yard.nothing_is_held()
    yard.money_is_right()


def clock_after(seconds: float) -> Callable[[], bool]:
    """Turns true when that much time has passed: the outage itself is what is tested."""
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


@contextmanager
def frozen(yard: Yard, postmaster: int) -> Iterator[None]:
    """The database with all its backends, stopped in mid-work."""
    children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
    pids = [postmaster, *map(int, children)]
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
