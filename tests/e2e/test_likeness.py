"""The embedded API server and a real one, asked the same, answer the same.

A story is a list of requests in a namespace of its own. What differs by nature (versions, uids,
times) is blanked; what differs knowingly stands in the table of differences, with its reason.
"""

import pytest

from tests.e2e.likeness.differences import compared, outdated
from tests.e2e.likeness.stories import STORIES
from tests.e2e.likeness.telling import run_story, unlike

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize(
    ("name", "story"), [pytest.param(name, story, id=name) for name, story in STORIES.items()]
)
def test_both_servers_answer_the_same(servers, name, story):
    given = {who: run_story(server, story) for who, server in servers.items()}

    known = {who: [compared(name, a).shown() for a in answers] for who, answers in given.items()}
    assert known["embedded"] == known["real"], unlike(known)
    assert outdated(name, given.values()) == []
