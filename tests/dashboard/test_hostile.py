"""Names that attack the page: nothing of them becomes markup, script or an address elsewhere."""

import re
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from policyd.dashboard import rendering
from policyd.dashboard.live import MOST_CHANNELS_OF_ONE, Channel, Viewer
from policyd.dashboard.pages import VIEWS
from policyd.kube.resources import EVENTS, NODES, PODS
from policyd.snapshot.values import LocalQueueName, Origin, PendingRow, SnapshotReason
from tests.dashboard.looking import Looking
from tests.dashboard.made import NOW, cohort, made_queue, made_snapshot

ATTACKS = (
    '"><script>alert(1)</script>',
    "'><img src=x onerror=alert(1)>",
    "{{ 7 * 7 }}{% include 'layout.html' %}",
    "javascript:alert(1)",
    "</script><svg onload=alert(1)>",
    "\u202e\u2066evil\u0000",
)
VOID = {"meta", "link", "input", "img", "br", "rect", "path", "circle"}
OWN_SCRIPT = re.compile(r"/static/page\.js\?v=[0-9a-f]{16}")


class Markup(HTMLParser):
    """Collects what could run or lead elsewhere."""

    def __init__(self, text):
        super().__init__()
        self.scripts, self.handlers, self.elsewhere, self.tags = [], [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        given = dict(attrs)
        if tag == "script":
            self.scripts.append(given.get("src"))
        self.handlers += [name for name in given if name.startswith("on") or name == "style"]
        for name in ("href", "src", "action"):
            value = given.get(name)
            if value and not value.startswith(("/", "#", "?")):
                self.elsewhere.append(value)
            if value and value.startswith(("//", "/\\")):
                self.elsewhere.append(value)


def check(answer):
    found = Markup(answer.text)
    assert all(OWN_SCRIPT.fullmatch(each) for each in found.scripts)
    assert found.handlers == []
    assert found.elsewhere == []
    assert "49" not in re.findall(r">\s*(49)\s*<", answer.text)


def hostile_api(looking, name):
    row = PendingRow(f"{name}/{name}", f"{name}/{name}", 0, 1, 1, 0, -1, 0, 0, -1)
    queue = made_queue(
        name,
        cohort=name,
        pending=1,
        holding=1,
        active=False,
        message=name,
        local_queues=(LocalQueueName(name, name),),
        origins=(Origin(name, name),),
        reasons=(SnapshotReason(type=name, message=name, user=name, administrator=name),),
    )
    queue = msgspec.structs.replace(queue, pending=(row,))
    body = msgspec.to_builtins(made_snapshot(queue, cohorts=(cohort(name),)))
    looking.api.serve_body(body)
    about = {"kind": "Workload", "namespace": name, "name": name}
    looking.api.store.put(
        EVENTS,
        {
            "metadata": {"name": "e", "namespace": "n"},
            "involvedObject": about,
            "reason": "Admitted",
            "message": name,
            "lastTimestamp": "2023-11-14T22:13:00Z",
            "source": {"component": "policyd"},
        },
    )
    status = {"allocatable": {"nvidia.com/gpu": "8", f"x/{name}": "1"}}
    labels = {"kubernetes.io/hostname": name}
    looking.api.store.put(NODES, {"metadata": {"name": name, "labels": labels}, "status": status})
    container = {"name": "c", "resources": {"requests": {"nvidia.com/gpu": "1"}}}
    looking.api.store.put(
        PODS,
        {
            "metadata": {"name": name, "namespace": name},
            "spec": {"nodeName": name, "containers": [container]},
            "status": {"phase": "Running"},
        },
    )


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.parametrize("path", ["/", "/pending", "/cluster"])
def test_names_stay_text(path, name):
    looking = Looking()
    hostile_api(looking, name)
    looking.enter()
    answer = looking.get(path)

    assert answer.status_code == 200
    check(answer)
    assert "evil" in answer.text or "alert(1)" in answer.text or "7 * 7" in answer.text


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.parametrize("path", ["/", "/pending", "/cluster", "/sign-in", "/nothing"])
def test_queries_stay_text(path, name):
    looking = Looking()
    hostile_api(looking, "plain")
    looking.enter()
    names = ("queue", "team", "kind", "size", "rack", "job", "device", "resource", "page", "next")
    answer = looking.browser.get(path, params=dict.fromkeys(names, name))

    assert answer.status_code in {200, 404}
    check(answer)


@pytest.mark.parametrize("name", ATTACKS)
def test_a_namespace_that_is_no_name_is_refused_as_text(name):
    looking = Looking()
    looking.sign_in("ann", "team-a")
    answer = looking.browser.get("/", params={"namespace": name})

    assert answer.status_code == 403
    check(answer)


def test_fragments_escape_as_pages_do():
    looking = Looking()
    hostile_api(looking, ATTACKS[0])
    snapshot = msgspec.convert(
        msgspec.to_builtins(made_snapshot(made_queue(ATTACKS[0], pending=1))),
        type(made_snapshot()),
    )
    view = next(each for each in VIEWS if each.path == "/pending")
    page = rendering.PageFrame(title="x", at="/pending", now=NOW)
    model = view.build(snapshot, {"team": ATTACKS[0]}, NOW)
    found = rendering.Renderer().fragments(view, page, model)

    assert set(found) == {"live-notices", "live-results"}
    assert "<script>" not in "".join(found.values())


@pytest.mark.parametrize("text", [*ATTACKS, "`<b>` `</code>` <i>", "`", "``", "a `b"])
def test_words_in_backticks_are_escaped_as_all_others(text):
    found = Markup(str(rendering._words(text)))

    assert found.tags <= {"code"}
    assert found.handlers == []


TEMPLATES = sorted((Path(rendering.HERE) / "templates").glob("*.html"))


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_templates_escape_everything_and_quote_every_attribute(path):
    text = path.read_text()

    assert "|safe" not in text.replace(" ", "")
    assert "autoescape" not in text
    assert not re.search(r"\bon[a-z]+=|\bstyle=", text)
    assert not re.search(r" [a-z-]+=\{\{", text), "an attribute without quotes"
    assert not re.search(r"='[^']*\{\{", text), "an attribute in single quotes"
    assert not re.search(r"https?://", text.replace("http://www.w3.org/2000/svg", ""))


def test_the_script_has_no_other_way_to_make_markup():
    text = (Path(rendering.HERE) / "static" / "page.js").read_text()

    assert text.count("innerHTML") == 1
    for each in ("eval(", "document.write", "insertAdjacentHTML", "new Function", "http"):
        assert each not in text


def test_a_viewer_that_is_one_too_many_gets_an_answer():
    looking = Looking()
    hostile_api(looking, "plain")
    looking.enter()
    session = looking.page.sessions.all[0]
    hub = looking.page.hub
    for number in range(MOST_CHANNELS_OF_ONE):
        channel = Channel(looking.pace)
        channel.viewers[Viewer(session.identity)] = None
        hub._channels[number] = channel

    answer = looking.get("/live/")

    assert answer.status_code == 503
    assert "too many different views are sent changes already" in answer.text
