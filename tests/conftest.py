"""What all tests share: property tests that find the same on every machine."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "gpuyard",
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("gpuyard")
