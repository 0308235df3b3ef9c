"""What ended workloads leave empty, for the next ones of the same tenant.

A new file or folder costs several times what a rename costs, and must be removed again one day. It goes to the same tenant only: a process
may have handed an open descriptor of it to another of its tenant's.
"""

from collections import OrderedDict

MOST = 256
"""How many are kept; the rest is removed as ever."""


class Spares:
    """Names of what is empty, by tenant."""

    def __init__(self) -> None:
        self._tenants: OrderedDict[str, list[str]] = OrderedDict()
        self._count = 0

    def put(self, tenant: str, name: str) -> str | None:
        """Keep this one. Where that is one too many: the one that has to go, of the tenant that has put none for longest."""
        self._tenants.setdefault(tenant, []).append(name)
        self._tenants.move_to_end(tenant)
        self._count += 1
        return self.take(next(iter(self._tenants))) if self._count > MOST else None

    def take(self, tenant: str) -> str | None:
        """One of the tenant's, which is its own now; None where there is none."""
        names = self._tenants.get(tenant)
        if names is None:
            return None
        name = names.pop()
        self._count -= 1
        if not names:
            del self._tenants[tenant]
        return name
