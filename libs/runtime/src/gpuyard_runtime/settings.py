"""What every service is told from outside: environment variables with the prefix ``GPUYARD_``.

A secret may be given itself or as a file (``…_FILE``, as container platforms do); it never appears in a log or a repr.
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict


class BusSettings(BaseSettings):
    """How to reach the bus, and as whom."""

    model_config = SettingsConfigDict(env_prefix="GPUYARD_", frozen=True, extra="ignore")

    nats_url: str = "nats://127.0.0.1:4222"
    """One address, or several separated by commas."""
    nats_user: str = ""
    nats_password: SecretStr = SecretStr("")
    nats_password_file: Path | None = None
    nats_inbox_prefix: str = ""
    """Prefix of private reply subjects; empty: the one that contracts give to the user."""
    bus_lost_seconds: Annotated[float, Field(gt=0)] = 120.0
    """After this long without the bus the process gives up and exits, to be started afresh."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    otlp_endpoint: str = ""
    """Base URL of an OTLP/HTTP collector (``http://host:4318``); empty: spans are not exported."""
    http_host: str = "127.0.0.1"
    http_port: Annotated[int, Field(ge=0, le=65535)] = 0
    """For /livez, /readyz and /metrics; 0 takes a free port."""
    http_port_file: Path | None = None
    """Where the port that was taken is written."""

    @model_validator(mode="after")
    def _read_files(self) -> "BusSettings":
        read_secret_file(self, "nats_password")
        return self


class ServiceSettings(BusSettings):
    """A service with a database. Services subclass this for settings of their own."""

    postgres_dsn: SecretStr = SecretStr("postgresql://127.0.0.1:5432/gpuyard")
    postgres_dsn_file: Path | None = None
    postgres_pool_size: Annotated[int, Field(ge=2, le=100)] = 4
    unit_size: Annotated[int, Field(ge=1, le=5000)] = 200
    """How many things one unit of work takes at most."""
    drain_seconds: Annotated[float, Field(ge=0)] = 10.0
    """How long a stopping service waits for its last messages to be acknowledged by the bus."""

    @model_validator(mode="after")
    def _read_dsn_file(self) -> "ServiceSettings":
        read_secret_file(self, "postgres_dsn")
        return self


def read_secret_file(settings: BaseSettings, name: str) -> None:
    """Fill the secret `name` from the file that ``<name>_file`` names, if it names one. Raises ValueError where it cannot be read."""
    path: Path | None = getattr(settings, f"{name}_file")
    if path is None:
        return
    try:
        secret = SecretStr(path.read_text().strip())
    except OSError as error:
        raise ValueError(f"{name}_file: {error.strerror}") from None
    object.__setattr__(settings, name, secret)  # the model is frozen for everybody else
