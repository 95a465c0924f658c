"""`policyd dashboard`: which pages may be served, and what is imported for it when."""

import subprocess
import sys

import pytest
from click.testing import CliRunner

from policyd.cli import main
from policyd.dashboard.serve import LaterApp


def refused(*options):
    found = CliRunner().invoke(main, ["dashboard", *options])
    assert found.exit_code == 2
    return found.output


def test_a_page_that_others_reach_has_to_sign_people_in():
    assert "has to sign people in" in refused("--host", "0.0.0.0")
    assert "has to sign people in" in refused("--host", "::")


def test_a_proxy_needs_a_certificate_and_a_name_or_a_secret(tmp_path):
    file = tmp_path / "file"
    file.write_text("x")

    assert "go together" in refused("--proxy-name", "a")
    assert "go together" in refused("--client-ca", str(file))
    assert "shorter than 16" in refused("--proxy-secret-file", str(file))
    assert "cannot read" in refused("--proxy-secret-file", str(tmp_path / "none"))
    both = ("--client-ca", str(file), "--proxy-name", "a")
    assert "needs both" in refused("--kubeconfig", kubeconfig(tmp_path), *both)
    given = ("--certificate", str(file), "--key", str(file), "--tokens")
    assert "cannot be used" in refused("--kubeconfig", kubeconfig(tmp_path), *given)


@pytest.mark.parametrize("name", ["http://a", "a:80", "a/b", "", "a@b"])
def test_a_host_name_is_one(tmp_path, name):
    given = ("--kubeconfig", kubeconfig(tmp_path), "--tokens", "--host-name", name)

    assert "is not a host name" in refused(*given)


def kubeconfig(folder):
    path = folder / "kubeconfig"
    path.write_text(
        "{clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}], users: [{name: u}],"
        " contexts: [{name: c, context: {cluster: c, user: u}}], current-context: c}"
    )
    return str(path)


def test_what_makes_pages_is_not_imported_before_the_first_request():
    code = (
        "import sys, policyd.cli.questions.dashboard, policyd.dashboard.serve;"
        "print([name for name in sys.modules if name == 'jinja2' or 'dashboard.pages' in name])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert run.stdout.strip() == "[]"


@pytest.mark.anyio
async def test_the_application_is_made_once_by_the_first_request():
    made = []

    class Page:
        def __init__(self):
            made.append(self)
            self.closed = False

        @property
        def app(self):
            async def answer(scope, receive, send):
                await send(scope)

            return answer

        async def close(self):
            self.closed = True

    app, sent = LaterApp(Page), []

    async def send(message):
        sent.append(message)

    await app.aclose()
    assert made == []
    for number in range(3):
        await app(number, None, send)
    await app.aclose()
    assert sent == [0, 1, 2]
    assert [page.closed for page in made] == [True]
