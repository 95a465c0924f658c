"""The embedded API server and a real one, asked the same, answer the same.

A story is a list of requests in a namespace of its own. What differs by nature (versions, uids,
times) is blanked; what differs knowingly stands in the table of differences, with its reason.
"""

import difflib

import pytest

from tests.e2e.likeness.differences import compared, outdated
from tests.e2e.likeness.servers import both
from tests.e2e.likeness.stories import STORIES
from tests.e2e.likeness.telling import tell

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def servers_and_loop(tmp_path_factory):
    with both(tmp_path_factory.mktemp("likeness")) as running:
        yield running


@pytest.fixture
def servers(servers_and_loop):
    return servers_and_loop[0]


@pytest.mark.parametrize(
    ("name", "story"), [pytest.param(name, story, id=name) for name, story in STORIES.items()]
)
def test_both_servers_answer_the_same(servers, name, story):
    said = {who: tell(server, story) for who, server in servers.items()}

    lines = {
        who: [line for answer in answers for line in compared(name, answer).lines()]
        for who, answers in said.items()
    }
    assert lines["embedded"] == lines["real"], shown(lines)
    assert outdated(name, said.values()) == []


def shown(lines):
    """Show where answers differ."""
    return "\n".join(
        difflib.unified_diff(lines["embedded"], lines["real"], "embedded", "real", lineterm="")
    )
