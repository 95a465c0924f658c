"""Fixtures every suite shares."""

from collections.abc import Iterator

import pytest
import structlog
from hypothesis import HealthCheck, settings

# Neither a busy machine nor luck is a reason for a test to fail: each run tries the same examples.
# `make properties` and `make fuzz` look for others.
settings.register_profile(
    "same", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("same")


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture(autouse=True)
def _logging_of_its_own() -> Iterator[None]:
    """Undo what a command configured: its log would go on to the stderr of a test that is over."""
    yield
    structlog.reset_defaults()
