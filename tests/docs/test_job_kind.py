"""The guide's kind, as a package of its own: its cases pass, and a cluster queues it."""

import os
import subprocess
import sys
import tomllib

import pytest
import yaml

from tests.docs.pages import PROJECT, blocks
from tests.scenarios import api as driver
from tests.scenarios import clusters
from tests.scenarios.api import condition, eventually
from tests.scenarios.foreign import anything
from tests.scenarios.test_queue import workload_of

PAGE = PROJECT / "docs" / "guides" / "add-a-job-kind.md"
MOST_LINES = 80


def block(language, index=0):
    found = [each.text for each in blocks(PAGE) if each.language == language]
    return found[index]


@pytest.fixture
def package(tmp_path, monkeypatch):
    """The package, installed as pip leaves it: its modules, and what it registers."""
    (tmp_path / "render.py").write_text(block("python"))
    (tmp_path / "test_render.py").write_text(block("python", 1))
    installed = tmp_path / "render-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: render\nVersion: 1.0\n")
    ((group, points),) = tomllib.loads(block("toml"))["project"]["entry-points"].items()
    lines = [f"[{group}]", *(f"{name} = {target}" for name, target in points.items())]
    (installed / "entry_points.txt").write_text("\n".join(lines))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(PROJECT)]))
    return tmp_path


def test_a_kind_takes_less_than_eighty_lines_with_its_cases():
    written = [block("python"), block("python", 1), block("toml")]

    assert sum(len(text.splitlines()) for text in written) < MOST_LINES


def test_the_cases_of_the_guide_pass(package):
    command = [sys.executable, "-m", "pytest", "-q", str(package / "test_render.py")]
    run = subprocess.run(command, cwd=package, capture_output=True, text=True, check=False)

    assert "3 passed" in run.stdout, run.stdout


def test_a_wrong_registration_ends_the_process_with_a_message(package):
    points = package / "render-1.0.dist-info" / "entry_points.txt"
    points.write_text("[policyd.job_kinds]\nrender = render:Render\n")

    command = [sys.executable, "-c", "import policyd.jobs.kinds.registry"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)

    assert "the entry point `render` of policyd.job_kinds is no JobKind" in run.stderr


def test_a_cluster_queues_the_kind(package, tmp_path_factory):
    with clusters.embedded(tmp_path_factory.mktemp("up")) as cluster:
        api = cluster.api
        api.create(anything("example.org", "v1", "Render"))
        driver.PATHS["Render"] = "apis/example.org/v1/namespaces/{namespace}/renders"
        eventually(lambda: served(api), what="Renders are served")
        film = yaml.safe_load(block("text"))
        assert eventually(lambda: made(api, film), what="the film is held")["spec"]["suspend"]

        started = eventually(lambda: running(api), what="the film is started")
        assert started["spec"]["template"]["spec"]["nodeSelector"]
        painted = {"type": "Painted", "status": "True", "reason": "Done", "message": "the end"}
        api.call(
            "PATCH",
            "apis/example.org/v1/namespaces/team-a/renders/film/status",
            {"status": {"done": 2, "conditions": [painted]}},
            content_type="application/merge-patch+json",
        )
        eventually(
            lambda: condition(workload_of(api, "film"), "Finished").get("message") == "the end",
            what="its workload is finished",
        )


def served(api):
    try:
        return api.find("Render", "team-a") == []
    except driver.Refused:
        return False


def made(api, film):
    """Make a Render again until the webhook knows that there are any."""
    found = api.create(film)
    if found["spec"].get("suspend"):
        return found
    api.delete("Render", "film", "team-a")
    return None


def running(api):
    found = api.get("Render", "film", "team-a")
    return found if not found["spec"]["suspend"] else None
