"""Who gets in, what is theirs, and how a page goes on that has lost its server."""

import pytest
from playwright.sync_api import expect

from tests.browser.served import dashboard
from tests.browser.visiting import visiting
from tests.scenarios.api import eventually
from tests.scenarios.clusters import ready
from tests.scenarios.objects import job

pytestmark = pytest.mark.browser


def test_a_link_is_good_for_one_browser(up, browser, visitor):
    up.enter(visitor)
    used = up.link()

    with visiting(browser) as other:
        assert other.goes(used) == 401
        other.errors.clear()  # the console has the code of the answer
        expect(other.page.locator("main")).to_contain_text("used, or is too old")
        other.goes(f"{up.url}/pending?team=team-a")
        assert other.page.url.startswith(f"{up.url}/sign-in?next=")


def test_who_signs_out_is_out(up, visitor):
    up.enter(visitor)

    visitor.page.click("text=Sign out")

    visitor.page.wait_for_url("**/sign-in")
    visitor.goes(f"{up.url}/pending")
    assert "/sign-in" in visitor.page.url


def test_the_cookie_is_for_this_page_alone(up, visitor):
    up.enter(visitor)

    (cookie,) = visitor.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    assert visitor.page.evaluate("document.cookie") == ""


def test_a_form_of_another_site_is_not_answered(up, browser):
    with visiting(browser) as visitor:
        up.enter(visitor)
        api, before = up.cluster.api, len(up.cluster.api.find("Job", "team-a"))
        form = (
            f'<form method="post" action="{up.url}/what-if"><input name="deleted" value="job/a/b">'
            '<input name="form_token" value="x"><button>go</button></form>'
        )
        visitor.page.goto("about:blank")
        visitor.page.set_content(form)
        with visitor.page.expect_navigation():
            visitor.page.click("text=go")

        expect(visitor.page.locator("main")).to_contain_text("not sent by this page")
        visitor.errors.clear()  # the console has the code of the answer
        assert len(api.find("Job", "team-a")) == before


def test_a_page_says_that_it_has_lost_its_server_and_goes_on(up, browser, tmp_path):
    with visiting(browser) as visitor:
        with dashboard(up.cluster, tmp_path) as served:
            served.enter(visitor)
            state = visitor.page.locator("#live-state")
            expect(state).to_have_text("Live")
            port, first = served.url.rpartition(":")[2], served.url

            served.process.kill()
            expect(state).to_have_text("Reconnecting")
        (tmp_path / "dashboard.log").unlink()
        with dashboard(up.cluster, tmp_path, "--port", port) as served:
            expect(state).to_contain_text("load the page again")
            eventually(lambda: ready(served.process, "/enter/"), what="it is back")
            assert served.url == first
            served.enter(visitor)
            expect(visitor.page.locator("#live-state")).to_have_text("Live")
        visitor.errors.clear()  # the console has the connections that were refused


@pytest.fixture
def queue_of_its_own(up):
    """A namespace with a queue that has no quota; return what gives it some."""
    api = up.cluster.api
    names = {"metadata": {"name": "team-c", "labels": {"policyd.io/queue": "team-c"}}}
    api.create({"apiVersion": "v1", "kind": "Namespace", **names})
    about = {"apiVersion": "kueue.x-k8s.io/v1beta2", "metadata": {"name": "team-c"}}
    api.create({**about, "kind": "ClusterQueue", "spec": quota_of(0)})
    local = {"name": "team-c", "namespace": "team-c"}
    api.create(
        {**about, "kind": "LocalQueue", "metadata": local, "spec": {"clusterQueue": "team-c"}}
    )
    yield lambda gpus: api.patch("ClusterQueue", "team-c", {"spec": quota_of(gpus)})
    api.delete("Job", "comes", "team-c", missing_is_fine=True)


def quota_of(gpus):
    resources = [
        {"name": name, "nominalQuota": amount}
        for name, amount in {"cpu": "96", "memory": "1Ti", "nvidia.com/gpu": str(gpus)}.items()
    ]
    group = {
        "coveredResources": [each["name"] for each in resources],
        "flavors": [{"name": "h100", "resources": resources}],
    }
    return {"namespaceSelector": {}, "resourceGroups": [group]}


def test_a_change_is_seen_without_loading_again(up, visitor, queue_of_its_own):
    up.enter(visitor)
    visitor.goes(f"{up.url}/pending?namespace=team-c")
    expect(visitor.page.locator("#live-state")).to_have_text("Live")

    visitor.page.evaluate("window.kept = true")
    up.cluster.api.create(job("comes", "team-c", gpus=8, run_for="1h"))
    expect(visitor.page.get_by_role("link", name="comes")).to_be_visible()
    assert visitor.page.evaluate("window.kept") is True

    visitor.goes(f"{up.url}/jobs/team-c/Job/comes")
    visitor.page.evaluate("window.kept = true")
    state = visitor.page.locator("#live-summary .tag")
    expect(state).to_have_text("Pending")
    queue_of_its_own(8)
    expect(state).to_have_text("Admitted")
    expect(visitor.page.locator("#live-timeline")).to_contain_text("Admitted by")
    expect(visitor.page.locator("#live-pods")).to_contain_text("Running")
    assert visitor.page.evaluate("window.kept") is True
