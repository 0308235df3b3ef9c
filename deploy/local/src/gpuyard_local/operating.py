"""The operator on the bus: the connection that makes streams and asks agents. No service ever uses it."""

from collections.abc import Iterable

from gpuyard_contracts import permissions
from gpuyard_contracts.topology import DURABLES, node_durable
from gpuyard_runtime.bootstrap import bootstrap
from gpuyard_runtime.bus import Bus, connect
from gpuyard_runtime.settings import BusSettings

from gpuyard_local.bus_config import OPERATOR

WAIT_SECONDS = 60.0


async def open_bus(url: str, password: str) -> Bus:
    """A connection as the operator; the caller closes it. Raises Fatal where there is no bus, or it does not know us."""
    settings = BusSettings.model_validate(
        {
            "nats_url": url,
            "nats_user": OPERATOR,
            "nats_password": password,
            "nats_password_file": None,  # whatever our own environment says
            "nats_inbox_prefix": permissions.of_operator().inbox,
            "bus_lost_seconds": WAIT_SECONDS,
        }
    )
    return await connect(settings, name=OPERATOR, on_fatal=lambda fatal: None)


async def make_streams(url: str, password: str, nodes: Iterable[str]) -> list[str]:
    """Streams, the services' durables and one for each node, made or brought to this version's form. Returns what was made."""
    bus = await open_bus(url, password)
    try:
        report = await bootstrap(bus, durables=(*DURABLES, *map(node_durable, nodes)), repair=True)
    finally:
        await bus.close()
    return report.created
