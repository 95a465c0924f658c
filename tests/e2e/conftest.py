"""Both servers, for all tests of likeness."""

import pytest

from tests.e2e.likeness.servers import both


@pytest.fixture(scope="session")
def servers_and_loop(tmp_path_factory):
    with both(tmp_path_factory.mktemp("likeness")) as running:
        yield running


@pytest.fixture
def servers(servers_and_loop):
    """The embedded server and the real one, by name."""
    return servers_and_loop[0]


@pytest.fixture(scope="session")
def loop(servers_and_loop):
    """An event loop beside the tests, for what they serve themselves."""
    return servers_and_loop[1]
