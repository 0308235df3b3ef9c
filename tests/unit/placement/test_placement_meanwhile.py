"""Heartbeats while the database is away: the work of the fleet does not stop for it."""

import pytest
from gpuyard_contracts.messages.placement import NodeStatusChangedV1, StopV1
from gpuyard_runtime.faults import Refused

from tests.unit.placement.fleet import Fleet, cards, facts, one, running


def test_a_heartbeat_from_a_unit_that_failed_counts_as_heard_and_is_judged_again() -> None:
    """The database is away: the lease is renewed, the node is not silent, and the next heartbeat does the work."""
    fleet = Fleet("a", "b", "c")
    ghost = running(one("ghost"), at=fleet.now)
    fleet.h.clock.advance(4)
    fleet.h.database.is_away = True
    assert fleet.beat("a", ghost).is_accepted
    fleet.h.database.is_away = False
    fleet.h.clock.advance(4)
    fleet.h.tick("watch")
    assert [found.node_id for found in fleet.h.said_of(NodeStatusChangedV1)] == ["b", "c"]
    fleet.beat("a", ghost)
    assert [type(found) for found in fleet.h.said if isinstance(found, StopV1)] == [StopV1]


def test_a_database_that_is_away_does_not_end_leases() -> None:
    """A known node is answered although its list would change something; what it runs is judged when the database is back."""
    fleet = Fleet("a")
    fleet.start(one("j"))
    count = len(fleet.h.said)
    fleet.h.database.is_away = True
    for _ in range(5):
        fleet.h.clock.advance(5)
        assert fleet.beat("a").is_accepted
    with pytest.raises(Refused):
        fleet.beat("a", agent_id="agent-2")
    with pytest.raises(Refused):
        fleet.beat("b", found=facts(*cards("b")))
    assert len(fleet.h.said) == count
    fleet.h.database.is_away = False
    fleet.h.tick("watch")
    assert fleet.state("a").status == "ready"
    for _ in range(3):
        fleet.h.clock.advance(1)
        fleet.beat("a")
    assert len(fleet.h.said_of(StopV1)) == 1
