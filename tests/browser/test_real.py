"""The page on a real control plane: a plain user's token, and what that user may not see."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.browser.served import ServedPage, admitted, dashboard, prioritized
from tests.browser.visiting import MANIFEST, visiting
from tests.controlplane.credentials import User
from tests.scenarios import clusters
from tests.scenarios.api import Api, eventually

pytestmark = pytest.mark.browser

HIDDEN = (
    "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
    "visibility: {otherTeams: hidden}\n"
)
RBAC = "rbac.authorization.k8s.io"
VIEWS = ("/", "/cluster", "/pending", "/jobs/team-a/Job/first", "/policies", "/what-if")


@pytest.fixture(scope="module")
def real(tmp_path_factory) -> Iterator[ServedPage]:
    """The page by tokens; ann may view namespace team-a and create jobs there, bob nothing."""
    folder = tmp_path_factory.mktemp("real")
    config = folder / "configuration.yaml"
    config.write_text(HIDDEN)
    users = (User(name="ann"), User(name="bob"))
    with (
        clusters.real(folder, both=("--config", str(config)), users=users) as cluster,
        dashboard(cluster, folder, "--tokens") as served,
    ):
        _let_in(cluster.api)
        _fill(cluster.api)
        yield served


def _let_in(api: Api) -> None:
    subjects = [{"kind": "User", "name": "ann", "apiGroup": RBAC}]
    for role in ("view", "edit"):
        binding = {
            "apiVersion": f"{RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": f"ann-{role}", "namespace": "team-a"},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
            "subjects": subjects,
        }
        api.call("POST", f"apis/{RBAC}/v1/namespaces/team-a/rolebindings", binding)


def _fill(api: Api) -> None:
    api.create(prioritized("first", "production", gpus=8, pods=2))
    eventually(lambda: admitted(api, "first"), what="a job of ann's team runs")
    api.create(prioritized("secret", "production", namespace="team-b", gpus=8))
    eventually(lambda: admitted(api, "secret", "team-b"), what="a job of the other team runs")
    api.create(prioritized("waits", "production", gpus=8))


@pytest.fixture
def token(real):
    """Return the token of a user, out of the kubeconfig of the control plane."""
    import yaml  # noqa: PLC0415 - for this alone

    config = yaml.safe_load(real.cluster.kubeconfig.read_text())
    return {each["name"]: each["user"]["token"] for each in config["users"]}.__getitem__


def sign_in(visitor, real, token):
    visitor.goes(f"{real.url}/")
    visitor.page.fill("#token", token)
    visitor.page.click("main button")


@pytest.fixture
def ann(real, browser, token):
    with visiting(browser) as visitor:
        sign_in(visitor, real, token("ann"))
        expect(visitor.page.locator("h1")).to_have_text("Overview")
        yield visitor


@pytest.mark.parametrize("path", VIEWS)
def test_a_user_sees_each_view_of_the_own_namespace(real, ann, path):
    assert ann.goes(real.url + path) == 200

    assert ann.violations() == []
    expect(ann.page.locator(".account")).to_contain_text("team-a")
    assert "secret" not in ann.page.inner_text("body")


def test_jobs_of_others_are_those_of_another_team(real, ann):
    ann.goes(f"{real.url}/jobs/team-a/Job/waits")

    expect(ann.page.locator("main")).to_contain_text("other teams")
    assert "secret" not in ann.page.content()


@pytest.mark.parametrize(
    "path", ["/?namespace=team-b", "/jobs/team-b/Job/secret", "/pending?namespace=team-b"]
)
def test_what_is_of_others_is_refused_with_a_sentence(real, ann, path):
    assert ann.goes(real.url + path) == 403
    ann.errors.clear()  # the console has the code of the answer

    expect(ann.page.locator("main [role=alert]")).to_contain_text("ann")
    assert "secret" not in ann.page.inner_text("main").replace("Job/secret", "")


def test_a_user_without_rights_gets_a_message(real, browser, token):
    with visiting(browser) as visitor:
        sign_in(visitor, real, token("bob"))

        expect(visitor.page.locator("main")).to_contain_text(
            "bob may see the queues of no namespace"
        )
        visitor.errors.clear()


def test_a_token_of_nobody_is_refused(real, browser):
    with visiting(browser) as visitor:
        sign_in(visitor, real, "forged")

        expect(visitor.page.locator("main")).to_contain_text("does not accept this token")
        visitor.errors.clear()
        assert visitor.page.input_value("#token") == ""


def test_a_manifest_is_tried_with_the_rights_of_its_user(real, ann):
    ann.goes(f"{real.url}/what-if")
    ann.page.fill("#text", MANIFEST)
    ann.page.click("text=Try it")

    expect(ann.page.locator(".verdict")).to_contain_text("accepted")
    expect(ann.page.locator(".verdict")).to_contain_text("would wait")
    expect(ann.page.locator("[aria-label='Not considered']")).to_contain_text(
        "cannot list resource"
    )
    ann.page.fill("#text", MANIFEST.replace("team-a", "team-b"))
    ann.page.click("text=Try it")
    expect(ann.page.locator(".verdict")).to_contain_text("refused")
    assert not real.cluster.api.exists("Job", "tried", "team-a")


def test_what_policies_set_is_shown_on_a_real_server_too(real, browser, token):
    with visiting(browser) as visitor:
        sign_in(visitor, real, token("admin"))
        expect(visitor.page.locator("h1")).to_have_text("Overview")
        visitor.goes(f"{real.url}/jobs/team-a/Job/first")

        fields = visitor.page.locator("#changes ~ .scroll")
        expect(fields).to_contain_text('metadata.labels["kueue.x-k8s.io/queue-name"]')
        expect(fields).to_contain_text("policyd's controller, as it started the job")


def test_a_job_that_comes_is_seen_without_loading_again(real, ann):
    ann.goes(f"{real.url}/pending")
    expect(ann.page.locator("#live-state")).to_have_text("Live")
    ann.page.evaluate("window.kept = true")

    real.cluster.api.create(prioritized("comes", "production", gpus=8))

    expect(ann.page.get_by_role("link", name="comes")).to_be_visible()
    assert ann.page.evaluate("window.kept") is True
