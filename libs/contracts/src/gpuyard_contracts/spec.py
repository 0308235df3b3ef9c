"""What a job asks for: the part of a request that a person writes.

Strict at the door (unknown fields are refused with their name), so that a typo cannot silently change what runs or what it costs.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import ConfigDict, Field, field_validator, model_validator

from gpuyard_contracts import gpu as shorthand
from gpuyard_contracts.envelope import Shape
from gpuyard_contracts.types import SHARE_FULL_MILLI, GpuModel, Labels, Line, Mib, Plain, PriorityClass, Token, matching

RESERVED_ENV = frozenset(
    {"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"}
    | {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
)
"""Names that the node agent sets: a job that set them could reach another tenant's card."""

MAX_RANKS = 1024
MAX_COMMAND_BYTES = 128 * 1024

EnvName = Annotated[
    str, matching(r"[A-Za-z_][A-Za-z0-9_]{0,127}", "a name of a variable: letters, digits and '_', not starting with a digit")
]


class GpuAsk(Shape):
    """The GPUs of one rank. Shares: `milli` below 1000 or `share_memory_mib`; then each of `count` shares lies on a card of its own."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    count: Annotated[int, Field(ge=1, le=64)] = 1
    milli: Annotated[int, Field(ge=1, le=SHARE_FULL_MILLI)] = SHARE_FULL_MILLI
    share_memory_mib: Annotated[int, Field(ge=1, le=2**40)] | None = None
    memory_mib: Mib | None = None
    memory_max_mib: Mib | None = None
    models: Annotated[tuple[GpuModel, ...], Field(max_length=32)] = ()
    mig_profile: Annotated[str, matching(r"\d+g\.\d+gb(\+me)?", "a MIG profile such as '3g.40gb'")] | None = None

    @property
    def is_share(self) -> bool:
        """Less than a whole card is asked for."""
        return self.milli < SHARE_FULL_MILLI or self.share_memory_mib is not None

    @model_validator(mode="after")
    def _consistent(self) -> "GpuAsk":
        if self.memory_max_mib is not None and self.memory_mib is not None and self.memory_max_mib < self.memory_mib:
            raise ValueError("memory_max_mib is below memory_mib")
        if self.mig_profile is not None and self.is_share:
            raise ValueError("a MIG profile and a share cannot be asked for together")
        return self


class JobSpec(Shape):
    """One job: `ranks` equal processes (a gang if more than one), started together or not at all."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Line
    command: Annotated[tuple[Plain, ...], Field(min_length=1, max_length=512)]
    env: Annotated[Mapping[EnvName, Plain], Field(max_length=256)] = {}
    gpu: GpuAsk = GpuAsk()
    ranks: Annotated[int, Field(ge=1, le=MAX_RANKS)] = 1
    cpu_milli: Annotated[int, Field(ge=1, le=10**7)] = 1000
    memory_mib: Annotated[int, Field(ge=1, le=2**40)] = 1024
    priority: PriorityClass = "normal"
    spot: bool = False
    """Yields to every job that is not: stopped, with its grace, whenever its room is wanted, and queued again."""
    zone: Token | None = None
    node_labels: Labels = {}
    labels: Labels = {}
    max_seconds: Annotated[int, Field(ge=1, le=366 * 86400)] | None = None
    start_timeout_seconds: Annotated[int, Field(ge=1, le=86400)] = 300
    retries: Annotated[int, Field(ge=0, le=100)] = 0
    grace_seconds: Annotated[int, Field(ge=0, le=3600)] = 10

    @field_validator("gpu", mode="before")
    @classmethod
    def _shorthand(cls, value: Any) -> Any:
        return shorthand.parse(str(value)) if isinstance(value, (str, int, float)) and not isinstance(value, bool) else value

    @field_validator("command")
    @classmethod
    def _command_fits(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len("".join(value).encode()) > MAX_COMMAND_BYTES:
            raise ValueError(f"is longer than {MAX_COMMAND_BYTES} bytes; put the program into a file")
        if not value[0].strip():
            raise ValueError("must start with the name of a program")
        return value

    @field_validator("env")
    @classmethod
    def _env_is_free(cls, value: Mapping[str, str]) -> Mapping[str, str]:
        if not value:
            return value
        taken = sorted(name for name in value if name in RESERVED_ENV or name.startswith("GPUYARD_"))
        if taken:
            raise ValueError(f"{', '.join(taken[:5])} is set by gpuyard and cannot be given")
        if sum(len(name) + len(text.encode()) for name, text in value.items()) > MAX_COMMAND_BYTES:
            raise ValueError(f"is longer than {MAX_COMMAND_BYTES} bytes")
        return value
