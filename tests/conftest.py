"""Fixtures every suite shares."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, settings

# Neither a busy machine nor luck is a reason for a test to fail: each run tries the same examples.
# `make properties` and `make fuzz` look for others.
settings.register_profile(
    "same", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("same")


SCENARIOS = Path(__file__).parent / "scenarios"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse end-to-end tests where `make e2e` does not look for them."""
    files = {item.path for item in items if item.get_closest_marker("e2e")}
    for file in files:
        if SCENARIOS not in file.parents and "mark.e2e" not in file.read_text():
            raise pytest.UsageError(
                f"{file}: write `pytest.mark.e2e` in it: `make e2e` looks for that"
            )


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture(autouse=True)
def _logging_of_its_own() -> Iterator[None]:
    """Undo what a command configured: its log would go on to the stderr of a test that is over."""
    yield
    structlog.reset_defaults()
