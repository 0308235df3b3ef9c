"""Who looks at the cards: NVML in a killable child process, or simulated machines. All keep :class:`gpuyard_node_agent.ports.Backend`."""
