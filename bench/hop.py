"""One hop: a small service on the real runtime takes events from a durable, changes rows and says an event for each, by unit size.

The service is the one that the runtime's own integration tests use, as a process of its own; it answers each incident that opens by
one that closes, in the transaction that counts it.
"""

from collections.abc import Iterator
from itertools import count, islice

from gpuyard_contracts.envelope import Envelope
from gpuyard_contracts.messages.monitor import IncidentOpenedV1

from bench.cpu import spent_ms
from bench.figures import Figures, median
from bench.lab import Lab, sustained
from bench.scale import Scale
from tests.support.toy_service import toy_durable
from tests.support.toy_stack import opened

BATCHES = (1, 20, 200)
FEWER_ALONE = 10
"""One event a transaction is so much slower that fewer of them tell as much."""
NODES = 199


def measure(figures: Figures, lab: Lab, scale: Scale) -> None:
    """Put `hop.batch_<n>.events_per_s` and the CPU that an event takes of the service, the bus (publishing included) and the database."""
    durable = toy_durable()
    lab.operator.make([durable])
    numbers = count()
    for batch in BATCHES:
        events = scale.hop_events // (FEWER_ALONE if batch == 1 else 1)
        rates: list[float] = []
        costs: list[dict[str, float]] = []
        with lab.service(f"hop-{batch}", "tests.support.toy_process", str(lab.folder), GPUYARD_UNIT_SIZE=str(batch)) as process:
            programs = lab.programs | {"service": process.pid}
            for at in range(scale.rounds):
                waiting = _events(numbers, f"b{batch}r{at}", events)
                before = spent_ms(programs)
                rates.append(sustained(lab, process, durable, waiting))
                costs.append({name: used - before[name] for name, used in spent_ms(programs).items()})
        figures.put(f"hop.batch_{batch}.events_per_s", median(rates))
        for name in programs:
            figures.put(f"hop.batch_{batch}.cpu.{name}_us_per_event", median([cost[name] for cost in costs]) * 1000 / events)


def _events(numbers: Iterator[int], name: str, events: int) -> list[Envelope[IncidentOpenedV1]]:
    """New incidents on many nodes; names of their own for each round, since the toy's table bounds how many one node may have."""
    return [opened(number, f"{name}-{number % NODES}") for number in islice(numbers, events)]
