"""The pure decisions: lease, environment, names, shares, samples, faults, kernel log, thinning."""

from datetime import UTC, datetime, timedelta

import pytest
from gpuyard_contracts.types import GpuUuid, NodeId
from gpuyard_node_agent.domain import faults
from gpuyard_node_agent.domain.admission import gpu_ms, shares_of
from gpuyard_node_agent.domain.environment import environment_of
from gpuyard_node_agent.domain.faults import Observed, XidFilter
from gpuyard_node_agent.domain.kernel_log import XidLine, pci_place, read_record, xid_of
from gpuyard_node_agent.domain.lease import Lease, answered
from gpuyard_node_agent.domain.model import Card, Machine, Order, Slice
from gpuyard_node_agent.domain.names import model_of, node_id_of
from gpuyard_node_agent.domain.samples import Sample, clean
from gpuyard_node_agent.domain.ticks import thin
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

AT = datetime(2030, 1, 1, tzinfo=UTC)
UUID = "GPU-a"


def order_of(*slices: Slice, **changes: object) -> Order:
    """An order with these slices."""
    told: dict[str, object] = {
        "allocation_id": "job-abcdefghijklmnop-2",
        "tenant": "acme",
        "job_id": "job-abcdefghijklmnop",
        "attempt": 2,
        "rank": 1,
        "command": ("train",),
        "env": {},
        "slices": slices,
        "cpu_milli": 4000,
        "memory_mib": 1024,
        "world_size": 4,
        "local_rank": 1,
        "local_world_size": 2,
        "master_addr": "10.0.0.7",
        "master_port": 20017,
        "issued_at": AT,
        "order_id": "o",
    }
    return Order(**(told | changes))  # pyright: ignore[reportArgumentType] - a test's shorthand


# -- lease


def test_a_lease_counts_from_when_the_heartbeat_was_sent() -> None:
    """A late answer does not stretch it."""
    lease = answered(Lease(), sent_ms=1_000, lease_ms=15_000, at=AT, now_ms=9_000)
    assert lease.is_held(15_999)
    assert not lease.is_held(16_000)


def test_an_answer_that_comes_after_its_own_lease_renews_nothing() -> None:
    """It is as if it had not come."""
    assert answered(Lease(5), sent_ms=1_000, lease_ms=100, at=AT, now_ms=1_100) == Lease(5)


def test_only_a_lease_that_begins_anew_draws_a_horizon() -> None:
    """While it is held, renewing changes nothing about orders."""
    first = answered(Lease(), sent_ms=0, lease_ms=100, at=AT, now_ms=1)
    renewed = answered(first, sent_ms=50, lease_ms=100, at=AT + timedelta(seconds=1), now_ms=51)
    again = answered(renewed, sent_ms=900, lease_ms=100, at=AT + timedelta(seconds=9), now_ms=901)
    assert [lease.horizon for lease in (first, renewed, again)] == [AT, AT, AT + timedelta(seconds=9)]


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(1, 300), st.integers(0, 200)), max_size=20))
def test_a_lease_is_held_exactly_while_some_answered_heartbeat_covers_now(answers: list[tuple[int, int, int]]) -> None:
    """Answers may come late and out of order."""
    lease, known, now_ms = Lease(), -1, 0
    for sent_ms, lease_ms, delay in answers:
        now_ms = max(now_ms, sent_ms + delay)
        lease = answered(lease, sent_ms=sent_ms, lease_ms=lease_ms, at=AT, now_ms=now_ms)
        if now_ms < sent_ms + lease_ms:
            known = max(known, sent_ms + lease_ms)
        assert lease.is_held(now_ms) == (now_ms < known)


# -- environment


def test_a_rank_sees_its_own_cards_by_uuid_and_finds_the_others() -> None:
    """CUDA's, torch's and gpuyard's variables (B31)."""
    order = order_of(Slice("GPU-b", 250, 4096), Slice("GPU-a", 250, 4096))
    found = environment_of(order, work_dir="/w", checkpoint_dir="/c", node_id="n1")
    assert found["CUDA_VISIBLE_DEVICES"] == found["NVIDIA_VISIBLE_DEVICES"] == "GPU-b,GPU-a"
    assert found["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert (found["RANK"], found["WORLD_SIZE"], found["LOCAL_RANK"], found["LOCAL_WORLD_SIZE"]) == ("1", "4", "1", "2")
    assert (found["MASTER_ADDR"], found["MASTER_PORT"]) == ("10.0.0.7", "20017")
    assert (found["GPUYARD_ALLOCATION"], found["GPUYARD_ATTEMPT"], found["GPUYARD_RANK"]) == (order.allocation_id, "2", "1")
    assert (found["GPUYARD_GPU_MEMORY_MIB"], found["GPUYARD_GPU_SHARE_MILLI"]) == ("4096,4096", "250,250")
    assert (found["HOME"], found["GPUYARD_WORK_DIR"], found["GPUYARD_CHECKPOINT_DIR"]) == ("/w", "/w", "/c")


def test_a_job_cannot_reach_other_cards_by_its_own_variables() -> None:
    """What the node sets wins."""
    order = order_of(Slice("GPU-a", 1000, 1), env={"CUDA_VISIBLE_DEVICES": "GPU-b", "GPUYARD_TENANT": "other", "PATH": "/mine", "X": "1"})
    found = environment_of(order, work_dir="/w", checkpoint_dir="/c", node_id="n1")
    assert (found["CUDA_VISIBLE_DEVICES"], found["GPUYARD_TENANT"], found["PATH"], found["X"]) == ("GPU-a", "acme", "/mine", "1")


def test_a_job_without_cards_sees_none() -> None:
    """An empty list hides all cards from CUDA; the container toolkit wants its own word."""
    found = environment_of(order_of(), work_dir="/w", checkpoint_dir="/c", node_id="n1")
    assert (found["CUDA_VISIBLE_DEVICES"], found["NVIDIA_VISIBLE_DEVICES"]) == ("", "void")


# -- names


@pytest.mark.parametrize("host", ["gpu-01", "GPU_01.example.org", "größe", "机器-7", "", "-", "a" * 80, "x" * 63, "\udcff\udcfe"])
def test_every_host_name_becomes_a_node_id(host: str) -> None:
    """ASCII and safe, whatever the machine is called (B58)."""
    found = node_id_of(host)
    assert TypeAdapter(NodeId).validate_python(found) == found


def test_a_host_name_that_is_an_id_stays_and_others_keep_apart() -> None:
    """Names that differ in what had to go are told apart; in case they do not differ, as host names do not."""
    assert node_id_of("gpu-01") == "gpu-01"
    assert len({node_id_of(name) for name in ("机器-7", "服务-7", "gpu.7", "gpu_7", "gpu-7")}) == 5


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ("NVIDIA A100-SXM4-80GB", "A100-80GB"),
        ("NVIDIA A100-PCIE-40GB", "A100-40GB"),
        ("NVIDIA H100 80GB HBM3", "H100-80GB"),
        ("NVIDIA H200 NVL", "H200"),
        ("Tesla T4", "T4"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA GeForce RTX 4090", "RTX-4090"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX-6000-Ada"),
        ("NVIDIA GB200", "GB200"),
        ("  ", "unknown"),
        ("é!?", "unknown"),
    ],
)
def test_a_drivers_name_becomes_the_model_that_people_ask_for(told: str, expected: str) -> None:
    """Vendor and form factor are left out."""
    assert model_of(told) == expected


# -- money's evidence


def test_a_share_by_memory_counts_as_the_greater_of_both() -> None:
    """As billing prices it: a tenth of the compute with half of the memory is half a card."""
    machine = Machine((Card(UUID, "T4", 16_000, 0),), 1, 1)
    assert shares_of(order_of(Slice(UUID, 100, 8_000)), machine) == ((1, 2),)
    assert shares_of(order_of(Slice(UUID, 600, 8_000)), machine) == ((3, 5),)
    assert shares_of(order_of(Slice(UUID, 1000, 16_000)), None) == ((1, 1),)


@given(st.lists(st.tuples(st.integers(0, 999), st.integers(1, 999)), max_size=8), st.integers(0, 2**40), st.integers(0, 2**20))
def test_gpu_time_never_goes_back_and_is_rounded_down_once(shares: list[tuple[int, int]], held_ms: int, more_ms: int) -> None:
    """Cumulative statements only grow."""
    now = gpu_ms(tuple(shares), held_ms)
    assert gpu_ms(tuple(shares), held_ms + more_ms) >= now
    exact = sum(held_ms * above / below for above, below in shares)
    assert now <= exact * (1 + 1e-9) + 1e-6


# -- samples


def test_values_that_cannot_be_are_dropped_and_counted_and_the_others_stay() -> None:
    """B44: 4294967295 % and 808334905 % reach no average."""
    told = [12, 14, 4294967295, 13, 808334905, 15]
    cleaned = [clean({UUID: {"utilization_percent": value}}, frozenset()) for value in told]
    kept = [samples[0].values["utilization_percent"] for samples, _ in cleaned if samples[0].values]
    assert sum(kept) / len(kept) == 13.5
    assert sum(bad for _, bad in cleaned) == 2


def test_absent_is_absent_and_never_zero() -> None:
    """B45: a card without ECC has no ECC values; zero stays zero."""
    (sample,), bad = clean({UUID: {"ecc_uncorrectable": None, "utilization_percent": 0, "unheard_of": 7}}, frozenset())
    assert dict(sample.values) == {"utilization_percent": 0}
    assert bad == 0


def test_a_lost_card_has_no_values_and_hides_no_other() -> None:
    """B45."""
    samples, _ = clean({UUID: {"temperature_c": 40}}, frozenset({"GPU-b"}))
    assert samples == (Sample(UUID, {"temperature_c": 40}), Sample("GPU-b", {}, is_lost=True))


# -- faults


def test_errors_are_told_by_how_many_came_and_never_from_before_we_looked() -> None:
    """The first value of a boot is where counting begins; a counter that fell has begun a new life."""
    seen, told = Observed("b"), []
    for value in (5, 5, 7, 2, 3):
        seen, found = faults.compare(seen, [Sample(UUID, {"ecc_uncorrectable": value})])
        told += [(fault.kind, fault.count) for fault in found]
    assert told == [("ecc-uncorrectable", 2), ("ecc-uncorrectable", 1)]


def test_a_card_is_lost_once_and_back_once_each_time() -> None:
    """Each happening has a name of its own."""
    seen, told = Observed("b"), []
    for is_lost in (False, True, True, False, True, False):
        seen, found = faults.compare(seen, [Sample(UUID, {}, is_lost=is_lost)])
        told += [(fault.kind, fault.key) for fault in found]
    assert [kind for kind, _ in told] == ["gpu-lost", "gpu-back", "gpu-lost", "gpu-back"]
    assert len({key for kind, key in told if kind == "gpu-lost"}) == 2


def test_a_hang_is_told_once_until_the_observer_answers() -> None:
    """And lost cards and counters are kept meanwhile."""
    seen = Observed("b", {"x": 1}, frozenset({UUID}))
    seen, first = faults.hung(seen, "no answer")
    seen, second = faults.hung(seen, "no answer")
    seen, back = faults.answers(seen)
    seen, again = faults.hung(seen, "no answer")
    assert [len(found) for found in (first, second, back, again)] == [1, 0, 1, 1]
    assert first[0].key != again[0].key
    assert seen.lost == frozenset({UUID})


def test_an_xid_that_both_sources_tell_of_is_told_once() -> None:
    """One report of the one pairs with one of the other; a repetition by the same source is a new event."""
    xids = XidFilter()
    assert xids.is_new("p", 79, "nvml", 0)
    assert not xids.is_new("p", 79, "kmsg", 900)
    assert xids.is_new("p", 31, "nvml", 1_000)
    assert xids.is_new("p", 31, "nvml", 1_100)
    assert xids.is_new("q", 31, "kmsg", 1_100)
    assert xids.is_new("p", 31, "kmsg", 60_000)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("NVRM: Xid (PCI:0000:07:00): 79, pid=1, GPU has fallen off the bus.", ("0000:07:00", 79)),
        ("NVRM: Xid (0000:0f:00): 31, Ch 00000010", ("0000:0f:00", 31)),
        ("NVRM: Xid (PCI:0000:07:00.0 GPU-I:01): 94, Contained", ("0000:07:00", 94)),
        ("NVRM: GPU at PCI:0000:07:00: GPU 00000000:07:00.0 has fallen off the bus.", ("0000:07:00", 79)),
        ("usb 1-1: new device", None),
    ],
)
def test_the_kernels_lines_are_read_in_every_form(text: str, expected: tuple[str, int] | None) -> None:
    """With and without function, instance and XID."""
    found = xid_of(text)
    assert (None if found is None else (found.place, found.xid)) == expected
    assert found is None or isinstance(found, XidLine)


def test_one_card_has_one_address() -> None:
    """NVML's, sysfs' and the kernel's forms."""
    assert {pci_place(told) for told in ("00000000:0F:00.0", "0000:0f:00.0", "0000:0f:00")} == {"0000:0f:00"}


def test_records_of_the_kernels_log_are_read_or_refused() -> None:
    """Continuation lines do not belong to the text."""
    assert read_record("4,1234,99,-;text here\n SUBSYSTEM=pci") == (1234, "text here")
    assert read_record("garbage") is None


def test_simulated_uuids_of_the_longest_node_are_valid() -> None:
    """A node id may have 63 characters."""
    from gpuyard_node_agent.backends.profiles import uuid_of

    assert TypeAdapter(GpuUuid).validate_python(uuid_of("n" * 63, 15))


# -- thinning


@given(st.lists(st.frozensets(st.sampled_from("abcde"), min_size=1), max_size=40), st.integers(0, 20))
def test_thinning_keeps_the_last_statement_of_each_and_no_more_than_it_must(stated: list[frozenset[str]], limit: int) -> None:
    """Oldest first; what nobody needs goes."""
    dropped = set(thin(list(enumerate(stated)), limit))
    kept = [number for number in range(len(stated)) if number not in dropped]
    last = {name: max(number for number, names in enumerate(stated) if name in names) for name in frozenset().union(*stated)}
    assert set(last.values()) <= set(kept)
    assert len(kept) <= max(limit, len(set(last.values())))
    assert len(dropped) <= max(len(stated) - limit, 0)
