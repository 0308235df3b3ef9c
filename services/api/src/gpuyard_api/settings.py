"""api's settings: environment variables with the prefix ``GPUYARD_``, beside those of every service."""

from pathlib import Path
from typing import Annotated

from gpuyard_runtime.settings import ServiceSettings
from pydantic import Field


class ApiSettings(ServiceSettings):
    """Where the API listens, and where the first operator's token is put."""

    api_host: str = "127.0.0.1"
    api_port: Annotated[int, Field(ge=0, le=65535)] = 8080
    """0 takes a free port."""
    api_port_file: Path | None = None
    """Where the port that was taken is written."""
    admin_token_file: Path = Path("admin.token")
    """Made at the first start, readable only by its owner; afterwards api does not need it."""
    max_body_bytes: Annotated[int, Field(ge=1024, le=16 * 2**20)] = 512 * 1024
    postgres_pool_size: Annotated[int, Field(ge=2, le=100)] = 8
