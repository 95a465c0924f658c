"""The page as the chart runs it: a real API server says who somebody is, and what they may see."""

import json
import re
import urllib.parse
import urllib.request
from contextlib import suppress
from http.cookiejar import CookieJar
from urllib.error import HTTPError

import pytest

from tests.charts import release
from tests.charts.conftest import CONTROLLER, process
from tests.charts.release import CHART, NAMESPACE, RELEASE
from tests.charts.test_visibility import OBJECTS
from tests.controlplane.programs import API_SERVER, ETCD, free_ports
from tests.controlplane.server import ControlPlane
from tests.scenarios.api import eventually

pytestmark = pytest.mark.e2e

DASHBOARD = f"{RELEASE}-dashboard"
SECRET = "a-secret-of-the-proxy"
TEAM_ROLE = next(each for each in OBJECTS if each["kind"] == "RoleBinding")


class Browser:
    """Keeps cookies, and follows no redirects."""

    def __init__(self, port, **headers):
        self.base, self.headers = f"http://localhost:{port}", headers
        keeping = urllib.request.HTTPCookieProcessor(CookieJar())
        self._opener = urllib.request.build_opener(keeping, NoRedirect())

    def open(self, path, fields=None):
        body = None if fields is None else urllib.parse.urlencode(fields).encode()
        headers = {**self.headers, **({} if body is None else {"Origin": self.base})}
        request = urllib.request.Request(self.base + path, body, headers)
        try:
            with self._opener.open(request, timeout=30) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            return error.code, error.read().decode()


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """The chart with its page, a controller that serves snapshots, and two accounts of a team."""
    folder = tmp_path_factory.mktemp("page")
    flags = {API_SERVER: release.front_proxy(folder)}
    with ControlPlane(components=(ETCD, API_SERVER), flags=flags) as control_plane:
        control_plane.kubectl("create", "namespace", NAMESPACE)
        ports = free_ports(["health", "visibility", "page"])
        values = {
            "controller.healthPort": ports["health"],
            "controller.visibility.port": ports["visibility"],
            "dashboard.enabled": True,
            "dashboard.port": ports["page"],
            "dashboard.proxy.userPrefix": "oidc:",
        }
        notes = release.on(control_plane, "install", RELEASE, CHART, *release.set_values(values))
        assert f"kubectl port-forward -n {NAMESPACE} service/{DASHBOARD} 8090:80" in notes
        assert "the page has nothing to show" not in notes
        release.lead_visibility_to_this_machine(control_plane, ports["visibility"])
        for each in OBJECTS:
            control_plane.kubectl("create", "-f", "-", stdin=json.dumps(each))
        for account in ("ann", "eve"):
            control_plane.kubectl("create", "serviceaccount", account, "-n", "team")
        subjects = [
            {"kind": "ServiceAccount", "name": "ann", "namespace": "team"},
            {"kind": "User", "name": "oidc:ann", "apiGroup": "rbac.authorization.k8s.io"},
        ]
        role = {**TEAM_ROLE, "metadata": {"name": "ann", "namespace": "team"}}
        control_plane.kubectl("create", "-f", "-", stdin=json.dumps({**role, "subjects": subjects}))
        secret = folder / "secret"
        secret.write_text(SECRET)
        page = process(control_plane, DASHBOARD, folder)
        page.arguments.append(f"--proxy-secret-file={secret}")
        page.arguments.append("--proxy-user-prefix=oidc:")
        controller = process(control_plane, CONTROLLER, folder)
        for each in (controller, page):
            each.start()
        try:
            for name in release.VISIBILITY_APIS:
                control_plane.wait_for("apiservice", name, condition="condition=Available")
            eventually(lambda: answers(ports["page"]), what="the page is served")
            yield control_plane, ports["page"], folder
        finally:
            for each in (page, controller):
                each.stop()


def answers(port):
    with suppress(OSError):
        return Browser(port).open("/healthz")[0] == 200
    return False


def token(control_plane, account):
    return control_plane.kubectl("create", "token", account, "-n", "team").strip()


def signed_in(served, account):
    control_plane, port, _ = served
    browser = Browser(port)
    given = token(control_plane, account)
    status, _ = browser.open("/sign-in", {"token": given})
    assert status == 200
    return browser, given


def test_a_member_of_a_team_sees_the_queues_of_the_team_and_no_others(served):
    browser, _ = signed_in(served, "ann")
    status, page = browser.open("/pending")

    assert status == 200
    assert "2 pending" in page
    assert "Queues of team" in page
    assert re.search(r">sooner<", page)
    assert browser.open("/pending?namespace=kube-system")[0] == 403


def test_a_member_without_the_role_sees_nothing(served):
    browser, _ = signed_in(served, "eve")
    status, page = browser.open("/pending")

    assert status == 403
    assert "sooner" not in page


def test_a_forged_token_signs_nobody_in(served):
    control_plane, port, _ = served
    head, _, signature = token(control_plane, "ann").rpartition(".")
    status, page = Browser(port).open("/sign-in", {"token": f"{head}.{signature[::-1]}"})

    assert status == 401
    assert "does not accept this token" in page
    assert Browser(port).open("/pending")[0] == 303


def test_who_a_proxy_signs_in_sees_what_the_roles_of_that_name_say(served):
    _, port, _ = served
    named = {"X-Forwarded-User": "ann", "X-Forwarded-Groups": "system:masters"}
    trusted = Browser(port, **named, **{"X-Policyd-Proxy-Secret": SECRET})

    assert trusted.open("/pending?namespace=team")[0] == 200
    assert trusted.open("/pending?namespace=kube-system")[0] == 403
    assert Browser(port, **named).open("/pending?namespace=team")[0] == 303


def test_changes_are_sent(served):
    browser, _ = signed_in(served, "ann")
    request = urllib.request.Request(f"{browser.base}/live/pending")
    with browser._opener.open(request, timeout=30) as answer:
        lines = [answer.readline().decode() for _ in range(12)]

    assert answer.headers["content-type"].startswith("text/event-stream")
    assert any("live-results" in line and "sooner" in line for line in lines)


def test_no_token_is_in_the_log(served):
    _, given = signed_in(served, "ann")
    _, _, folder = served

    assert given not in (folder / f"{DASHBOARD}.log").read_text()
