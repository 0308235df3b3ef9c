"""gpuyard on one machine: embedded bus and database, the services, simulated nodes."""
