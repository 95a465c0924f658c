"""What `policyd check` says that the API server refuses, a real one refuses; no more, no less."""

import pytest

from tests.live.refused import REFUSED, TAKEN
from tests.live.server import ADMISSION, live

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def server():
    with live() as running:
        yield running


def code(server, obj):
    plural = f"{obj['kind'].lower()[:-1]}ies" if obj["kind"].endswith("y") else None
    path = f"{ADMISSION}/{plural or obj['kind'].lower() + 's'}"
    return server.ask("POST", path, obj, query={"dryRun": "All"}).code


@pytest.mark.parametrize("obj", [pytest.param(o, id=name) for name, o in REFUSED.items()])
def test_the_api_server_refuses_it(obj, server):
    assert code(server, obj) == 422


@pytest.mark.parametrize("obj", [pytest.param(o, id=name) for name, o in TAKEN.items()])
def test_the_api_server_takes_it(obj, server):
    assert code(server, obj) == 201
