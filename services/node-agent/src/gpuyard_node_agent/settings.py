"""What a node agent is told from outside: environment variables with the prefix ``GPUYARD_``."""

import os
import socket
from pathlib import Path
from typing import Annotated, Literal

from gpuyard_contracts.types import Labels, NodeId, Token
from gpuyard_runtime.settings import BusSettings
from pydantic import Field, field_validator, model_validator

from gpuyard_node_agent.backends.profiles import PROFILES
from gpuyard_node_agent.domain.names import node_id_of
from gpuyard_node_agent.domain.uids import Uids, uids_of

Seconds = Annotated[float, Field(gt=0, le=3600)]


class AgentSettings(BusSettings):
    """One node."""

    node_id: NodeId = "node"
    """Default: made from the host's name. The bus user is ``node-<node id>``."""
    display_name: str = ""
    """What people call the machine; default: the host's name as it is."""
    address: str = "127.0.0.1"
    """Where other nodes reach this one: the rendezvous of gangs."""
    zone: Token = "default"
    labels: Labels = {}

    state_dir: Path = Path("/var/lib/gpuyard/node-agent")
    """Journal, keeper's socket, working folders. Must be this node's alone, on a local disk."""
    checkpoint_root: Path | None = None
    """Where checkpoints go; share it between nodes so that moved work finds them. Default: below the state folder."""
    backend: Literal["auto", "nvml", "simulated"] = "auto"
    """`auto`: NVML; a node without cards where it does not answer."""
    profile: str = "8xA100-80GB"
    """The simulated machine."""
    workload_uids: Uids | None = None
    """A range such as ``200000-265535``, this node's alone: each workload runs as a user of its own out of it. Wants root."""
    cgroup_root: Path | None = None
    """A delegated cgroup v2 tree; memory and CPU are limited by it."""

    heartbeat_seconds: Seconds = 1.0
    telemetry_seconds: Seconds = 2.0
    usage_seconds: Seconds = 5.0
    discover_seconds: Seconds = 60.0
    observe_deadline_seconds: Seconds = 5.0
    """How long the driver may take to answer before it is taken for hung."""
    start_patience_seconds: Seconds = 5.0
    """How long an order waits for cards that are not there yet, or for the one before it to go."""
    output_cap_mib: Annotated[int, Field(ge=1, le=1 << 20)] = 16
    """How much of each output stream is kept in its file."""
    log_bytes_per_second: Annotated[int, Field(ge=1024)] = 1 << 20
    """How much of each output stream goes to the bus."""
    keep_ended_seconds: Annotated[float, Field(ge=0)] = 600.0
    """How long the folder of an ended workload stays."""
    drain_seconds: Annotated[float, Field(ge=0)] = 5.0

    @model_validator(mode="before")
    @classmethod
    def _defaults_of_the_host(cls, given: dict[str, object]) -> dict[str, object]:
        host = os.fsencode(socket.gethostname()).decode("utf-8", "replace")
        return {"node_id": node_id_of(host), "display_name": host} | {name: value for name, value in given.items() if value != ""}

    @field_validator("workload_uids", mode="before")
    @classmethod
    def _uids_are_a_range(cls, value: object) -> object:
        return uids_of(value) if isinstance(value, str) else value

    @field_validator("profile")
    @classmethod
    def _profile_is_known(cls, value: str) -> str:
        if value not in PROFILES:
            raise ValueError(f"{value!r} is no simulated machine; there are {', '.join(PROFILES)}")
        return value

    @property
    def checkpoints(self) -> Path:
        """Where checkpoints go."""
        return self.checkpoint_root or self.state_dir / "checkpoints"
