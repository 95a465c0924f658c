"""The offline commands: data on stdout, talk on stderr, exit codes 0, 1 and 2."""

import json
import shutil
from pathlib import Path

import click
import jsonschema
import pytest
import yaml
from click.testing import CliRunner

from policyd.cli import COMMANDS, main
from policyd.cli.formats.files import content

LIBRARY = Path(__file__).parents[3] / "policies"

GOOD = """\
apiVersion: policyd.io/v1alpha1
kind: Policy
metadata: {name: good}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: ["*"], operations: [CREATE], resources: [pods]}
  inject: {labels: {team: {expression: "namespaceObject.metadata.labels[?'team']"}}}
  validations:
  - {expression: pod.gpus() <= 1, message: too many GPUs, remedy: ask for one}
"""
BAD = GOOD.replace("name: good", "name: bad").replace("pod.gpus()", "pod.gpu()")
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1}}}]
"""
BINDING = """\
apiVersion: policyd.io/v1alpha1
kind: PolicyBinding
metadata: {name: b}
spec: {policyName: good, enforcement: Warn, matchResources: {objectSelector: {}}}
"""
CASES = """\
cases:
- name: it is labelled
  namespaceLabels: {team: vision}
  object: {apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: []}}
  expect: {mutated: {metadata: {labels: {team: vision}}}}
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "policy.yaml").write_text(GOOD)
    (tmp_path / "cases.yaml").write_text(CASES)
    (tmp_path / "pod.yaml").write_text(POD)
    return tmp_path


def run(*arguments, text=None):
    return CliRunner().invoke(main, [str(argument) for argument in arguments], input=text)


def test_check_of_fine_policies_says_how_many(folder):
    result = run("check", folder / "policy.yaml")

    assert (result.exit_code, result.stdout) == (0, "1 policy valid\n")


def test_check_says_what_is_wrong_with_place_caret_and_hint(folder):
    (folder / "bad.yaml").write_text(BAD)

    result = run("check", folder)

    assert result.exit_code == 1
    assert result.stdout == ""
    assert f"{folder}/bad.yaml:10:25: error: undeclared reference to 'gpu'" in result.stderr
    assert "\n  10 |   - {expression: pod.gpu() <= 1" in result.stderr
    assert "hint: did you mean `gpus`?" in result.stderr
    assert "1 policy valid, 1 finding" in result.stderr


def test_check_as_json_is_for_machines():
    result = run("check", "-o", "json", "-", text=BAD)

    answer = json.loads(result.stdout)
    assert result.exit_code == 1
    assert answer["policies"] == []
    assert answer["findings"][0]["source"] == "stdin"
    assert answer["findings"][0]["line"] == 10


def test_two_policies_of_one_name_are_a_finding(folder):
    (folder / "other.yaml").write_text(GOOD)

    result = run("check", folder)

    assert result.exit_code == 1
    assert "policy `good` is also in" in result.stderr


def test_check_says_what_another_version_of_kubernetes_takes_otherwise():
    text = GOOD.replace("pod.gpus() <= 1", '"[1].includes(1)"')

    result = run("check", "--kubernetes", "1.37", "-", text=text)

    assert result.exit_code == 0
    assert "warning: under Kubernetes 1.36: undeclared reference to 'includes'" in result.stderr


def test_check_doubts_a_condition_that_fails_where_a_field_is_missing():
    condition = "matchConditions: [{name: c, expression: \"object.metadata.labels.a == 'b'\"}]"
    text = GOOD.replace("  inject:", f"  {condition}\n  inject:")

    result = run("check", "-", text=text)

    assert result.exit_code == 0
    assert "warning: for a Pod with only its required fields" in result.stderr


@pytest.mark.parametrize(("groups", "warned"), [(16, False), (17, True)])
def test_rules_for_which_more_is_sent_to_the_webhooks_are_reported(groups, warned):
    names = [f"r{number}" for number in range(16)]
    wide = f"apiGroups: {[f'g{n}.example.com' for n in range(groups)]}".replace("'", "")
    resources = f"resources: {names}".replace("'", "")
    policy = GOOD.replace('apiGroups: [""]', wide).replace("resources: [pods]", resources)

    result = run("check", "-", text=policy)

    assert ("warning: the rules name 272 combinations" in result.stderr) is warned
    assert result.exit_code == 0


def test_check_doubts_policies_that_write_one_field_differently(folder):
    (folder / "other.yaml").write_text(
        GOOD.replace("name: good", "name: other").replace(
            """{expression: "namespaceObject.metadata.labels[?'team']"}""", "a"
        )
    )
    (folder / "third.yaml").write_text(
        (folder / "other.yaml")
        .read_text()
        .replace("name: other", "name: third")
        .replace("team: a", "team: b")
    )

    result = run("check", folder)

    assert result.exit_code == 0
    assert "warning: `other` sets labels `team` to `a`, and `third`" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["check"], id="check-without-paths"),
        pytest.param(["check", "missing.yaml"], id="check-of-a-missing-file"),
        pytest.param(["test", "missing"], id="test-of-a-missing-folder"),
        pytest.param(["apply", "-p", "-", "-f", "-"], id="stdin-twice"),
        pytest.param(["apply", "-p", "-"], id="apply-without-objects"),
        pytest.param(["schema", "pods"], id="schema-of-something-else"),
        pytest.param(["chek"], id="unknown-command"),
    ],
)
def test_a_wrong_call_exits_with_2(arguments):
    assert run(*arguments).exit_code == 2


def test_check_of_no_policies_is_a_wrong_call(tmp_path):
    assert run("check", tmp_path).exit_code == 2


def apply(folder, *arguments, text=None):
    return run("apply", "-p", folder / "policy.yaml", *arguments, text=text)


def test_apply_without_a_policy_is_a_wrong_call(folder, tmp_path):
    (tmp_path / "none").mkdir()

    result = run("apply", "-p", tmp_path / "none", "-f", folder / "pod.yaml")

    assert (result.exit_code, result.stdout) == (2, "")
    assert "no policy in" in result.stderr


def test_unreadable_input_is_a_usage_error(tmp_path):
    with pytest.raises(click.UsageError, match=r"cannot read .*: is a directory"):
        content(tmp_path)


def test_apply_prints_the_objects_as_admitted(folder):
    result = apply(folder, "-f", folder / "pod.yaml", "--namespace-labels", "team=vision")

    assert result.exit_code == 0
    assert yaml.safe_load(result.stdout)["metadata"]["labels"] == {"team": "vision"}
    assert result.stderr == "Pod a: changed by good\n"


def test_apply_reads_standard_input_and_prints_json(folder):
    result = apply(folder, "-o", "json", "-f", "-", text=POD)

    assert json.loads(result.stdout)[0]["metadata"] == {"name": "a"}


def test_apply_prints_a_difference(folder):
    result = apply(
        folder, "-o", "diff", "-f", folder / "pod.yaml", "--namespace-labels", "team=vision"
    )

    assert "+  labels:\n+    team: vision\n" in result.stdout


@pytest.mark.parametrize("command", ["apply", "report"])
def test_an_object_names_the_namespace_that_it_is_put_into(folder, command):
    there = "object.metadata.namespace == 'default'"
    (folder / "policy.yaml").write_text(GOOD.replace("pod.gpus() <= 1", there))

    found = run(command, "-p", folder / "policy.yaml", "-f", folder / "pod.yaml", "--assume-labels")

    assert found.exit_code == 0, found.output
    assert "namespace: default" not in found.stdout


def test_apply_uses_the_namespaces_among_the_objects(folder):
    namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: lab, labels: {team: audio}}\n"
    text = namespace + "---\n" + POD.replace("name: a}", "name: a, namespace: lab}")

    result = apply(folder, "-o", "json", "-f", "-", text=text)

    assert json.loads(result.stdout)[1]["metadata"]["labels"] == {"team": "audio"}


JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: j, labels: {kueue.x-k8s.io/queue-name: q}}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: main, image: a}]}}}
"""


@pytest.mark.parametrize(
    ("flags", "suspended"),
    [
        pytest.param([], True, id="held"),
        pytest.param(["--no-queue"], None, id="somebody-else-holds-it"),
    ],
)
def test_apply_holds_jobs_for_their_queue_as_the_webhooks_do(folder, flags, suspended):
    result = apply(folder, "-o", "json", *flags, "-f", "-", text=JOB)

    assert json.loads(result.stdout)[0]["spec"].get("suspend") is suspended


def test_apply_checks_queues_as_the_webhooks_do(folder):
    flavor = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nmetadata: {name: f}\n"

    result = apply(folder, "-f", "-", text=flavor + "spec: {topologyName: racks}\n")

    assert result.exit_code == 1
    assert "queue: spec.nodeLabels: Required value: at least one nodeLabel" in result.stderr


HELD = """\
apiVersion: policyd.io/v1alpha1
kind: Policy
metadata: {name: held}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [batch], apiVersions: [v1], operations: [CREATE], resources: [jobs]}
  validations: [{expression: object.spec.?suspend == optional.of(true)}]
"""
STRICT = """\
apiVersion: policyd.io/v1alpha1
kind: Policy
metadata: {name: strict}
spec:
  matchConstraints:
    resourceRules:
    - apiGroups: [kueue.x-k8s.io]
      apiVersions: [v1beta2]
      operations: [CREATE]
      resources: [clusterqueues]
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: 'Object{spec: Object.spec{queueingStrategy: "StrictFIFO"}}'
"""
ODD_QUEUE = """\
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: q}
spec: {queueingStrategy: Odd}
"""


@pytest.mark.parametrize(
    ("policy", "obj"),
    [
        pytest.param(HELD, JOB, id="policies-check-what-the-queue-suspended"),
        pytest.param(STRICT, ODD_QUEUE, id="the-queue-checks-what-policies-changed"),
    ],
)
def test_apply_checks_the_object_as_the_first_webhook_changed_it(folder, policy, obj):
    (folder / "policy.yaml").write_text(policy)

    result = apply(folder, "-f", "-", text=obj)

    assert (result.exit_code, "denied" in result.stderr) == (0, False), result.stderr


def test_policies_and_their_cases_come_from_standard_input_together(tmp_path, monkeypatch):
    (tmp_path / "policy.yaml").write_text(BAD)
    monkeypatch.chdir(tmp_path)

    result = run("test", "-", text=f"{GOOD}---\n{CASES}")

    assert (result.exit_code, result.stdout) == (0, "1 case passed\n")


def test_cases_alone_on_standard_input_concern_the_visible_policies_beside(folder, monkeypatch):
    (folder / ".pre-commit-config.yaml").write_text("repos: []")
    monkeypatch.chdir(folder)

    assert run("test", "-", text=CASES).stdout == "1 case passed\n"


def test_cases_on_standard_input_without_any_policy_are_reported(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    result = run("test", "-", text=CASES)

    assert result.exit_code == 1
    assert "stdin: error: no policy found next to these cases" in result.stderr


@pytest.mark.parametrize("of_tools", [".venv", ".git", "node_modules"])
def test_cases_in_the_folders_of_tools_are_not_run(folder, of_tools):
    shutil.copytree(LIBRARY / "gpu", folder / of_tools / "gpu")

    result = run("test", folder)

    assert (result.exit_code, result.output) == (0, "1 case passed\n")


def test_a_case_updates_an_object_that_was_as_it_is(folder):
    changed = GOOD.replace("[CREATE]", "[UPDATE]").replace("pod.gpus() <= 1", "object == oldObject")
    (folder / "policy.yaml").write_text(changed)
    pod = "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: []}}"
    case = f"{{name: c, operation: UPDATE, object: {pod}, expect: {{allowed: true}}}}"
    (folder / "cases.yaml").write_text(f"cases: [{case}]")

    assert run("test", folder).stdout == "1 case passed\n"


def test_apply_updates_an_object_that_was_as_it_is(folder):
    changed = GOOD.replace("[CREATE]", "[UPDATE]").replace("pod.gpus() <= 1", "object == oldObject")
    (folder / "policy.yaml").write_text(changed)
    result = run("apply", "-p", folder, "-f", folder / "pod.yaml", "--operation", "UPDATE")

    assert (result.exit_code, "denied" in result.stderr) == (0, False)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(POD.replace("name: a", "name: a, annotations: 5"), id="annotations"),
        pytest.param("apiVersion: v1\nkind: Namespace\nmetadata: {name: [a]}\n", id="name"),
    ],
)
def test_apply_refuses_what_the_api_server_cannot_read_and_prints_the_rest(folder, text):
    result = run("apply", "-p", folder / "policy.yaml", "-f", "-", text=f"{POD}---\n{text}")

    assert result.exit_code == 2
    assert "cannot be handled as a" in result.stderr
    assert result.stdout.count("name: a") == 1


MISTYPED = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: a}
spec: {replicas: "3"}
"""
REFUSAL = (
    'Deployment in version "v1" cannot be handled as a Deployment: json: cannot unmarshal string'
    " into Go struct field DeploymentSpec.spec.replicas of type int32"
)


@pytest.mark.parametrize("command", ["apply", "report"])
def test_a_value_of_another_type_is_refused_in_the_words_of_the_api_server(command, folder):
    result = run(command, "-p", folder / "policy.yaml", "-f", "-", text=MISTYPED)

    assert result.exit_code == 2
    assert REFUSAL in result.stderr


def test_a_case_with_a_value_of_another_type_fails(folder):
    obj = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {replicas: '3'}}"
    (folder / "cases.yaml").write_text(
        f"cases: [{{name: c, object: {obj}, expect: {{allowed: true}}}}]"
    )
    result = run("test", folder)

    assert result.exit_code == 1
    assert REFUSAL in result.stdout


REPLICAS = """\
apiVersion: {group}
kind: {kind}
metadata: {{name: replicas}}
spec:
  matchConstraints:
    resourceRules:
    - {{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}}
  validations: [{{expression: object.spec.replicas > 1, message: one is not enough}}]
"""
BOUND = """\
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: b}
spec: {policyName: replicas, validationActions: [Deny]}
"""
NATIVE = REPLICAS.format(group="admissionregistration.k8s.io/v1", kind="ValidatingAdmissionPolicy")
KYVERNO = REPLICAS.format(group="policies.kyverno.io/v1", kind="ValidatingPolicy").replace(
    "spec:", "spec:\n  validationActions: [Deny]", 1
)
PLAIN = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n"


@pytest.mark.parametrize("policy", [NATIVE + BOUND, KYVERNO])
@pytest.mark.parametrize("command", ["apply", "report"])
def test_policies_of_others_see_defaults(command, policy, tmp_path):
    (tmp_path / "p.yaml").write_text(policy)
    result = run(command, "-p", tmp_path / "p.yaml", "-f", "-", text=PLAIN)

    assert result.exit_code == 1
    assert "fail" in result.stdout or "one is not enough" in result.stderr


def test_kyvernos_policies_see_objects_as_they_are_written_if_they_are_to(tmp_path):
    (tmp_path / "p.yaml").write_text(
        KYVERNO.replace("object.spec.replicas > 1", "has(object.spec) == false")
    )
    arguments = ("apply", "-p", tmp_path / "p.yaml", "-f", "-")

    assert run(*arguments, text=PLAIN).exit_code == 1
    assert run(*arguments, "--as-written", text=PLAIN).exit_code == 0


MUTATING = """\
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: more}
spec:
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules:
    - {apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: >-
        [JSONPatch{op: "replace", path: "/spec/replicas", value: object.spec.replicas + 1}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: b}
spec: {policyName: more}
"""


def test_a_change_of_a_default_is_written_and_other_defaults_are_not(tmp_path):
    (tmp_path / "p.yaml").write_text(MUTATING)
    text = f"{PLAIN}spec: {{noSuchField: 1, paused: true}}\n"
    result = run("apply", "-p", tmp_path / "p.yaml", "-f", "-", text=text)

    assert result.exit_code == 0
    assert yaml.safe_load(result.stdout)["spec"] == {
        "noSuchField": 1,
        "paused": True,
        "replicas": 2,
    }


def test_apply_says_what_is_denied_and_prints_the_rest(folder):
    greedy = POD.replace("gpu: 1", "gpu: 2").replace("name: a", "name: greedy")

    result = apply(folder, "-f", "-", text=f"{greedy}---\n{POD}")

    assert result.exit_code == 1
    assert "Pod greedy: denied: good: too many GPUs; ask for one" in result.stderr
    assert "1 object of 2 denied" in result.stderr
    assert yaml.safe_load(result.stdout)["metadata"]["name"] == "a"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("kind: Pod\n", "`apiVersion` or `kind` is missing", id="no-object"),
        pytest.param("a: [", "stdin:1:5: error: not YAML", id="no-yaml"),
        pytest.param("apiVersion: v1\nkind: Pod\n", "Pod without `metadata`", id="no-metadata"),
    ],
)
def test_apply_reports_other_values_than_objects(folder, text, message):
    result = apply(folder, "-f", "-", text=text)

    assert result.exit_code == 2
    assert message in result.stderr


def test_apply_exits_with_1_if_a_policy_is_wrong(folder):
    (folder / "bad.yaml").write_text(BAD)

    result = run("apply", "-p", folder / "bad.yaml", "-f", folder / "pod.yaml")

    assert result.exit_code == 1
    assert "bad.yaml:10:25" in result.stderr


def test_the_library_passes_its_tests():
    result = run("test", LIBRARY)

    assert result.exit_code == 0
    assert result.stdout.endswith("cases passed\n")


def test_a_broken_policy_fails_with_a_readable_reason(tmp_path):
    copied = tmp_path / "policies"
    shutil.copytree(LIBRARY, copied)
    policy = copied / "gpu" / "gpu-tolerations" / "policy.yaml"
    policy.write_text(policy.read_text().replace("key: nvidia.com/gpu", "key: nvidia.com/cpu"))

    result = run("test", copied)

    assert result.exit_code == 1
    assert "FAILED" in result.stdout
    assert "a pod with a GPU puts up with the taints" in result.stdout
    assert "-    key: nvidia.com/gpu\n" in result.stdout
    assert "+    key: nvidia.com/cpu\n" in result.stdout


def test_a_policy_that_does_not_load_fails_its_cases(folder):
    (folder / "policy.yaml").write_text(BAD)

    result = run("test", folder)

    assert result.exit_code == 1
    assert "policy.yaml:10:25: error: undeclared reference" in result.stderr
    assert "1 folder could not be tested" in result.stdout


@pytest.mark.parametrize(
    ("expect", "problem"),
    [
        pytest.param("{denied: never}", "no denial with `never`", id="denied"),
        pytest.param(
            "{unchanged: true}", "changed, but should not be: /metadata/labels", id="same"
        ),
        pytest.param("{skipped: true}", "matched unexpectedly: good", id="skipped"),
        pytest.param("{warned: never}", "no warning with `never`", id="warned"),
        pytest.param("{allowed: false}", "allowed, but should not be", id="allowed"),
        pytest.param("{mutated: {metadata: {labels: null}}}", "object differs", id="absent"),
        pytest.param("{mutated: {spec: {x: 1}}}", "object differs", id="missing"),
        pytest.param("{result: {kind: Pod}}", "object differs", id="result"),
    ],
)
def test_a_case_that_does_not_hold_says_why(folder, expect, problem):
    text = CASES.replace("{mutated: {metadata: {labels: {team: vision}}}}", expect)
    (folder / "cases.yaml").write_text(text)

    result = run("test", folder)

    assert result.exit_code == 1
    assert problem in result.stdout


def test_an_expectation_that_matched_nothing_fails(folder):
    (folder / "cases.yaml").write_text(
        CASES.replace("kind: Pod", "kind: Service").replace(
            "{mutated: {metadata: {labels: {team: vision}}}}", "{allowed: true}"
        )
    )

    result = run("test", folder)

    assert result.exit_code == 1
    assert "no policy matched this request" in result.stdout


def test_an_unexpected_denial_fails(folder):
    (folder / "cases.yaml").write_text(
        CASES.replace("containers: []", "containers: [{resources: {limits: {nvidia.com/gpu: 3}}}]")
    )

    assert "unexpected denial: good: too many GPUs; ask for one" in run("test", folder).stdout


def test_changes_that_are_not_idempotent_fail(folder):
    policy = GOOD.replace(
        "inject: {labels: {team: {expression: \"namespaceObject.metadata.labels[?'team']\"}}}",
        "inject: {override: true, labels: {team: {expression: "
        "\"object.metadata.?labels.?team.orValue('') + 'x'\"}}}",
    )
    (folder / "policy.yaml").write_text(policy)
    text = CASES.replace("{mutated: {metadata: {labels: {team: vision}}}}", "{allowed: true}")
    (folder / "cases.yaml").write_text(text)

    result = run("test", folder)

    assert "not idempotent: sent again, it is changed again" in result.stdout


def test_cases_are_checked_like_policies(folder):
    (folder / "cases.yaml").write_text(CASES.replace("mutated", "mutatd"))

    result = run("test", folder)

    assert result.exit_code == 1
    assert "cases.yaml:5:12: error: unknown field `mutatd`" in result.stderr
    assert "did you mean `mutated`?" in result.stderr


def test_cases_without_a_policy_are_a_finding(folder):
    (folder / "policy.yaml").unlink()
    (folder / "pod.yaml").unlink()

    result = run("test", folder)

    assert result.exit_code == 1
    assert "no policy found next to these cases" in result.stderr


def test_test_as_json_is_for_machines(folder):
    answer = json.loads(run("test", "-o", "json", folder).stdout)

    assert (answer["passed"], answer["failed"]) == (1, 0)
    assert answer["cases"][0]["case"] == "it is labelled"


def test_a_word_that_no_case_has_in_its_name_is_a_wrong_call(folder):
    result = run("test", folder, "-k", "nonsense")

    assert result.exit_code == 2
    assert "no case has `nonsense` in its name" in result.stderr


def test_cases_are_chosen_by_a_word_in_their_name(folder):
    assert "1 case passed" in run("test", "-k", "labelled", folder).stdout
    assert "ok: " in run("test", "-v", "-k", "labelled", folder).stdout


@pytest.mark.parametrize("what", ["policy", "binding", "cases"])
def test_the_schema_is_one_that_editors_can_use(what, folder):
    schema = json.loads(run("schema", what).stdout)

    jsonschema.Draft202012Validator.check_schema(schema)
    text = {"policy": GOOD, "binding": BINDING, "cases": CASES}[what]
    jsonschema.validate(yaml.safe_load(text), schema)


def test_the_schema_says_what_each_field_means():
    definitions = json.loads(run("schema").stdout)["$defs"]

    described = definitions["PolicySpec"]["properties"]["priority"]["description"]
    assert described == "The order of mutations: higher first, then by name."


@pytest.mark.parametrize("name", ["check", "apply", "test", "schema"])
def test_every_command_teaches_by_example(name):
    result = run(name, "--help")

    assert result.exit_code == 0
    assert "Examples:" in result.stdout
    assert f"policyd {name}" in result.stdout


def test_help_lists_every_command():
    text = run("--help").stdout

    assert all(name in text for name in COMMANDS)


def test_a_policy_without_cases_is_named(folder):
    (folder / "more").mkdir()
    (folder / "more" / "policy.yaml").write_text(GOOD)

    result = run("test", folder)

    assert result.exit_code == 0
    assert f"{folder}/more/policy.yaml: no cases.yaml beside it" in result.stderr


REFUSED = """
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: p}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: []}]
  validations: [{expression: "true"}]
  auditAnnotations: [{key: a, valueExpression: "1"}]
"""


def test_a_policy_that_the_api_server_refuses_is_not_valid_and_its_binding_names_it():
    binding = """
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: b}
spec: {policyName: p, validationActions: [Deny]}
"""

    result = CliRunner().invoke(main, ["check", "-"], input=f"{REFUSED}---{binding}")

    assert result.exit_code == 1
    assert "binding `b` is for `p`, which has an error" in result.stderr
    assert "0 policies valid" in result.stderr


def test_a_policy_whose_binding_the_api_server_refuses_is_not_without_one():
    policy = REFUSED.replace("resources: []", "resources: [pods]").replace('"1"', "\"'a'\"")
    binding = """
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: b}
spec: {policyName: p, validationActions: [Deny, Deny]}
"""

    result = CliRunner().invoke(main, ["check", "-"], input=f"{policy}---{binding}")

    assert "the API server refuses it: `Deny` is given twice" in result.stderr
    assert "without a binding" not in result.stderr


@pytest.mark.parametrize("command", ["apply", "explain", "report"])
def test_a_policy_that_the_api_server_refuses_is_not_used(tmp_path, command):
    policies, objects = tmp_path / "p.yaml", tmp_path / "o.yaml"
    policies.write_text(REFUSED)
    objects.write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n")

    result = CliRunner().invoke(main, [command, "-p", str(policies), "-f", str(objects)])

    assert result.exit_code == 1
    assert "ValidatingAdmissionPolicy" not in result.stdout
    assert "the API server refuses it: field `resources` is missing" in result.stderr
    assert "the API server refuses it: annotation `a` is int" in result.stderr
