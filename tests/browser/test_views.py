"""Every view: what it shows, to everybody, with and without script, by keyboard alone."""

import os
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.served import prioritized
from tests.browser.visiting import DESK, MANIFEST, PHONE, visiting
from tests.scenarios.api import Refused

pytestmark = pytest.mark.browser

IMAGES = Path(__file__).parents[2] / "docs" / "images"
SCREENSHOTS = bool(os.environ.get("POLICYD_SCREENSHOTS"))
MOST_BYTES = 150_000

VIEWS = {
    "overview": ("/", "Overview"),
    "cluster": ("/cluster", "Cluster"),
    "gang": ("/cluster?job=team-a/Job/urgent", "Cluster"),
    "pending": ("/pending", "Pending jobs"),
    "job": ("/jobs/team-a/Job/pretrain", "Job team-a/pretrain"),
    "policies": ("/policies", "Policies"),
    "policy": ("/policies/cap-gpus-per-pod", "Policy cap-gpus-per-pod"),
    "what-if": ("/what-if", "What if"),
}
SETTINGS = {
    "desk": (DESK, "light"),
    "dark": (DESK, "dark"),
    "phone": (PHONE, "light"),
    "dark-phone": (PHONE, "dark"),
}
IN_DOCS = {
    **{(name, "desk"): f"page-{name}.png" for name in VIEWS if name not in {"gang", "policy"}},
    ("overview", "dark"): "page-overview-dark.png",
    ("pending", "phone"): "page-pending-phone.png",
}
"""Screenshots for the docs."""


@pytest.fixture(scope="module")
def signed_in(up, browser):
    """The cookie of somebody who has signed in, for browsers of other settings."""
    with visiting(browser) as visitor:
        up.enter(visitor)
        yield visitor.context.storage_state()


def shows(visitor, up, name):
    path, heading = VIEWS[name]
    assert visitor.goes(up.url + path) == 200
    assert visitor.page.inner_text("h1") == heading


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_is_fit_for_everybody(up, browser, signed_in, name):
    with visiting(browser, storage_state=signed_in) as visitor:
        shows(visitor, up, name)
        if name == "what-if":
            tries(visitor)

        for setting, (size, scheme) in SETTINGS.items():
            visitor.page.set_viewport_size(size)
            visitor.page.emulate_media(color_scheme=scheme)
            assert not visitor.violations(), setting
            assert visitor.overflow() == 0, setting
            if SCREENSHOTS and (name, setting) in IN_DOCS:
                keep(visitor, IN_DOCS[name, setting])


def test_what_policies_did_is_counted_as_it_happens(up, browser, signed_in):
    with visiting(browser, storage_state=signed_in) as visitor:
        shows(visitor, up, "policies")
        row = visitor.page.locator("#live-list tr", has_text="cap-gpus-per-pod").first
        matched, _, refused = (int(row.locator("td").nth(at).inner_text()) for at in (2, 3, 4))
        greedy = prioritized("greedy", "research", gpus=99)
        with pytest.raises(Refused, match="cap-gpus-per-pod"):
            up.cluster.api.create(greedy)

        expect(row.locator("td").nth(4)).to_have_text(str(refused + 1), timeout=30_000)
        assert matched > 0


def keep(visitor, name):
    """Write a screenshot for the docs."""
    IMAGES.mkdir(exist_ok=True)
    visitor.page.evaluate("scrollTo(0, 0)")
    file = IMAGES / name
    visitor.page.screenshot(path=file)
    assert file.stat().st_size <= MOST_BYTES


def tries(visitor, text=MANIFEST):
    """Try a manifest, and wait for the verdict."""
    visitor.page.fill("#text", text)
    visitor.page.click("text=Try it")
    expect(visitor.page.locator(".verdict, main .notice")).to_be_visible()


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_works_without_script(up, browser, signed_in, name):
    with visiting(browser, java_script_enabled=False, storage_state=signed_in) as visitor:
        shows(visitor, up, name)

        assert len(visitor.page.inner_text("main")) > 200
        visitor.page.select_option("#namespace", "team-b")
        visitor.page.click("text=Show")
        assert visitor.page.url.count("namespace=team-b") == 1


def test_a_manifest_is_tried_without_script(up, browser, signed_in):
    with visiting(browser, java_script_enabled=False, storage_state=signed_in) as visitor:
        visitor.goes(f"{up.url}/what-if?namespace=team-a")
        tries(visitor)

        expect(visitor.page.locator(".verdict")).to_contain_text("accepted")
        expect(visitor.page.locator(".verdict")).to_contain_text("would wait")
        expect(visitor.page.locator("#differences ~ .scroll")).to_contain_text("Job/tried")
        assert visitor.page.input_value("#text") == MANIFEST
    assert not up.cluster.api.exists("Job", "tried", "team-a")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(
            MANIFEST.replace("gpu: 8", "gpu: 9"), "cap-gpus-per-pod", id="refused-by-policy"
        ),
        pytest.param("{", "manifest", id="not-yaml"),
        pytest.param("a: 1", "no apiVersion and kind", id="not-an-object"),
        pytest.param(
            MANIFEST.replace("batch/v1", "batch/v9"), "no kind Job of batch/v9", id="unknown-kind"
        ),
        pytest.param("x: y\n" * 60_000, "larger than", id="huge"),
        pytest.param("[" * 5_000, "manifest", id="deep"),
        pytest.param(
            "".join(f"a{n}: &a{n} [{f'*a{n - 1},' * 9 if n else 'x'}]\n" for n in range(9)),
            "manifest",
            id="aliases",
        ),
    ],
)
def test_what_cannot_be_accepted_is_reported(up, browser, signed_in, text, message):
    with visiting(browser, storage_state=signed_in) as visitor:
        visitor.goes(f"{up.url}/what-if?namespace=team-a")
        visitor.page.evaluate("text => document.getElementById('text').value = text", text)
        visitor.page.click("text=Try it")

        expect(visitor.page.locator("main")).to_contain_text(message)
        visitor.errors.clear()  # the console has the code of the answer


def test_objects_that_go_are_tried(up, browser, signed_in):
    with visiting(browser, storage_state=signed_in) as visitor:
        visitor.goes(f"{up.url}/what-if")
        visitor.page.fill("#deleted", "job/team-a/urgent")
        visitor.page.click("text=Try it")

        row = visitor.page.locator("tr", has_text="Job/pretrain")
        expect(row).to_contain_text("now")
    assert up.cluster.api.exists("Job", "urgent", "team-a")


@pytest.mark.parametrize(
    ("field", "name"), [("#deleted", "job/team-a/nobody"), ("#until", "soon"), ("#nodes", "no-1")]
)
def test_what_cannot_be_tried_is_reported(up, browser, signed_in, field, name):
    with visiting(browser, storage_state=signed_in) as visitor:
        visitor.goes(f"{up.url}/what-if")
        visitor.page.fill("#deleted", "job/team-a/urgent")
        visitor.page.fill(field, name)
        visitor.page.click("text=Try it")

        expect(visitor.page.locator("main .notice")).to_contain_text("Not tried:")
        assert visitor.page.input_value(field) == name


def test_the_job_says_what_happened_to_it_and_who_set_what(up, browser, signed_in):
    with visiting(browser, storage_state=signed_in) as visitor:
        shows(visitor, up, "job")

        steps = visitor.page.locator(".timeline h3").all_inner_texts()
        assert steps[:3] == ["Created", "Quota reserved", "Admitted"]
        assert "Preempted" in steps
        expect(visitor.page.locator("li[data-step=preempted]")).to_contain_text("team-a/urgent")
        row = visitor.page.locator("tr", has_text="queue-name")
        expect(row.first).to_contain_text("queue-name-from-namespace")


def test_the_keyboard_is_enough(up, browser, signed_in):
    with visiting(browser, storage_state=signed_in) as visitor:
        shows(visitor, up, "overview")
        page = visitor.page

        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to content"
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "main"
        page.goto(up.url)
        reached = set()
        for _ in range(40):
            page.keyboard.press("Tab")
            at = page.evaluate("document.activeElement.textContent.trim()")
            visible = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert visible != "none", at
            reached.add(at)
            if at == "What if":
                break
        assert {"Overview", "Cluster", "Pending", "Policies", "What if"} <= reached
        page.keyboard.press("Enter")
        page.wait_for_url("**/what-if")
        page.focus("#text")
        page.keyboard.type("{")
        page.keyboard.press("Tab")
        page.keyboard.press("ArrowDown")
        assert page.is_checked("#apply")
        for _ in range(5):
            page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        expect(page.locator("main .notice")).to_be_visible()
