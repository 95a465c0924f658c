"""How many objects a second `policyd report` looks at, by the policies of the library."""

import json
import os
import subprocess
import sys

import pytest

from tests.bench.report import report
from tests.bench.stored import namespaces, stored
from tests.docs.pages import PROJECT

pytestmark = pytest.mark.bench

OBJECTS, GOAL = 20_000, 5_000


@pytest.mark.parametrize(
    ("what", "releases", "violations"),
    [
        pytest.param("of 3,200 applications, 3 releases each", 3, 0, id="releases"),
        pytest.param("each with its own images and amounts", 0, 0, id="unlike"),
        pytest.param("one of five breaks a policy", 3, 0.2, id="violations"),
    ],
)
def test_objects_a_second(what, releases, violations, tmp_path):
    around = list(namespaces())
    file, few = tmp_path / "objects.json", tmp_path / "few.json"
    few.write_text(listed(around))
    file.write_text(listed([*around, *stored(OBJECTS, violations=violations, releases=releases)]))

    spent = seconds(file, failing=violations > 0) - seconds(few)

    report(f"policyd report, {what}", OBJECTS / spent, "a second")
    report(f"policyd report, {what}", spent / OBJECTS * 1e6, "µs each", 1e6 / GOAL)


def listed(objects):
    """As `kubectl get -o json` writes them."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}, indent=4)


def seconds(file, *, failing=False):
    """Return the CPU time of the command."""
    policies = str(PROJECT / "policies")
    command = [sys.executable, "-m", "policyd", "report", "-p", policies, "-f", str(file)]

    before = os.times()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    after = os.times()

    assert done.returncode == failing, done.stdout[-2000:] + done.stderr[-2000:]
    return (after.children_user + after.children_system) - (
        before.children_user + before.children_system
    )
