"""The part of the client for nodes, cards, faults, tenants and their tokens."""

from collections.abc import Mapping
from typing import Any

from gpuyard.results import Gpu, Node, Tenant, build
from gpuyard.transport import Transport, segment


class Fleet:
    """Nodes and cards, and who shares them."""

    transport: Transport

    def nodes(self) -> list[Node]:
        """All nodes."""
        return [build(Node, row) for row in self._all("nodes")]

    def gpus(self) -> list[Gpu]:
        """All cards, with their last sample."""
        return [build(Gpu, row) for row in self._all("gpus", limit=1000)]

    def incidents(self, *, open_only: bool = True) -> list[Mapping[str, Any]]:
        """Faults, the youngest first."""
        return self._all("incidents", open_only=open_only)

    def cordon(self, node_id: str, reason: str = "", *, gpu_uuid: str | None = None) -> Mapping[str, Any]:
        """Keep new work away from a node, or from one of its cards."""
        return self._act(node_id, "cordon", reason=reason, gpu_uuid=gpu_uuid)

    def drain(self, node_id: str, reason: str = "", *, gpu_uuid: str | None = None) -> Mapping[str, Any]:
        """Keep new work away, and move what runs there."""
        return self._act(node_id, "drain", reason=reason, gpu_uuid=gpu_uuid)

    def uncordon(self, node_id: str, *, gpu_uuid: str | None = None, holder: str | None = None) -> Mapping[str, Any]:
        """Let go of one's own cordon or drain, or of another `holder`'s."""
        return self._act(node_id, "uncordon", holder=holder, gpu_uuid=gpu_uuid)

    def tenants(self) -> list[Tenant]:
        """All tenants."""
        return [build(Tenant, row) for row in self._all("tenants")]

    def tenant(self, tenant: str) -> Tenant:
        """One tenant. Raises NotFound."""
        return build(Tenant, self.transport.get(f"/v1/tenants/{segment(tenant)}"))

    def create_tenant(self, tenant: str, **settings: Any) -> Tenant:
        """A new tenant; `settings`: name, sla, weight, quota_gpu_milli, quota_gpu_memory_mib, guarantee_gpu_milli, max_waiting,
        max_requests_per_minute.
        """
        return build(Tenant, self.transport.post("/v1/tenants", {"tenant": tenant, "name": tenant, **settings}))

    def set_tenant(self, tenant: str, **changes: Any) -> Tenant:
        """Change a tenant's settings; those that are not given stay as they are."""
        known = self.tenant(tenant)
        return build(Tenant, self.transport.patch(f"/v1/tenants/{segment(tenant)}", {**changes, "version": known.version}))

    def create_token(self, tenant: str, name: str = "cli") -> Mapping[str, Any]:
        """A new token of a tenant; its `token` is told this once and never again."""
        content: Mapping[str, Any] = self.transport.post(f"/v1/tenants/{segment(tenant)}/tokens", {"name": name})
        return content

    def _act(self, node_id: str, verb: str, **body: str | None) -> Mapping[str, Any]:
        given = {name: value for name, value in body.items() if value is not None}
        content: Mapping[str, Any] = self.transport.post(f"/v1/nodes/{segment(node_id)}/{verb}", given)
        return content

    def _all(self, what: str, **query: Any) -> list[Any]:
        """Every row of a list, page by page."""
        rows: list[Any] = []
        cursor: str | None = None
        while True:
            content = self.transport.get(f"/v1/{what}", cursor=cursor, **query)
            rows += content[what]
            cursor = content.get("next_cursor")
            if cursor is None:
                return rows
