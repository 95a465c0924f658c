"""What the controller survives in a cluster is to end a test; no thread runs beside its time."""

import asyncio

import pytest
from structlog.testing import capture_logs


@pytest.fixture(autouse=True)
def _nothing_breaks(request):
    """Fail where an error that nobody foresaw was logged, unless the test is about that."""
    with capture_logs() as lines:
        yield
    if request.node.get_closest_marker("breaks") is None:
        assert [line for line in lines if line["event"].endswith("_error")] == []


@pytest.fixture(autouse=True)
def _without_threads(monkeypatch):
    """Time is simulated, and does not wait for a thread."""

    async def at_once(run, *given):
        return run(*given)

    monkeypatch.setattr(asyncio, "to_thread", at_once)
