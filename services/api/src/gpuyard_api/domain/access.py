"""Who acts, and whose things they may see."""

from dataclasses import dataclass

from gpuyard_api.domain.model import Token


@dataclass(frozen=True, slots=True)
class Principal:
    """The holder of a token that works. `tenant` is None for an operator, who may see and act for all."""

    token: Token

    @property
    def is_admin(self) -> bool:
        """An operator."""
        return self.token.role == "admin"

    @property
    def tenant(self) -> str | None:
        """The one tenant whose things may be seen; None: all."""
        return self.token.tenant

    @property
    def actor(self) -> str:
        """Who it is, for the audit log and as the holder of cordons: ``operator/<name>`` or ``tenant/<tenant>/<name>``."""
        return f"operator/{self.token.name}" if self.is_admin else f"tenant/{self.token.tenant}/{self.token.name}"

    def may_see(self, tenant: str | None) -> bool:
        """Whether things of this tenant (None: of nobody in particular) may be seen."""
        return self.is_admin or (tenant is not None and tenant == self.token.tenant)
