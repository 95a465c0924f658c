"""What `policyd export` writes, on a real API server: it answers as policyd does."""

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from policyd.cli import main
from policyd.engine.cases import load_cases
from policyd.engine.load import load_policies
from policyd.engine.offline import namespace_lookup, offline_set
from tests.live.server import Live, definition, live
from tests.live.trial import Trial

pytestmark = pytest.mark.e2e

LIBRARY = Path(__file__).parents[2] / "policies"
FOLDERS = sorted(path.parent for path in LIBRARY.rglob("cases.yaml"))

CUSTOM = [
    ("jobset.x-k8s.io", ["v1alpha2"], "JobSet", "jobsets"),
    ("leaderworkerset.x-k8s.io", ["v1"], "LeaderWorkerSet", "leaderworkersets"),
    ("kubeflow.org", ["v2beta1"], "MPIJob", "mpijobs"),
    ("kubeflow.org", ["v1"], "PyTorchJob", "pytorchjobs"),
    ("ray.io", ["v1"], "RayCluster", "rayclusters"),
    ("ray.io", ["v1"], "RayJob", "rayjobs"),
]


@pytest.fixture(scope="module")
def server() -> Live:
    with live() as running:
        running.define([definition(*kind) for kind in CUSTOM])
        running.create(list(priority_classes()))
        yield running


def priority_classes():
    for name in ("production", "research", "training"):
        yield {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": 1000,
        }


def exported(path):
    result = CliRunner().invoke(main, ["export", str(path)])
    assert result.exit_code == 0, result.stderr
    return [*yaml.load_all(result.stdout, Loader=yaml.CSafeLoader)]


def trials(running, folder):
    """Return the cases of a folder, each with its namespace."""
    cases, findings = load_cases((folder / "cases.yaml").read_text(), folder.name)
    assert not findings
    for index, case in enumerate(cases.cases):
        labels = cases.namespace_labels if case.namespace_labels is None else case.namespace_labels
        own = case.object["metadata"].get("namespace") or f"{folder.name}-{index}"[:63]
        user = {"username": "someone", "groups": []}
        if case.user:
            user = {"username": case.user.username, "groups": list(case.user.groups)}
        yield (
            case,
            Trial(
                name=case.name,
                object=case.object,
                namespace=running.namespace(own, labels),
                operation=case.operation,
                old_object=case.old_object,
                user=user,
            ),
        )


@pytest.mark.parametrize("folder", [pytest.param(f, id=f.name) for f in FOLDERS])
def test_the_api_server_answers_the_librarys_cases_as_policyd_does(folder, server):
    loaded = load_policies((folder / "policy.yaml").read_text(), folder.name)
    made = [*trials(server, folder)]
    for _, trial in made:
        trial.prepare(server)
        if not trial.refused:
            find = namespace_lookup([trial.namespace], {})
            trial.decide(server, offline_set(loaded, find))
    native = exported(folder)

    server.create(native)
    server.settle()
    answers = [trial.ask(server) for _, trial in made]
    server.delete(native)
    server.settle()

    asked = [
        (trial, answer)
        for (_, trial), answer in zip(made, answers, strict=True)
        if not trial.refused
    ]
    differing = {
        trial.name: why for trial, answer in asked if (why := trial.difference(answer, advice))
    }
    assert not differing
    assert len(asked) > len(made) // 2, [trial.refused for _, trial in made]


def advice(denial):
    return denial.advice
