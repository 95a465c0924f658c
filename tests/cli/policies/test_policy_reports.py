"""`policyd report`: the reports of a cluster, for objects in files."""

import json

import pytest
import yaml
from click.testing import CliRunner

from policyd.cli import main
from policyd.engine.documents import reading
from tests.cli.policies.test_rollout import POLICY, pod


@pytest.fixture
def run(tmp_path):
    """Report on pods, given by name and namespace."""

    def run(*pods, more=(), policies=POLICY):
        (tmp_path / "policies.yaml").write_text(policies)
        (tmp_path / "pods.yaml").write_text("\n---\n".join(pod(*each) for each in pods))
        files = ["-p", str(tmp_path / "policies.yaml"), "-f", str(tmp_path / "pods.yaml")]
        return CliRunner().invoke(main, ["report", *files, *more])

    return run


def test_a_line_for_each_policy_and_namespace(run):
    result = run(("a", "team-a"), ("a", "team-b"), ("c", "team-b"))

    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["team-a", "named", "validations[0]", "fail", "(Warn)", "1", "Pod", "a"] in lines
    assert ["team-b", "named", "validations[0]", "fail", "(Audit)", "1", "Pod", "a"] in lines
    assert ["team-b", "named", "-", "pass", "1", "-"] in lines
    assert ["team-b", "named-2", "(shadow", "of", "named)", "-", "pass", "2", "-"] in lines
    assert result.exit_code == 1


def test_a_failure_of_a_shadow_alone_fails_nothing(run):
    result = run(("b", "team-a"))

    assert "fail" in result.stdout
    assert result.exit_code == 0


@pytest.mark.parametrize(
    ("api", "kind"),
    [
        pytest.param("wgpolicyk8s.io/v1alpha2", "PolicyReport", id="working-group"),
        pytest.param("openreports.io/v1alpha1", "Report", id="open-reports"),
    ],
)
def test_the_objects_that_a_cluster_would_have(run, api, kind):
    result = run(("a", "team-a"), more=["-o", "yaml", "--api", api])

    [report] = yaml.safe_load_all(result.stdout)
    assert (report["apiVersion"], report["kind"]) == (api, kind)
    assert report["metadata"]["namespace"] == "team-a"
    assert report["summary"]["fail"] == 1


@pytest.mark.parametrize("size", [0, reading.LARGE], ids=["kept", "read-at-once"])
def test_a_long_list_is_reported_as_a_short_one_is(run, tmp_path, monkeypatch, size):
    monkeypatch.setattr(reading, "LARGE", size)
    items = [yaml.safe_load(pod(name, "team-a")) for name in "abca"]
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}}
    listed = {"apiVersion": "v1", "kind": "List", "items": [{"kind": "Odd"}, *items, namespace]}
    (tmp_path / "list.json").write_text(json.dumps(listed, indent=4))

    result = run(("a", "team-b"), more=["-f", str(tmp_path / "list.json")])

    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["team-a", "named", "validations[0]", "fail", "(Warn)", "2", "Pod", "a"] in lines
    assert ["team-a", "named", "-", "pass", "2", "-"] in lines
    assert "list.json:5:9: error: " in result.stderr
    assert result.exit_code == 2


def test_objects_before_one_that_programs_write_otherwise_count_once(run, tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "LARGE", 0)
    plain = json.dumps(yaml.safe_load(pod("a", "team-a")))
    listed = f'{{"kind": "List", "items": [{plain}, {plain}, {{"number": 1.50}}]}}'
    (tmp_path / "list.json").write_text(listed)

    result = run(("b", "team-a"), more=["-f", str(tmp_path / "list.json")])

    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["team-a", "named", "validations[0]", "fail", "(Warn)", "2", "Pod", "a"] in lines
    assert "`apiVersion` or `kind` is missing" in result.stderr


def test_devices_of_claims_are_counted_by_the_templates_in_the_files(run, tmp_path):
    count = {"exactly": {"deviceClassName": "gpu", "count": 4}}
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "four", "namespace": "team-a"},
        "spec": {"spec": {"devices": {"requests": [{"name": "r", **count}]}}},
    }
    claiming = yaml.safe_load(pod("a", "team-a"))
    claiming["spec"]["resourceClaims"] = [{"name": "r", "resourceClaimTemplateName": "four"}]
    (tmp_path / "more.yaml").write_text(yaml.safe_dump_all([claiming, template]))
    few = POLICY.partition("---")[0].replace(
        "object.metadata.name != 'a'", "pod.claimedDevices() < 4"
    )

    result = run(("b", "team-a"), policies=few, more=["-f", str(tmp_path / "more.yaml")])

    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["team-a", "named", "validations[0]", "fail", "(Warn)", "1", "Pod", "a"] in lines
    assert ["team-a", "named", "-", "pass", "1", "-"] in lines


def test_a_policy_that_cannot_be_used_is_reported(run):
    result = run(("a", "b"), policies=POLICY.replace("object.metadata", "objekt.metadata"))

    assert "objekt" in result.stderr
    assert result.exit_code == 1
