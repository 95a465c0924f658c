"""`policyd convert`: what is written for Kueue's v1beta1, as v1beta2 has it."""

import pytest
import yaml
from click.testing import CliRunner

from policyd.cli import main

FLAVOR = {"name": "gpu", "resources": [{"name": "nvidia.com/gpu", "nominalQuota": "8"}]}
GROUPS = [{"coveredResources": ["nvidia.com/gpu"], "flavors": [FLAVOR]}]


def queue(version, **spec):
    return {
        "apiVersion": f"kueue.x-k8s.io/{version}",
        "kind": "ClusterQueue",
        "metadata": {"name": "team-a"},
        "spec": {"resourceGroups": GROUPS, **spec},
    }


OLD = queue("v1beta1", cohort="research", admissionChecks=["approved"])
NEW = queue(
    "v1beta2",
    cohortName="research",
    admissionChecksStrategy={"admissionChecks": [{"name": "approved"}]},
)
ODD = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ClusterQeue", "metadata": {"name": "a"}}
MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "other"}}


def convert(text):
    done = CliRunner().invoke(main, ["convert", "-"], input=text)
    return [*yaml.safe_load_all(done.stdout)], done.stderr, done.exit_code


@pytest.mark.parametrize(
    ("given", "expected", "message"),
    [
        pytest.param([OLD], [NEW], "1 object converted", id="old"),
        pytest.param([NEW, MAP], [NEW, MAP], "0 objects converted", id="nothing-to-do"),
        pytest.param([MAP, OLD], [MAP, NEW], "1 object converted", id="in-order"),
        pytest.param(
            [{"apiVersion": "v1", "kind": "List", "items": [OLD, MAP]}],
            [NEW, MAP],
            "1 object converted",
            id="a-list",
        ),
    ],
)
def test_objects_of_the_old_version_are_written_in_the_new_one(given, expected, message):
    written, errors, code = convert(yaml.safe_dump_all(given))

    assert written == expected
    assert message in errors
    assert code == 0


def test_an_unreadable_document_is_named_and_earlier_ones_are_converted():
    written, errors, code = convert(yaml.safe_dump(OLD) + "---\na: [\n")

    assert written == [NEW]
    assert "stdin" in errors
    assert code == 2


def test_a_scenario_may_be_of_the_old_version(tmp_path):
    local = {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "LocalQueue",
        "metadata": {"name": "team-a", "namespace": "ml"},
        "spec": {"clusterQueue": "team-a"},
    }
    flavor = {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "ResourceFlavor",
        "metadata": {"name": "gpu"},
    }
    lender = queue("v1beta1", cohort="research") | {"metadata": {"name": "team-b"}}
    requests = {"resources": {"requests": {"nvidia.com/gpu": 12}}}
    template = {"spec": {"containers": [{"name": "main", **requests}]}}
    workload = {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Workload",
        "metadata": {"name": "train", "namespace": "ml"},
        "spec": {
            "queueName": "team-a",
            "podSets": [{"name": "main", "count": 1, "template": template}],
        },
    }
    file = tmp_path / "scenario.yaml"
    old = queue("v1beta1", cohort="research")
    file.write_text(yaml.safe_dump_all([flavor, old, lender, local, workload]))

    done = CliRunner().invoke(main, ["simulate", str(file)])

    assert done.exit_code == 0
    assert "admitted to team-a on gpu, borrowing" in done.output


def test_a_kind_that_is_not_known_is_named_and_passed_on():
    written, errors, code = convert(yaml.safe_dump_all([ODD, OLD]))

    assert written == [ODD, NEW]
    assert "kind `ClusterQeue` not found" in errors
    assert "did you mean `ClusterQueue`?" in errors
    assert code == 1


@pytest.mark.parametrize(
    ("given", "message", "hint"),
    [
        pytest.param(
            {**ODD, "apiVersion": "kueue.x-k8s.io/v1beta2"},
            "kind `ClusterQeue` not found in kueue.x-k8s.io/v1beta2",
            "did you mean `ClusterQueue`?",
            id="kind-of-the-new-version",
        ),
        pytest.param(
            queue("v1alpha1", parent="research") | {"kind": "Cohort"},
            "version `v1alpha1` of `Cohort` cannot be converted",
            "write it as kueue.x-k8s.io/v1beta1",
            id="older-version",
        ),
    ],
)
def test_what_kueue_has_not_is_named_in_every_version(given, message, hint):
    written, errors, code = convert(yaml.safe_dump_all([given, OLD]))

    assert written == [given, NEW]
    assert message in errors
    assert hint in errors
    assert code == 1


def test_a_scenario_does_not_read_an_older_version_as_the_new_one(tmp_path):
    file = tmp_path / "scenario.yaml"
    cohort = queue("v1alpha1", parent="research") | {"kind": "Cohort"}
    file.write_text(yaml.safe_dump_all([cohort, NEW]))

    done = CliRunner().invoke(main, ["simulate", str(file)])

    assert done.exit_code == 2
    assert "version `kueue.x-k8s.io/v1alpha1` of `Cohort` cannot be read" in done.stderr


def test_a_field_of_a_wrong_type_is_named_and_the_rest_is_written():
    broken = {**OLD, "metadata": {"name": "b"}, "spec": {"admissionChecks": "approved"}}

    written, errors, code = convert(yaml.safe_dump_all([broken, OLD]))

    assert written == [NEW]
    assert "ClusterQueue `b` cannot be had as `kueue.x-k8s.io/v1beta2`" in errors
    assert "`spec.admissionChecks`: expected `array" in errors
    assert code == 2


@pytest.mark.parametrize(
    "odd", [5, "a", [1], {"apiVersion": "v1"}, {**OLD, "kind": ["a"]}, {**OLD, "kind": {}}]
)
def test_other_values_than_objects_are_named_and_not_passed_on(odd):
    written, errors, code = convert(yaml.safe_dump_all([odd, OLD]))

    assert written == [NEW]
    assert "not a Kubernetes object: `kind` is missing" in errors
    assert code == 2
