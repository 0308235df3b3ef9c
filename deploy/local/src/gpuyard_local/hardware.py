"""Does this machine have GPUs of its own? Asked in a child process: a driver that hangs must not hang us."""

import subprocess
import sys

_ASK = "import pynvml as n; n.nvmlInit(); print(n.nvmlDeviceGetCount())"


def count_gpus(*, seconds: float = 5.0) -> int:
    """How many cards NVML tells of; 0 where there is no driver, no card, or no answer in time."""
    try:
        asked = subprocess.run([sys.executable, "-c", _ASK], capture_output=True, text=True, timeout=seconds, check=False, cwd="/")
        return int(asked.stdout) if asked.returncode == 0 else 0
    except (subprocess.TimeoutExpired, ValueError):
        return 0
