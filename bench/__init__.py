"""What `make bench` measures. Start at :mod:`bench.__main__`; each other module is one measurement."""
