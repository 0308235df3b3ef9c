"""The way out: every event again and again until a stream has it, each lane in order."""

import asyncio
from typing import Any

import pytest
from gpuyard_contracts.envelope import Envelope
from gpuyard_contracts.messages.node import HealthEventV1
from gpuyard_node_agent.outlet import Outlet
from gpuyard_runtime.faults import Unavailable

from tests.unit.node_agent.agent_world import START


def event(name: str) -> Envelope[Any]:
    """Some event."""
    return Envelope(id=name, source="s", time=START, data=HealthEventV1(node_id="n1", boot_id="b", kind="booted", at=START))


class Stream:
    """A stream that refuses each event so many times."""

    def __init__(self, refusals: dict[str, int]) -> None:
        self.refusals = refusals
        self.taken: list[str] = []

    async def publish(self, told: Envelope[Any]) -> None:
        """Take it, or not yet."""
        await asyncio.sleep(0)
        if self.refusals.get(told.id, 0) > 0:
            self.refusals[told.id] -= 1
            raise Unavailable("full")
        self.taken.append(told.id)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try again at once."""
    monkeypatch.setattr("gpuyard_node_agent.outlet.FIRST_PAUSE_SECONDS", 0.0)


async def test_a_lane_keeps_its_order_whatever_the_stream_refuses() -> None:
    """And other lanes do not wait for it."""
    stream = Stream({"a1": 3, "a2": 1})
    said: list[str] = []
    outlet = Outlet(stream.publish, lambda told: said.append(told.id))
    for lane, name in (("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1")):
        outlet.put(lane, event(name))
    assert await outlet.idle(10)
    assert [name for name in stream.taken if name.startswith("a")] == ["a1", "a2", "a3"]
    assert stream.taken.index("b1") == 0
    assert said == stream.taken
    assert (outlet.waiting, outlet.published, outlet.problem) == (0, 4, None)


async def test_while_a_stream_refuses_the_reason_is_told() -> None:
    """For /readyz."""
    stream = Stream({"a": 10**9})
    outlet = Outlet(stream.publish, lambda told: None)
    outlet.put("a", event("a"))
    assert not await outlet.idle(0.01)
    assert outlet.problem == "full"
    assert outlet.waiting == 1
    await outlet.close()


async def test_what_must_be_out_before_is_waited_for_and_its_failure_holds_nothing_up() -> None:
    """Last lines before the end."""
    stream = Stream({})
    outlet = Outlet(stream.publish, lambda told: None)
    order: list[str] = []

    async def lines() -> None:
        order.append("lines")
        raise RuntimeError("broken")

    outlet.put("a", event("start"))
    outlet.put("a", event("end"), lines)
    assert await outlet.idle(10)
    assert order == ["lines"]
    assert stream.taken == ["start", "end"]
