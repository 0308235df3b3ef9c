"""What the agent decides, without clock, disk, process or bus."""
