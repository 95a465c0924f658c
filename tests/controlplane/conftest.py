"""One control plane for all tests of this folder; what breaks it starts its own."""

import pytest

from tests.controlplane.credentials import User
from tests.controlplane.nodes import RACK
from tests.controlplane.server import ControlPlane


@pytest.fixture(scope="session")
def control_plane():
    with ControlPlane(users=[User(name="alice", groups=("research",))]) as control_plane:
        control_plane.add_nodes("a1", "a2", labels={RACK: "a"})
        yield control_plane
