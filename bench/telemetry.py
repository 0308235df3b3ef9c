"""Telemetry into monitor: the real service as a process of its own, what its CPU takes for each card's sample.

A message is one node's tick with eight cards and all that NVML tells of them. Monitor keeps the last sample of each card and judges it.
"""

import http.client
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from gpuyard_contracts.envelope import Envelope
from gpuyard_contracts.messages.node import GpuSampleV1, TelemetryV1
from gpuyard_contracts.topology import durables_of
from gpuyard_local.embedded import LOOPBACK
from gpuyard_runtime.saying import enveloped

from bench.cpu import spent_ms
from bench.figures import Figures, median
from bench.lab import Lab, Process, wait_until
from bench.scale import Scale

NODES = 500
CARDS = 8
SAMPLE_SECONDS = 2


def measure(figures: Figures, lab: Lab, scale: Scale) -> None:
    """Put `telemetry.samples_per_cpu_s`, and how many cards one core of monitor's can watch at one sample in two seconds."""
    lab.operator.make(durables_of("monitor"))
    begun = datetime.now(UTC) - timedelta(minutes=30)
    beats = max(1, scale.telemetry_messages // NODES)
    costs: list[float] = []
    with lab.service("monitor", "gpuyard_monitor", GPUYARD_MONITOR_FRESH_SECONDS="86400") as process:
        sent = 0
        for number in range(scale.rounds):
            messages = [found for beat in range(beats) for found in _beat(begun, number * beats + beat + 1)]
            with process.frozen():
                lab.operator.publish(messages)
                before = spent_ms({"monitor": process.pid})["monitor"]
            sent += len(messages)
            wanted = sent
            wait_until(lambda wanted=wanted: _handled(process) >= wanted)
            costs.append((spent_ms({"monitor": process.pid})["monitor"] - before) / (len(messages) * CARDS))
    per_cpu_second = 1000 / median(costs)
    figures.put("telemetry.samples_per_cpu_s", per_cpu_second)
    figures.put("telemetry.one_core_every_2_s.gpus", per_cpu_second * SAMPLE_SECONDS)


def _handled(process: Process) -> int:
    """How many telemetry messages monitor has handled, as it tells on /metrics."""
    conn = http.client.HTTPConnection(LOOPBACK, process.port, timeout=30)
    try:
        conn.request("GET", "/metrics")
        lines = conn.getresponse().read().decode().splitlines()
    finally:
        conn.close()
    wanted = f'gpuyard_handled_total{{type="{TelemetryV1.TYPE}"}}'
    return next((int(float(line.rsplit(" ", 1)[1])) for line in lines if line.startswith(wanted)), 0)


def _beat(begun: datetime, beat: int) -> list[Envelope[TelemetryV1]]:
    at = begun + timedelta(seconds=beat * SAMPLE_SECONDS)
    return [
        enveloped(
            TelemetryV1(
                node_id=f"n{node}",
                boot_id=f"boot-{node}",
                sequence=beat,
                at=at,
                gpus=tuple(_sample(node, card, beat) for card in range(CARDS)),
            ),
            source=f"node-n{node}",
            at=at,
            event_id=str(uuid4()),
        )
        for node in range(NODES)
    ]


def _sample(node: int, card: int, beat: int) -> GpuSampleV1:
    return GpuSampleV1(
        gpu_uuid=f"GPU-{node}-{card}",
        temperature_c=50 + (node + card + beat) % 20,
        memory_temperature_c=60 + card,
        power_mw=300_000 + beat,
        energy_mj=1_000_000 + 600_000 * beat,
        utilization_percent=90 + beat % 10,
        memory_utilization_percent=40,
        memory_used_mib=40_000,
        memory_free_mib=41_920,
        sm_clock_mhz=1410,
        memory_clock_mhz=1593,
        throttle_reasons=0,
        ecc_uncorrectable=0,
        ecc_corrected=0,
    )
