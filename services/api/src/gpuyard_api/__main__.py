"""``gpuyard-api``: the api service."""

from typing import NoReturn

from gpuyard_runtime.running import main as run_service

from gpuyard_api.app import Api
from gpuyard_api.settings import ApiSettings


def main() -> NoReturn:
    """Read the settings, run until stopped, exit."""
    api = Api()
    run_service(api.service, ApiSettings, beside=api.serve)


if __name__ == "__main__":
    main()
