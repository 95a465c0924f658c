"""Fixtures every suite shares."""

from collections.abc import Iterator

import pytest
import structlog
from hypothesis import settings

# A busy machine is no reason for a test to fail.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture(autouse=True)
def _logging_of_its_own() -> Iterator[None]:
    """Undo what a command configured: its log would go on to the stderr of a test that is over."""
    yield
    structlog.reset_defaults()
