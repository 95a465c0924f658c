"""What the controller survives in a cluster is to end a test."""

import pytest
from structlog.testing import capture_logs


@pytest.fixture(autouse=True)
def _nothing_breaks(request):
    """Fail where an error that nobody foresaw was logged, unless the test is about that."""
    with capture_logs() as lines:
        yield
    if request.node.get_closest_marker("breaks") is None:
        assert [line for line in lines if line["event"].endswith("_error")] == []
