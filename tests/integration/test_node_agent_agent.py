"""The whole agent on a real bus with real processes: a job's life, kills, drains, silence, faults."""

import asyncio
import json
import signal
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from gpuyard_contracts.messages.node import (
    HealthEventV1,
    LogLinesV1,
    TelemetryV1,
    UsageTickV1,
    WorkloadEndedV1,
    WorkloadRefusedV1,
    WorkloadStartedV1,
)
from gpuyard_contracts.permissions import of_node, of_operator
from gpuyard_local.bus_config import text
from gpuyard_local.embedded import LOOPBACK, free_port
from gpuyard_local.nats import Nats
from gpuyard_node_agent.processes import procfs

from tests.support.node_site import JOB, OTHER, Site
from tests.support.servers import start_nats

NODES = [f"n-{number}" for number in range(16)]
PASSWORD = "p" * 22
_UNUSED = iter(NODES)


@pytest.fixture(scope="module")
def bus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nats]:
    """A bus on which every node has its own rights and nothing else."""
    folder = tmp_path_factory.mktemp("bus")
    given = {"operator": of_operator()} | {f"node-{node}": of_node(node) for node in NODES}
    port = free_port()
    config = text(listen=f"{LOOPBACK}:{port}", store=folder / "jetstream", hashes=dict.fromkeys(given, PASSWORD), given=given)
    server = Nats(folder, config, port, is_tied=True)
    server.start()
    yield server
    server.stop()


@pytest.fixture
async def site(bus: Nats, tmp_path: Path) -> AsyncIterator[Site]:
    """A node of its own."""
    found = Site(tmp_path, bus.url, next(_UNUSED), password=PASSWORD)
    await found.open()
    yield found
    await found.close()


def is_alive(pid: int) -> bool:
    """Whether a process runs."""
    found = procfs.stat_of(pid)
    return found is not None and found.state != "Z"


def readiness(site: Site) -> tuple[int, dict[str, str]]:
    """What /readyz says."""
    port = (site.folder / "port").read_text()
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=10) as answer:
            return answer.status, json.load(answer)["reasons"]
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)["reasons"]


async def test_a_job_lives_from_its_order_to_its_end(site: Site) -> None:
    """Heartbeat with the machine, process with its cards, output, end, use; the order is gone from the queue."""
    await site.working_agent()
    first = site.heard[0]
    assert [(gpu.model, gpu.memory_mib) for gpu in first.facts.gpus] == [("T4", 15_360)] * 4
    assert (first.facts.cpu_milli, first.facts.backend) == (48_000, "simulated")
    script = "env | sort; echo bad >&2; echo state > $GPUYARD_CHECKPOINT_DIR/it; pwd; sleep 600"
    await site.order(script, gpus=(1, 3), env={"MINE": "ä b"})
    pid = await site.started()
    assert is_alive(pid)
    beat = await site.until("running", lambda: [beat for beat in site.heard if beat.running])
    assert [(found.allocation_id, found.pid) for found in beat[0].running] == [(f"{JOB}-1", pid)]
    await site.hear(UsageTickV1)
    work = site.folder / "state" / "work" / f"{JOB}-1.0"
    assert work.is_dir()
    await site.until("its output", lambda: str(work) in site.printed())
    await site.stop()
    ended = await site.hear(WorkloadEndedV1)
    assert (ended.cause, ended.signal) == ("stopped", 15)
    printed = "\n".join(site.printed())
    assert f"CUDA_VISIBLE_DEVICES=GPU-sim-{site.node_id}-1,GPU-sim-{site.node_id}-3" in printed
    assert "MINE=ä b" in printed
    assert "A_SECRET_OF_THE_AGENT" not in printed
    assert "NATS" not in printed
    assert (site.folder / "checkpoints" / f"{JOB}.0" / "it").read_text() == "state\n"
    last = await site.hear(UsageTickV1, lambda tick: any(held.held_ms == ended.held_ms for held in tick.held))
    assert next(held.gpu_ms for held in last.held if held.allocation_id == f"{JOB}-1") == 2 * ended.held_ms


async def test_the_last_lines_are_on_the_bus_before_the_end_is(site: Site) -> None:
    """An early failure says why (B51)."""
    await site.working_agent()
    await site.order("echo starting; echo 'ImportError: no module' >&2; exit 3")
    ended = await site.hear(WorkloadEndedV1)
    assert (ended.cause, ended.exit_code, ended.detail) == ("exited", 3, "ImportError: no module")
    await site.until("both streams", lambda: len({message.stream for message in site.all(LogLinesV1) if message.is_last}) == 2)
    assert sorted(site.printed()) == ["ImportError: no module", "starting"]


async def test_what_cannot_be_started_is_refused_for_good_and_nobody_waits_for_it(site: Site) -> None:
    """Unreadable and foreign orders block nothing either."""
    await site.working_agent()
    await site.bus.send(f"gpuyard.cmd.node-agent.{site.node_id}.start.v1", b"{not json")
    await site.bus.send(f"gpuyard.cmd.node-agent.{site.node_id}.explode.v1", b"{}")
    await site.order("", command=("/no/such/program",))
    await site.order("", job=OTHER, command=("python-that-is-not-there",))
    await site.order("exit 0", job="job-cccccccccccccccc", gpus=(2,))
    await site.hear(WorkloadEndedV1, lambda told: told.exit_code == 0)
    refusals = await site.until("two refusals", lambda: found if len(found := site.all(WorkloadRefusedV1)) == 2 else [])
    assert {(told.reason, told.is_permanent) for told in refusals} == {("bad-command", True)}
    assert len(site.all(WorkloadStartedV1)) == 1


async def test_a_killed_agent_is_followed_by_one_that_adopts_what_runs(site: Site) -> None:
    """Same pid, one start, exit code kept although it ended while nobody was there."""
    agent = await site.working_agent()
    await site.order("echo once; while [ ! -e stop ]; do sleep 0.05; done; exit 5")
    await site.order("echo other; sleep 600", job=OTHER, gpus=(1,))
    pid, other = await site.started(), await site.started(OTHER)
    await site.until("its output", lambda: "once" in site.printed())
    await site.kill(agent)
    (site.folder / "state" / "work" / f"{JOB}-1.0" / "stop").touch()
    await site.until("its end", lambda: procfs.stat_of(pid) is None)
    assert is_alive(other)
    await site.working_agent()
    ended = await site.hear(WorkloadEndedV1)
    assert (ended.job_id, ended.cause, ended.exit_code) == (JOB, "exited", 5)
    beat = site.heard[-1]
    assert [(found.job_id, found.pid) for found in beat.running] == [(OTHER, other)]
    await site.stop(job=OTHER, grace_ms=0)
    await site.hear(WorkloadEndedV1, lambda told: told.job_id == OTHER)
    assert len(site.all(WorkloadStartedV1)) == 2
    assert site.printed().count("once") == 1


async def test_an_agent_that_is_told_to_end_leaves_the_work_alone(site: Site) -> None:
    """SIGTERM, also in the middle of a start: exit 0, what runs goes on, orders wait for the next agent."""
    agent = await site.working_agent()
    for number in range(8):
        await site.order("sleep 600", job=f"job-{'abcdefgh'[number] * 16}", gpus=(), cpu_milli=100, memory_mib=64)
    await site.until("a start", lambda: site.all(WorkloadStartedV1))
    assert await site.kill(agent, signal.SIGTERM) == 0
    await site.order("exit 0", gpus=(2,))
    await site.working_agent()
    started = await site.until("all of them", lambda: found if len(found := site.all(WorkloadStartedV1)) == 9 else [])
    assert len({told.job_id for told in started}) == 9
    assert all(is_alive(told.pid) for told in started if told.job_id != JOB)
    await site.hear(WorkloadEndedV1, lambda told: told.job_id == JOB and told.exit_code == 0)


async def test_a_node_that_is_not_answered_fences_itself_and_takes_no_order_from_before(site: Site) -> None:
    """The work is killed when the lease ends; what was ordered meanwhile is too old (B49)."""
    site.lease_ms = 1_000
    await site.working_agent()
    await site.order("trap '' TERM; while :; do sleep 0.1; done")
    pid = await site.started()
    site.is_answering = False
    await site.until("the fence", lambda: not is_alive(pid))
    ended = await site.hear(WorkloadEndedV1)
    assert ended.cause == "fenced"
    await site.order("sleep 600", job=OTHER, attempt=1)
    refused = await site.hear(WorkloadRefusedV1)
    assert refused.reason == "lease-over"
    site.is_answering, site.lease_ms = True, 30_000
    beats = len(site.heard)
    await site.until("answers", lambda: len(site.heard) > beats + 1)
    await site.order("exit 0", job=OTHER, attempt=2)
    await site.hear(WorkloadEndedV1, lambda told: told.attempt == 2 and told.job_id == OTHER)


async def test_work_is_fenced_though_the_agent_is_dead(site: Site) -> None:
    """The next agent tells of it, and the lease counts as lost."""
    site.lease_ms = 1_500
    agent = await site.working_agent()
    await site.order("sleep 600")
    pid = await site.started()
    await site.kill(agent)
    await site.until("the fence", lambda: not is_alive(pid))
    await site.order("sleep 600", job=OTHER)
    await site.working_agent()
    assert (await site.hear(WorkloadEndedV1)).cause == "fenced"
    assert (await site.hear(WorkloadRefusedV1)).reason == "order-too-old"


async def test_two_agents_never_share_a_folder(site: Site) -> None:
    """The second one ends with a configuration error."""
    await site.working_agent()
    second = await site.start_agent()
    async with asyncio.timeout(60):
        assert await second.wait() == 78


async def test_faults_of_simulated_cards_are_injected_and_told(site: Site) -> None:
    """Heat, errors, a lost card, a hung observer, silence; heartbeats go on whatever the observer does."""
    await site.working_agent()
    await site.hear(TelemetryV1)
    await site.inject("temperature", gpu="1", value=93)
    await site.inject("ecc", gpu="0", value=2)
    await site.inject("lost", gpu="3")
    hot = await site.hear(TelemetryV1, lambda told: told.gpus[1].temperature_c == 93)
    assert hot.gpus[0].temperature_c is not None
    assert (await site.hear(HealthEventV1, lambda told: told.kind == "ecc-uncorrectable")).count == 2
    await site.hear(HealthEventV1, lambda told: told.kind == "gpu-lost")
    lost = await site.until("lost", lambda: [beat for beat in site.heard if beat.lost_gpus])
    assert len(lost[0].facts.gpus) == 3
    await site.inject("hang")
    await site.hear(HealthEventV1, lambda told: told.kind == "observer-hung")
    beats = len(site.heard)
    await site.until("heartbeats", lambda: len(site.heard) > beats + 3)
    assert len(site.heard[-1].facts.gpus) == 3
    assert "cards" in readiness(site)[1]
    await site.inject("recover")
    await site.hear(HealthEventV1, lambda told: told.kind == "gpu-back")
    await site.hear(HealthEventV1, lambda told: told.kind == "observer-back")
    await site.inject("silence")
    await site.until("silence", lambda: len(site.heard))
    quiet = len(site.heard)
    await asyncio.sleep(0.5)
    assert len(site.heard) <= quiet + 1
    await site.inject("recover")
    await site.until("heartbeats", lambda: len(site.heard) > quiet + 3)


async def test_health_says_why_the_agent_is_not_ready(site: Site) -> None:
    """No answer to the heartbeat is a reason; metrics are there."""
    await site.working_agent()
    await site.until("ready", lambda: readiness(site)[0] == 200)
    site.is_answering = False
    await site.until("not ready", lambda: "heartbeat" in readiness(site)[1])
    port = (site.folder / "port").read_text()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    assert 'gpuyard_agent_workloads{state="running"} 0.0' in text
    assert "gpuyard_agent_lease_held 1.0" in text


async def test_while_the_bus_is_away_work_goes_on_and_everything_is_told_later(tmp_path: Path) -> None:
    """Ends, output and use are spooled on disk, through a kill of the agent too."""
    server = start_nats(tmp_path / "bus")
    site = Site(tmp_path, server.url, "n-away")
    await site.open()
    try:
        agent = await site.working_agent()
        await site.order("echo before; while [ ! -e stop ]; do sleep 0.05; done; echo after; exit 4")
        pid = await site.started()
        await site.until("its output", lambda: "before" in site.printed())
        await site.hear(UsageTickV1)
        server.kill()
        (site.folder / "state" / "work" / f"{JOB}-1.0" / "stop").touch()
        await site.until("its end", lambda: not is_alive(pid))
        await site.until("the record of its end", lambda: b'"t":"end"' in (site.folder / "state" / "journal").read_bytes())
        await site.kill(agent)
        await site.disconnect()
        server.start()
        site.said.clear()
        await site.connect()
        await site.working_agent()
        ended = await site.hear(WorkloadEndedV1)
        assert (ended.cause, ended.exit_code) == ("exited", 4)
        assert [told.pid for told in site.all(WorkloadStartedV1)] == [pid]
    finally:
        await site.close()
        server.stop()
