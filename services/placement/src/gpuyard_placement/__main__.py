"""``python -m gpuyard_placement``: the placement service."""

from gpuyard_runtime.running import main as run

from gpuyard_placement.app import service
from gpuyard_placement.settings import PlacementSettings


def main() -> None:
    """Run placement until it is told to stop."""
    run(lambda settings: service(settings.policy()), PlacementSettings)


if __name__ == "__main__":
    main()
