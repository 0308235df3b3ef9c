"""Processes on this machine: who starts and holds them, how they are found again, what they print."""
