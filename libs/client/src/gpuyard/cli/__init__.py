"""The `gpuyard` command. Start reading in :mod:`gpuyard.cli.main`."""
