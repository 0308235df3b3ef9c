"""Placement as a whole: it hears what the topology brings it, shows numbers, and takes sound settings only."""

from datetime import timedelta
from importlib.resources import files

import pytest
from gpuyard_contracts.messages.placement import NodeCordonV1
from gpuyard_contracts.topology import durables_of, kinds_of
from gpuyard_placement.app import SERVICE
from gpuyard_placement.metrics import gauges
from gpuyard_placement.settings import PlacementSettings
from pydantic import ValidationError

from tests.unit.placement.fleet import Fleet, one, release


def test_every_message_of_its_durables_has_a_handler() -> None:
    """No more and no less."""
    assert set(SERVICE.handlers) == {kind for durable in durables_of("placement") for kind in kinds_of(durable)}


def test_the_migrations_are_in_the_package() -> None:
    """An installed placement can bring its schema up."""
    assert [entry.name for entry in (files("gpuyard_placement") / "migrations").iterdir() if entry.name.endswith(".sql")] == [
        "0001_placement.sql"
    ]


def test_numbers_are_read_from_the_rows() -> None:
    """Free capacity has no counter: what is held is what the rows say."""
    fleet = Fleet("a", "b")
    fleet.start(one("j"))
    fleet.h.feed(one("k", "GPU-a-1", milli=250), NodeCordonV1(node_id="b", holder="operator/eve"), release(one("nothing")))
    shown = gauges(fleet.store)
    assert shown["placement_nodes"] == {(("status", "ready"),): 2.0}
    assert shown["placement_allocations"] == {(("state", "committed"),): 1.0, (("state", "running"),): 1.0}
    assert (shown["placement_gpus"], shown["placement_gpu_milli_held"], shown["placement_cordons"]) == (8.0, 1250.0, 1.0)
    assert shown["placement_ignored"] == {(("reason", "released-before-placed"),): 1.0}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"lease_ms": 5000, "unknown_after_seconds": 5}, "must be shorter than lease_ms"),
        ({"rendezvous_first_port": 30000, "rendezvous_last_port": 20000}, "must not be above"),
        ({"drain_at_once": 0}, "greater than or equal to 1"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(given: dict[str, int], says: str) -> None:
    """The message names what is wrong."""
    with pytest.raises(ValidationError, match=says):
        PlacementSettings(**given)


def test_settings_become_the_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the environment to the domain."""
    monkeypatch.setenv("GPUYARD_LEASE_MS", "9000")
    monkeypatch.setenv("GPUYARD_UNKNOWN_AFTER_SECONDS", "2.5")
    policy = PlacementSettings().policy()
    assert (policy.lease, policy.unknown_after) == (timedelta(seconds=9), timedelta(seconds=2.5))
