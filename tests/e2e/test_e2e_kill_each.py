"""Each process is killed under load: nothing is lost, nothing is doubled, the money is right."""

import pytest

from tests.support.yard import Yard

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

PROGRAMS = ("api", "scheduler", "placement", "monitor", "billing", "agent-sim-a100", "nats", "postgres")


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_killed_process_loses_and_doubles_nothing(yard: Yard, program: str) -> None:
    """Jobs asked for before and after the kill all succeed, each having run once; every card is free; the ledger is the events'."""
    tally = yard.tally()
    script = f'echo "$GPUYARD_JOB_ID" >> {tally}; sleep 0.3'
    jobs = [yard.shell(script, retries=0) for _ in range(8)]
    yard.stack.kill(program)
    jobs += [_asked(yard, script, f"{program}-{number}") for number in range(4)]
    ended = [yard.ended(job) for job in jobs]
    assert {job.state for job in ended} == {"succeeded"}, [(job.state, job.reason, job.detail) for job in ended]
    yard.ran_once(tally, jobs)
    yard.stack.wait_ready(program)
    yard.nothing_is_held()
    yard.money_is_right()


def _asked(yard: Yard, script: str, key: str):
    """Asked for with a key until there is an answer, as a program would: while the api is away it is no second job."""
    from gpuyard.errors import ApiError, Unreachable

    def ask():
        try:
            return yard.shell(script, name=f"after-{key}", key=f"after-{key}")
        except (Unreachable, ApiError):
            return None

    return yard.until("an answer", ask)


def test_a_killed_supervisor_is_replaced_by_a_new_start(yard: Yard) -> None:
    """What a killed supervisor left behind is ended by exact identity, and a running job lives through it all."""
    job = yard.shell("sleep 12; echo through")
    yard.running(job)
    from gpuyard_local import leftovers

    yard.stack.kill(leftovers.SUPERVISOR)
    assert yard.stack.start(seconds=120)
    ended = yard.ended(job)
    assert (ended.state, ended.attempt) == ("succeeded", 1), (ended.reason, ended.detail)
    assert "through" in yard.log(ended)
    yard.nothing_is_held()
