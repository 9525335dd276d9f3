"""How many random examples a property is tried on: a few in CI, 10,000 with `HYPOTHESIS_PROFILE=nightly`."""

import os

from hypothesis import HealthCheck, settings

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"


def examples(number: int) -> settings:
    """Settings of a property that takes this many examples in CI."""
    checks = [HealthCheck.too_slow, HealthCheck.filter_too_much]
    return settings(
        max_examples=10_000 if NIGHTLY else number, deadline=None, suppress_health_check=checks if NIGHTLY else []
    )


settings.register_profile("quick", examples(100))
settings.register_profile("nightly", examples(100))
