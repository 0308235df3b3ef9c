"""Plans: committed whole or refused whole, with numbers."""

import pytest
from gpuyard_contracts.messages.placement import (
    AllocationCommittedV1,
    AllocationRefusedV1,
    NodeCordonV1,
    NodeStateV1,
    StartV1,
    StopV1,
)
from gpuyard_contracts.messages.scheduler import PlaceV1

from tests.unit.placement.fleet import (
    Fleet,
    cards,
    ended,
    facts,
    gang,
    gpu,
    one,
    orders,
    place,
    release,
    running,
    slice_of,
    started,
)


def _refusal(fleet: Fleet, plan: PlaceV1) -> AllocationRefusedV1:
    said = fleet.h.feed(plan)
    assert [type(found) for found in said] == [AllocationRefusedV1], said
    assert isinstance(said[0], AllocationRefusedV1)
    return said[0]


def test_a_plan_that_holds_is_committed_with_its_start_orders_and_states() -> None:
    """One unit says the commit, one start order for each rank, and the new state of every touched node once."""
    fleet = Fleet("a", "b")
    said = fleet.h.feed(gang("j", "a", "b", "a"))
    assert [type(found) for found in said] == [AllocationCommittedV1, StartV1, StartV1, StartV1, NodeStateV1, NodeStateV1]
    committed = said[0]
    assert isinstance(committed, AllocationCommittedV1)
    assert committed.models == {"GPU-a-0": "A100-80GB", "GPU-b-0": "A100-80GB", "GPU-a-1": "A100-80GB"}
    assert committed.gpu_memory_mib["GPU-b-0"] == 81920
    assert committed.at == fleet.now
    assert orders(said) == [("a", 0), ("b", 1), ("a", 2)]
    assert [(hold.rank, hold.slices[0].gpu_uuid) for hold in fleet.state("a").holds] == [(0, "GPU-a-0"), (2, "GPU-a-1")]
    assert fleet.held() == {"GPU-a-0": 1000, "GPU-a-1": 1000, "GPU-b-0": 1000}


def test_the_gang_meets_at_rank_zero_on_a_port_of_its_own() -> None:
    """Every rank gets rank 0's address; two live gangs with rank 0 on one node never share a port; numbers on the node count from 0."""
    fleet = Fleet("a", "b")
    first = [found for found in fleet.h.feed(gang("one", "b", "a", "b")) if isinstance(found, StartV1)]
    second = [found for found in fleet.h.feed(place("two", ("b", (slice_of("GPU-b-2"),)))) if isinstance(found, StartV1)]
    assert {order.rendezvous.master_addr for order in first} == {"10.0.0.2"}
    ports = {order.rendezvous.master_port for order in first}
    assert len(ports) == 1
    assert all(20_000 <= port <= 29_999 for port in ports)
    assert ports.isdisjoint({order.rendezvous.master_port for order in second})
    places = [(order.rendezvous.local_rank, order.rendezvous.local_world_size, order.rendezvous.world_size) for order in first]
    assert places == [(0, 2, 3), (0, 1, 3), (1, 2, 3)]


def test_three_replicas_get_three_disjoint_pairs() -> None:
    """B31: cards of one node are handed out by UUID, and never twice."""
    fleet = Fleet()
    fleet.beat("a", found=facts(*cards("a", 6)))
    pairs = [(0, 1), (2, 3), (4, 5)]
    plans = [place(f"r{number}", ("a", tuple(slice_of(f"GPU-a-{card}") for card in pair))) for number, pair in enumerate(pairs)]
    seen = [{part.gpu_uuid for part in found.slices} for plan in plans for found in fleet.h.feed(plan) if isinstance(found, StartV1)]
    assert seen == [{"GPU-a-0", "GPU-a-1"}, {"GPU-a-2", "GPU-a-3"}, {"GPU-a-4", "GPU-a-5"}]
    assert _refusal(fleet, place("r3", ("a", (slice_of("GPU-a-5"), slice_of("GPU-a-0"))))).reason == "slice-taken"


def test_shares_never_add_up_to_more_memory_than_the_card_has() -> None:
    """B35: of 24 jobs with 2000 MiB each on a card of 46068 MiB, 23 are committed."""
    fleet = Fleet()
    fleet.beat("a", found=facts(gpu("GPU-l40", memory_mib=46068)))
    for number in range(24):
        fleet.h.feed(one(f"j{number}", "GPU-l40", milli=41, memory_mib=2000))
    assert len(fleet.h.said_of(AllocationCommittedV1)) == 23
    (no,) = fleet.h.said_of(AllocationRefusedV1)
    assert no.reason == "slice-taken"
    assert no.detail == "GPU-l40 has 68 of 46068 MiB free, 2000 asked"
    assert sum(row.memory_mib for row in fleet.h.rows("slices_held")) == 46000


def test_shares_never_add_up_to_more_compute_than_the_card_has() -> None:
    """The detail says what is free and what was asked."""
    fleet = Fleet("a")
    fleet.h.feed(one("big", milli=750, memory_mib=1000))
    no = _refusal(fleet, one("more", milli=500, memory_mib=1000))
    assert (no.reason, no.detail) == ("slice-taken", "GPU-a-0 has 250 of 1000 milli-GPU free, 500 asked")
    assert fleet.held() == {"GPU-a-0": 750}


def test_the_ranks_of_one_plan_count_together() -> None:
    """Two shares of 600 on one card do not fit, though each alone would."""
    fleet = Fleet("a")
    no = _refusal(fleet, place("pair", ("a", (slice_of("GPU-a-0", 600, 10),)), ("a", (slice_of("GPU-a-0", 600, 10),))))
    assert no.reason == "slice-taken"
    assert fleet.held() == {}


def test_a_whole_card_is_held_alone() -> None:
    """Not even a share by memory alone lies beside the holder of a whole card, in either order."""
    fleet = Fleet("a")
    fleet.h.feed(one("whole", memory_mib=1000))
    assert _refusal(fleet, one("share", milli=0, memory_mib=10)).detail == "GPU-a-0 has 1 holders; a whole card is held alone"
    fleet.h.feed(one("first-share", "GPU-a-1", milli=0, memory_mib=10))
    assert _refusal(fleet, one("then-whole", "GPU-a-1", memory_mib=1000)).reason == "slice-taken"


def test_a_card_that_is_not_shared_is_held_whole_or_not_at_all() -> None:
    """An exclusive card takes no share."""
    fleet = Fleet()
    fleet.beat("a", found=facts(gpu("GPU-x", sharing="exclusive")))
    assert _refusal(fleet, one("share", "GPU-x", milli=500, memory_mib=10)).reason == "capacity"
    assert isinstance(fleet.h.feed(one("whole", "GPU-x"))[0], AllocationCommittedV1)


def test_cpu_and_memory_of_the_node_are_checked() -> None:
    """What the node's CPU cannot carry is refused with numbers."""
    fleet = Fleet("a")
    fleet.h.feed(one("first", cpu_milli=60_000))
    no = _refusal(fleet, one("second", "GPU-a-1", cpu_milli=5_000))
    assert (no.reason, no.detail) == ("capacity", "node a has 4000 of 64000 milli-CPU free, 5000 asked")
    no = _refusal(fleet, place("third", ("a", (slice_of("GPU-a-1"),)), memory_mib=600_000))
    assert (no.reason, no.detail) == ("capacity", "node a has 510976 of 512000 MiB of memory free, 600000 asked")


def test_one_bad_rank_refuses_the_whole_gang() -> None:
    """INV-2: a gang holds all its slices or none."""
    fleet = Fleet("a", "b")
    fleet.h.feed(one("sits", "GPU-b-0", "b"))
    no = _refusal(fleet, gang("gang", "a", "a", "b"))
    assert no.reason == "slice-taken"
    assert fleet.held() == {"GPU-b-0": 1000}
    assert fleet.state("a").holds == ()


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        (one("j", node_id="nowhere"), "node-unknown"),
        (one("j", "GPU-none"), "gpu-missing"),
        (place("j", ("a", (slice_of("GPU-a-0"), slice_of("GPU-a-0")))), "malformed-plan"),
        (one("j", ranks=2), "malformed-plan"),
        (one("j", milli=1001), "malformed-plan"),
        (one("j", milli=0, memory_mib=0), "malformed-plan"),
        (one("j").model_copy(update={"attempt": 2}), "malformed-plan"),
        (gang("j", "a", "a").model_copy(update={"ranks": gang("j", "a", "a").ranks[:1] * 2}), "malformed-plan"),
        (one("j", memory_mib=2**39), "capacity"),
    ],
)
def test_what_cannot_be_is_refused_with_its_reason(plan: PlaceV1, reason: str) -> None:
    """Nothing of a refused plan is held and no order is given."""
    fleet = Fleet("a")
    no = _refusal(fleet, plan)
    assert (no.reason, no.detail != "") == (reason, True)
    assert fleet.held() == {}


def test_nothing_is_placed_on_a_cordoned_node_or_card() -> None:
    """B48, INV-9: a plan made before the cordon is refused after it; other cards of the node stay free."""
    fleet = Fleet("a", "b")
    fleet.h.feed(
        NodeCordonV1(node_id="a", holder="operator/eve", reason="fan"), NodeCordonV1(node_id="b", holder="incident/x", gpu_uuid="GPU-b-1")
    )
    assert _refusal(fleet, one("j")).detail == "node a is cordoned by operator/eve"
    no = _refusal(fleet, one("k", "GPU-b-1", "b"))
    assert (no.reason, no.detail) == ("gpu-cordoned", "GPU-b-1 is cordoned by incident/x")
    assert isinstance(fleet.h.feed(one("m", "GPU-b-0", "b"))[0], AllocationCommittedV1)


def test_nothing_is_placed_on_a_silent_node() -> None:
    """A node that is unknown takes nothing new."""
    fleet = Fleet("a", "b", "c")
    fleet.pass_seconds(7, "b", "c")
    assert _refusal(fleet, one("j")).reason == "node-not-ready"


def test_a_card_that_fell_off_the_bus_is_missing() -> None:
    """B32, B45: a card that the node does not see any more is never given away, and its siblings are."""
    fleet = Fleet("a")
    fleet.beat("a", found=facts(*cards("a")[1:]))
    assert _refusal(fleet, one("j")).detail == "node a has lost GPU GPU-a-0"
    assert isinstance(fleet.h.feed(one("k", "GPU-a-1"))[0], AllocationCommittedV1)


def test_a_repeated_plan_gets_the_same_answer_and_no_second_hold() -> None:
    """B50: the same plan in another envelope is answered under the same event ids; no second start order is given."""
    fleet = Fleet("a")
    plan = one("j")
    fleet.h.feed(plan)
    fleet.h.feed(started(plan, at=fleet.now))
    first = [found.id for found in fleet.h.envelopes if found.data.TYPE.startswith("gpuyard.evt.placement.allocation.")]
    count = len(fleet.h.envelopes)
    said = fleet.h.feed(plan)
    assert [found.id for found in fleet.h.envelopes[count:]] == first
    assert orders(said) == []
    assert len(fleet.h.rows("slices_held")) == 1


def test_the_same_delivery_twice_says_nothing() -> None:
    """The inbox guards a redelivery."""
    fleet = Fleet("a")
    event = fleet.h.envelope(one("j"))
    assert fleet.h.feed(event) != []
    assert fleet.h.feed(event) == []


def test_a_refused_attempt_stays_refused() -> None:
    """The scheduler goes on with the next attempt; the old one must not be held for nobody when its plan comes again."""
    fleet = Fleet("a")
    fleet.h.feed(one("sits"))
    plan = one("j")
    assert _refusal(fleet, plan).reason == "slice-taken"
    fleet.h.feed(release(one("sits")), ended(one("sits"), at=fleet.now, cause="not-running"))
    assert _refusal(fleet, plan).reason == "stale-attempt"
    assert isinstance(fleet.h.feed(one("j", attempt=2))[0], AllocationCommittedV1)


def test_a_released_attempt_does_not_come_back_even_after_a_restart() -> None:
    """Attempts are fencing epochs: a plan of an old one is stale."""
    fleet = Fleet("a")
    plan = one("j")
    fleet.start(plan)
    fleet.h.feed(ended(plan, at=fleet.now))
    fleet.h.restart()
    assert _refusal(fleet, plan).detail == "attempt 1 is over; the next one is 2 or higher"


def test_two_attempts_of_one_job_never_hold_at_once() -> None:
    """INV-6: a younger attempt is refused while an older one holds anything."""
    fleet = Fleet("a")
    fleet.start(one("j"))
    no = _refusal(fleet, one("j", "GPU-a-1", attempt=2))
    assert (no.reason, no.detail) == ("stale-attempt", "attempt 1 of this job still holds its GPUs (running)")


def test_another_tenants_plan_for_the_same_job_is_refused() -> None:
    """The allocation of one tenant is never shown to another."""
    fleet = Fleet("a")
    fleet.h.feed(one("j"))
    foreign = one("j").model_copy(update={"tenant": "beta"})
    assert _refusal(fleet, foreign).reason == "stale-attempt"


def test_a_release_that_overtook_its_plan_closes_the_attempt() -> None:
    """The plan that comes after its own release is refused, so that nothing starts that nobody wants."""
    fleet = Fleet("a")
    assert fleet.h.feed(release(one("j"))) == []
    assert _refusal(fleet, one("j")).reason == "stale-attempt"


def test_slices_freed_in_a_unit_can_be_held_in_the_same_unit() -> None:
    """What is free is derived, so the order of deliveries is all that matters."""
    fleet = Fleet("a")
    old, new = one("old"), one("new")
    fleet.start(old)
    said = fleet.h.feed(ended(old, at=fleet.now), new)
    assert AllocationCommittedV1 in [type(found) for found in said]
    assert [hold.job_id for hold in fleet.state("a").holds] == [new.job_id]


def test_a_commit_survives_a_crash_before_it_is_published() -> None:
    """What was committed is published at the next start, under the same ids, and the delivery that comes again adds nothing."""
    fleet = Fleet("a")
    event = fleet.h.envelope(one("j"))
    fleet.h.crash_at("after_commit")
    with pytest.raises(BaseException, match="after_commit"):
        fleet.h.feed(event)
    fleet.h.restart()
    assert len(fleet.h.said_of(AllocationCommittedV1)) == 1
    assert fleet.h.feed(event) == []
    assert fleet.beat("a", running(one("j"), at=fleet.now)).is_accepted
    assert [found for found in fleet.h.said if isinstance(found, StopV1)] == []
