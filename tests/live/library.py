"""The policy library: its folders, its cases as trials, and what it is exported as."""

from pathlib import Path

import yaml
from click.testing import CliRunner

from policyd.cli import main
from policyd.engine.offline.cases import load_cases
from tests.live.server import definition
from tests.live.trial import Trial

LIBRARY = Path(__file__).parents[2] / "policies"
FOLDERS = sorted(path.parent for path in LIBRARY.rglob("policy.yaml"))

DEFINITIONS = [
    *(
        definition(*kind)
        for kind in (
            ("batch.volcano.sh", ["v1alpha1"], "Job", "jobs"),
            ("jobset.x-k8s.io", ["v1alpha2"], "JobSet", "jobsets"),
            ("leaderworkerset.x-k8s.io", ["v1"], "LeaderWorkerSet", "leaderworkersets"),
            ("kubeflow.org", ["v2beta1"], "MPIJob", "mpijobs"),
            ("kubeflow.org", ["v1"], "PyTorchJob", "pytorchjobs"),
            ("ray.io", ["v1"], "RayCluster", "rayclusters"),
            ("ray.io", ["v1"], "RayJob", "rayjobs"),
        )
    ),
    definition("karpenter.sh", ["v1"], "NodePool", "nodepools", namespaced=False),
]


def priority_classes():
    for name in ("inference", "notebook", "production", "research", "training"):
        yield {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": 1000,
        }


def exported(path):
    """Return what a folder is exported as; nothing if `policyd export` says why."""
    result = CliRunner().invoke(main, ["export", "--partial", str(path)])
    assert result.stdout or "is not exported" in result.stderr, result.stderr
    return [*yaml.load_all(result.stdout, Loader=yaml.CSafeLoader)]


def params(folder):
    """Return the objects that the policies of a folder look up, with their namespaces."""
    cases, findings = load_cases((folder / "cases.yaml").read_text(), folder.name)
    assert not findings
    return list(cases.params)


def trials(running, folder):
    """Return the cases of a folder, each with its namespace."""
    cases, findings = load_cases((folder / "cases.yaml").read_text(), folder.name)
    assert not findings
    for index, case in enumerate(case for case in cases.cases if not case.sub_resource):
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
