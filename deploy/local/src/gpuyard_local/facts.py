"""What a stack chose at its first start and keeps: ports, nodes, tenants with a user on the bus, folders elsewhere."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from gpuyard_local.layout import Layout
from gpuyard_local.private import write


class Unreadable(Exception):
    """The facts of a stack cannot be read."""


@dataclass(frozen=True, slots=True)
class Facts:
    """One stack. `nodes`: node id → profile; `socket` and `postgres_data` where they lie outside the state folder."""

    ports: Mapping[str, int] = field(default_factory=dict[str, int])
    nodes: Mapping[str, str] = field(default_factory=dict[str, str])
    bus_tenants: tuple[str, ...] = ()
    socket: str | None = None
    postgres_data: str | None = None

    def with_tenant(self, tenant: str) -> "Facts":
        """These facts, with one more tenant on the bus."""
        return replace(self, bus_tenants=tuple(sorted({*self.bus_tenants, tenant})))


def load(layout: Layout) -> Facts | None:
    """The facts of a state folder; None where no stack was made yet. Raises :class:`Unreadable`."""
    try:
        content: Any = json.loads(layout.facts.read_text(encoding="utf-8"))
        return Facts(
            ports={str(name): int(port) for name, port in content["ports"].items()},
            nodes={str(node): str(profile) for node, profile in content["nodes"].items()},
            bus_tenants=tuple(str(tenant) for tenant in content["bus_tenants"]),
            socket=content["socket"],
            postgres_data=content["postgres_data"],
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Unreadable(f"{layout.facts} cannot be read ({type(error).__name__}); `gpuyard-local down --purge` starts over") from None


def save(layout: Layout, facts: Facts) -> None:
    """Keep the facts."""
    write(layout.facts, json.dumps(asdict(facts), indent=1) + "\n")
