"""User ids of workloads: whose is which, and when a number is free again."""

import pytest
from gpuyard_contracts.messages.node import WorkloadRefusedV1
from gpuyard_node_agent.domain.uids import Uids, next_uid, uids_of
from gpuyard_node_agent.settings import AgentSettings
from pydantic import ValidationError

from tests.unit.node_agent.agent_world import JOB, OTHER, World

RANGE = Uids(5000, 5002)
THIRD, FOURTH = "job-cccccccccccccccc", "job-dddddddddddddddd"


def uid_of(world: World, key: str) -> int | None:
    """What the keeper was told to run it as."""
    launch = world.keeper.held[key].launch
    assert launch is not None
    return launch.uid


def test_a_range_is_read_and_what_is_none_is_not() -> None:
    """Numbers below 1000 are the system's own."""
    assert uids_of(" 200000-265535 ") == Uids(200_000, 265_535)
    for wrong in ("", "200000", "200000-", "-5", "20-30", "3000-2000", "1000-4294967295", "a-b", "٣٠٠٠-٤٠٠٠"):
        with pytest.raises(ValueError, match="user ids"):
            uids_of(wrong)


def test_the_setting_is_a_range_or_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Anything else ends the agent with a configuration error."""
    assert AgentSettings(node_id="n1").workload_uids is None
    monkeypatch.setenv("GPUYARD_WORKLOAD_UIDS", "200000-265535")
    assert AgentSettings(node_id="n1").workload_uids == Uids(200_000, 265_535)
    monkeypatch.setenv("GPUYARD_WORKLOAD_UIDS", "0-10")
    with pytest.raises(ValidationError):
        AgentSettings(node_id="n1")


@pytest.mark.parametrize(
    ("used", "after", "wanted"),
    [
        (set[int](), 0, 5000),
        ({5000}, 5000, 5001),
        (set[int](), 5001, 5002),
        (set[int](), 5002, 5000),
        ({5000, 5002}, 5002, 5001),
        ({5000, 5001, 5002}, 5001, None),
        ({5000, 5001, 5002, 9000}, 5001, None),
        (set[int](), 9000, 5000),
    ],
)
def test_the_next_free_number_comes_after_the_last_one(used: set[int], after: int, wanted: int | None) -> None:
    """Around the end of the range; None where all are taken. A range that was changed begins anew."""
    assert next_uid(RANGE, used, after) == wanted


def test_living_workloads_have_each_a_number_of_their_own(world: World) -> None:
    """The fourth of three is refused for now, and may start elsewhere."""
    world.agent.uids = RANGE
    keys = [world.run(job, gpus=(index,)) for index, job in enumerate((JOB, OTHER, THIRD))]
    assert [uid_of(world, key) for key in keys] == [5000, 5001, 5002]
    world.run(FOURTH, gpus=(3,))
    (refused,) = world.said(WorkloadRefusedV1)
    assert (refused.reason, refused.is_permanent) == ("no-room", False)


def test_a_number_is_free_when_its_workload_is_gone_and_given_again_last(world: World) -> None:
    """Not while it is only told to stop."""
    world.agent.uids = RANGE
    first = world.run(JOB)
    world.ask_stop(JOB)
    assert uid_of(world, world.run(OTHER, gpus=(1,))) == 5001
    world.end(first, number=15)
    assert uid_of(world, world.run(THIRD, gpus=(2,))) == 5002
    assert uid_of(world, world.run(FOURTH, gpus=(3,))) == 5000


def test_the_next_agent_knows_who_has_which_number_and_which_was_given_last(world: World) -> None:
    """The journal has it, through being written anew too."""
    world.agent.uids = RANGE
    first, second = world.run(JOB), world.run(OTHER, gpus=(1,))
    world.end(second, code=0)
    for _ in range(2):
        world.restart()
    assert world.agent.store.workloads[first].uid == 5000
    world.agent.uids = RANGE
    assert uid_of(world, world.run(THIRD, gpus=(2,))) == 5002


def test_an_order_that_never_reached_its_keeper_is_given_again_with_the_same_number(world: World) -> None:
    """Its folders are that user's already."""
    world.agent.uids = RANGE
    world.keeper.is_deaf = True
    key = world.run(JOB)
    world.keeper.is_deaf = False
    world.restart()
    assert uid_of(world, key) == 5000
    world.agent.uids = RANGE
    assert uid_of(world, world.run(OTHER, gpus=(1,))) == 5001
