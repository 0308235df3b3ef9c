"""What the scheduler decides, without a clock, randomness or I/O. Start reading at :func:`gpuyard_scheduler.domain.decide.decide`."""
