"""gpuyard's SDK: ask for GPUs, watch what becomes of it, see what it costs.

Start with :class:`Client`. Importing this package is cheap: parts are loaded when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpuyard.client import Client as Client
    from gpuyard.errors import Ambiguous as Ambiguous
    from gpuyard.errors import ApiError as ApiError
    from gpuyard.errors import BadJobFile as BadJobFile
    from gpuyard.errors import Denied as Denied
    from gpuyard.errors import GpuyardError as GpuyardError
    from gpuyard.errors import NotConfigured as NotConfigured
    from gpuyard.errors import NotFound as NotFound
    from gpuyard.errors import Rejected as Rejected
    from gpuyard.errors import Unreachable as Unreachable
    from gpuyard.errors import WaitTimeout as WaitTimeout
    from gpuyard.results import Job as Job

_HOMES = {"Client": "gpuyard.client", "Job": "gpuyard.results"} | dict.fromkeys(
    (
        "Ambiguous",
        "ApiError",
        "BadJobFile",
        "Denied",
        "GpuyardError",
        "NotConfigured",
        "NotFound",
        "Rejected",
        "Unreachable",
        "WaitTimeout",
    ),
    "gpuyard.errors",
)

__all__ = [
    "Ambiguous",
    "ApiError",
    "BadJobFile",
    "Client",
    "Denied",
    "GpuyardError",
    "Job",
    "NotConfigured",
    "NotFound",
    "Rejected",
    "Unreachable",
    "WaitTimeout",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'gpuyard' has no attribute {name!r}")
