"""The toy as a process of its own: ``python -m tests.support.toy_process FOLDER``, settings from the environment."""

import sys
from pathlib import Path

from gpuyard_runtime.running import main
from gpuyard_runtime.settings import ServiceSettings

from tests.support.toy_service import toy_service

if __name__ == "__main__":
    main(toy_service(Path(sys.argv[1])), ServiceSettings)
