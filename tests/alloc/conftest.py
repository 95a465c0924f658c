"""How thoroughly the properties of the core are tried: `--hypothesis-profile=thorough` for all."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "thorough", max_examples=10_000, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
