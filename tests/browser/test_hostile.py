"""Text that users write anywhere stays text on the page."""

from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from tests.browser.served import HOSTILE, hostile_event, hostile_job

pytestmark = pytest.mark.browser

PAGES = (
    "/",
    "/pending",
    "/cluster",
    "/jobs/team-b/Job/hostile",
    "/policies",
    "/policies/unbound",
    "/policies/cap-gpus-per-pod",
    *(
        f"{path}{quote(HOSTILE)}"
        for path in (
            "/?name=", "/pending?team=", "/cluster?job=", "/policies?word=", "/what-if?deleted=",
            "/jobs/team-b/Job/", "/policies/",
        )
    ),
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _hostile_objects(up):
    api = up.cluster.api
    api.create(hostile_job())
    api.create(hostile_event("hostile"))
    yield
    api.delete("Job", "hostile", "team-b")
    api.call("DELETE", "api/v1/namespaces/team-b/events/hostile.hostile")


@pytest.fixture
def inside(up, visitor):
    up.enter(visitor)
    yield visitor
    # A page of something that does not exist has the code of that in the console.
    visitor.errors = [each for each in visitor.errors if "Failed to load" not in each]


@pytest.mark.parametrize("path", PAGES)
def test_hostile_text_stays_text(up, inside, path):
    inside.goes(up.url + path)

    assert inside.page.locator("img[src=x]").count() == 0
    scripts = inside.page.locator("script").all()
    assert [each.get_attribute("src").partition("?")[0] for each in scripts] == ["/static/page.js"]
    assert [each for each in inside.errors if "Failed to load" not in each] == []


def test_it_is_shown_as_it_was_written(up, inside):
    inside.goes(f"{up.url}/jobs/team-b/Job/hostile")
    expect(inside.page.locator("#live-timeline")).to_contain_text(HOSTILE)
    inside.goes(f"{up.url}/policies/unbound")
    expect(inside.page.locator(".lead")).to_have_text(HOSTILE)
    inside.goes(f"{up.url}/policies/cap-gpus-per-pod")
    expect(inside.page.locator("#live-results")).to_contain_text(HOSTILE)


def test_a_hostile_manifest_is_answered_as_text(up, inside):
    inside.goes(f"{up.url}/what-if?namespace=team-a")
    name = "x</textarea><img src=x onerror=alert(1)>"
    manifest = f'{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {{"name": "{name}"}}}}'
    inside.page.fill("#text", manifest)
    inside.page.click("text=Try it")

    expect(inside.page.locator(".verdict")).to_contain_text("refused")
    assert inside.page.locator("img[src=x]").count() == 0
    assert inside.page.input_value("#text") == manifest


def test_every_answer_has_the_policy_of_content(up, inside):
    for path in ("/", "/what-if", "/static/page.js", "/nowhere", "/sign-in"):
        answer = inside.context.request.get(up.url + path)
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
