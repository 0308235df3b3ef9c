"""``python -m gpuyard_scheduler``: the scheduler service."""

from gpuyard_runtime.running import main as run

from gpuyard_scheduler.app import service
from gpuyard_scheduler.settings import SchedulerSettings


def main() -> None:
    """Run the scheduler until it is told to stop."""
    run(lambda settings: service(settings.policy()), SchedulerSettings)


if __name__ == "__main__":
    main()
