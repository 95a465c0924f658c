"""`policyd migrate kyverno`: what is written, what is said, and the exit codes."""

import pytest
import yaml
from click.testing import CliRunner

from policyd.cli import main

WHOLE = """\
# Images have a version.
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: versions}
spec:
  validationFailureAction: Enforce
  rules:
  # Not latest, which is another image tomorrow.
  - name: no-latest
    match: {any: [{resources: {kinds: [Pod]}}]}
    validate:
      message: name a version
      pattern: {spec: {containers: [{image: "!*:latest"}]}}
"""
SIGNED = """\
  - name: signed
    match: {any: [{resources: {kinds: [Pod]}}]}
    verifyImages: [{imageReferences: ["*"]}]
"""
GENERATES = """\
  - name: generates
    match: {any: [{resources: {kinds: [Namespace]}}]}
    generate: {apiVersion: v1, kind: ConfigMap, name: a, namespace: b, data: {data: {}}}
"""
OTHER = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"


def migrate(text, *options):
    done = CliRunner().invoke(main, ["migrate", "kyverno", "-", *options], input=text)
    return done.stdout, done.stderr, done.exit_code


def test_a_policy_is_written_with_its_comments():
    stdout, stderr, code = migrate(WHOLE)

    (policy,) = yaml.safe_load_all(stdout)
    assert code == 0
    assert policy["kind"] == "Policy"
    assert "# Images have a version.\n# Not latest, which is another image tomorrow.\n" in stdout
    assert "1 policy of 1 converted whole, 0 in part" in stderr


@pytest.mark.parametrize(
    ("target", "kinds"),
    [
        ("policyd", {"Policy"}),
        ("vpol", {"ValidatingPolicy"}),
        ("vap", {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}),
    ],
)
def test_the_kind_of_the_result_can_be_chosen(target, kinds):
    stdout, _, code = migrate(WHOLE, "-o", target)

    assert code == 0
    assert {each["kind"] for each in yaml.safe_load_all(stdout)} == kinds
    checked = CliRunner().invoke(main, ["check", "-"], input=stdout)
    assert checked.exit_code == 0, checked.output


def test_a_partial_policy_says_so_and_where():
    stdout, stderr, code = migrate(WHOLE + SIGNED)

    assert code == 1
    assert "# Partial: of the ClusterPolicy versions, this is not converted:" in stdout
    assert "stdin:16:" in stderr
    assert "rule `signed`: not converted: signatures of images are not verified by CEL" in stderr
    assert "0 policies of 1 converted whole, 1 in part" in stderr


def test_a_rule_that_generates_becomes_a_policy_of_kyverno_with_any_target():
    stdout, stderr, code = migrate(WHOLE + GENERATES, "-o", "vap")

    kinds = [each["kind"] for each in yaml.safe_load_all(stdout)]
    assert (kinds[-1], kinds[0], code) == ("GeneratingPolicy", "ValidatingAdmissionPolicy", 0)
    assert "becomes a GeneratingPolicy of Kyverno" in stderr


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(OTHER, id="other-kind"),
        pytest.param(WHOLE[: WHOLE.index("  rules:")], id="half-a-policy"),
        pytest.param(f"{WHOLE}---\na: [", id="not-yaml"),
        pytest.param(f"{WHOLE}---\nkind: ClusterPolicy\napiVersion: kyverno.io/v1\n", id="no-name"),
    ],
)
def test_nothing_is_written_if_something_cannot_be_read(text):
    stdout, stderr, code = migrate(text)

    assert (stdout, code) == ("", 2)
    assert "nothing is written" in stderr


def test_objects_beside_policies_are_left_out_with_a_warning():
    stdout, stderr, code = migrate(f"{WHOLE}---\n{OTHER}")

    assert code == 0
    assert "`ConfigMap` is not a ClusterPolicy or Policy of kyverno.io, and is left out" in stderr
    assert len([*yaml.safe_load_all(stdout)]) == 1


@pytest.mark.parametrize(
    ("version", "kind", "hint"),
    [
        ("constraints.gatekeeper.sh/v1beta1", "Labels", "`policyd migrate gatekeeper` converts"),
        ("kyverno.io/v2", "CleanupPolicy", "write it as a DeletingPolicy"),
        ("policyd.io/v1alpha1", "Policy", "`policyd export` writes"),
    ],
)
def test_what_is_left_out_has_a_hint_of_its_kind(version, kind, hint):
    other = f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: a}}\n"

    _, stderr, _ = migrate(f"{WHOLE}---\n{other}---\n{OTHER}")

    assert stderr.count("is left out") == 2
    assert stderr.count("policyd export") == hint.count("policyd export")
    assert hint in stderr


LONG = WHOLE.replace("name: versions", f"name: {'v' * 250}")


def test_what_the_api_servers_kinds_cannot_say_is_not_counted_as_converted():
    """The policies for templates have a suffix, with which the name is too long."""
    assert migrate(LONG)[2] == 0

    stdout, stderr, code = migrate(f"{LONG}---\n{WHOLE}", "-o", "vap")

    assert code == 1
    assert "is not a valid object name" in stderr
    assert "stdin:9:" in stderr
    assert "1 policy of 2 converted whole, 0 in part" in stderr
    assert {each["metadata"]["name"].partition("-")[0] for each in yaml.safe_load_all(stdout)} == {
        "versions"
    }


def test_an_order_that_the_api_servers_kinds_do_not_have_is_a_warning():
    mutating = """\
  - name: %s
    match: {any: [{resources: {kinds: [Service]}}]}
    mutate: {patchStrategicMerge: {metadata: {labels: {%s: x}}}}
"""
    text = WHOLE + mutating % ("b", "b") + mutating % ("a", "a")

    _, stderr, code = migrate(text, "-o", "vap")

    assert code == 0
    assert "warning: `versions-b`: `priority` is not exported" in stderr
