"""What monitor shows on /metrics: cards under DCGM's names, its own numbers under gpuyard's.

What a card does not tell is absent, never zero; a stale card is absent altogether. A DCGM name keeps its own spelling, since dashboards and
alerts for it exist; the runtime puts gpuyard's prefix before all names that do not begin with a capital letter.
"""

from collections.abc import Callable, Mapping

from gpuyard_contracts.messages.node import GpuSampleV1

from gpuyard_monitor.domain import xid
from gpuyard_monitor.store import MonitorStore, NodeWatch

Labels = tuple[tuple[str, str], ...]
Gauges = Mapping[str, float | Mapping[Labels, float]]


def _watts(sample: GpuSampleV1) -> float | None:
    return None if sample.power_mw is None else sample.power_mw / 1000


DCGM: Mapping[str, Callable[[GpuSampleV1], float | None]] = {
    "DCGM_FI_DEV_GPU_TEMP": lambda sample: sample.temperature_c,
    "DCGM_FI_DEV_MEMORY_TEMP": lambda sample: sample.memory_temperature_c,
    "DCGM_FI_DEV_POWER_USAGE": _watts,
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": lambda sample: sample.energy_mj,
    "DCGM_FI_DEV_GPU_UTIL": lambda sample: sample.utilization_percent,
    "DCGM_FI_DEV_MEM_COPY_UTIL": lambda sample: sample.memory_utilization_percent,
    "DCGM_FI_DEV_FB_USED": lambda sample: sample.memory_used_mib,
    "DCGM_FI_DEV_FB_FREE": lambda sample: sample.memory_free_mib,
    "DCGM_FI_DEV_SM_CLOCK": lambda sample: sample.sm_clock_mhz,
    "DCGM_FI_DEV_MEM_CLOCK": lambda sample: sample.memory_clock_mhz,
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": lambda sample: sample.throttle_reasons,
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": lambda sample: sample.ecc_uncorrectable,
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": lambda sample: sample.ecc_corrected,
}
"""DCGM field to a sample's value, in DCGM's units: °C, W, mJ, %, MiB, MHz. The meaning of each is dcgm-exporter's."""


def gauges(store: MonitorStore) -> Gauges:
    """Read when somebody asks."""
    found: dict[str, dict[Labels, float]] = {name: {} for name in DCGM}
    bad: dict[Labels, float] = {}
    for node_id, watch in store.watches.items():
        if not watch.is_stale:
            bad[(("node", node_id),)] = watch.bad_samples
            _add_node(found, store, node_id, watch)
    return {
        **{name: values for name, values in found.items() if values},
        "monitor_bad_samples": bad,
        "monitor_xids": {_xid_labels(*key): count for key, count in store.xids.items()},
        "monitor_incidents_open": _open_incidents(store),
        "monitor_nodes_watched": len(store.watches),
        "monitor_nodes_stale": sum(watch.is_stale for watch in store.watches.values()),
        "monitor_ignored": {(("reason", reason),): count for reason, count in store.ignored.items()},
    }


def _add_node(found: Mapping[str, dict[Labels, float]], store: MonitorStore, node_id: str, watch: NodeWatch) -> None:
    cards = {card.uuid: card for card in store.node(node_id).cards}
    for uuid, sample in watch.samples.items():
        card = cards.get(uuid)
        index = "" if card is None or card.index is None else str(card.index)
        labels = (("gpu", index), ("UUID", uuid), ("modelName", "" if card is None else card.model), ("Hostname", node_id))
        for name, read in DCGM.items():
            value = read(sample)
            if value is not None:
                found[name][labels] = value


def _xid_labels(node_id: str, gpu_uuid: str, number: int) -> Labels:
    return (("node", node_id), ("gpu", gpu_uuid), ("xid", str(number)), ("class", xid.class_of(number)))


def _open_incidents(store: MonitorStore) -> Mapping[Labels, float]:
    found: dict[Labels, float] = {}
    for incident in store.incidents.values():
        labels = (("kind", incident.kind),)
        found[labels] = found.get(labels, 0) + 1
    return found
