"""By these variables a process is recognised as a workload's, wherever it has gone. The keeper imports this: no imports here."""

ALLOCATION = "GPUYARD_ALLOCATION"
RANK = "GPUYARD_RANK"
