"""Run monitor: ``gpuyard-monitor`` or ``python -m gpuyard_monitor``."""

from gpuyard_runtime import running

from gpuyard_monitor.app import service
from gpuyard_monitor.settings import MonitorSettings


def main() -> None:
    """The process."""
    running.main(service, MonitorSettings)


if __name__ == "__main__":
    main()
