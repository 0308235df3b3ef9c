"""``python -m gpuyard_node_agent``: the agent of this node, told by ``GPUYARD_…``; exit codes: :mod:`gpuyard_runtime.faults`."""

import gc
import sys

import uvloop
from gpuyard_runtime import logs
from gpuyard_runtime.faults import EXIT_CONFIG
from pydantic import ValidationError

from gpuyard_node_agent.app import run
from gpuyard_node_agent.settings import AgentSettings

GC_THRESHOLDS = (20_000, 20, 20)
"""Each job makes hundreds of objects and drops them again: looked through at every 700th, as is usual, they cost a good part of it."""


def main() -> None:
    """Run the agent; never returns."""
    try:
        settings = AgentSettings()
    except ValidationError as error:
        logs.configure("node-agent", "info")
        told = "; ".join(f"GPUYARD_{'_'.join(map(str, found['loc'])).upper()}: {found['msg']}" for found in error.errors(include_url=False))
        logs.log_of("main").error("settings", detail=told)
        sys.exit(EXIT_CONFIG)
    logs.configure("node-agent", settings.log_level)
    gc.set_threshold(*GC_THRESHOLDS)
    sys.exit(uvloop.run(run(settings)))


if __name__ == "__main__":
    main()
