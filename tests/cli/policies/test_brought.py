"""The offline commands read policies of others, from files, folders, lists and standard input."""

import json

import pytest
from click.testing import CliRunner

from policyd.cli import main

VAP = """\
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: few}
spec:
  failurePolicy: Fail
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  validations:
  - {expression: "size(object.spec.containers) <= int(params.data.most)", message: too many}
"""
BINDING = """\
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: b}
spec:
  policyName: few
  validationActions: [Deny]
  paramRef: {name: limits, namespace: default, parameterNotFoundAction: Deny}
"""
LIMITS = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: limits, namespace: default}
data: {most: "1"}
"""
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: a}
spec: {containers: [{name: one}, {name: two}]}
"""
LEAD = "Pod a: denied: ValidatingAdmissionPolicy 'few' with binding 'b' denied request: "


@pytest.fixture
def folder(tmp_path):
    for name, text in (("policy", VAP), ("binding", BINDING), ("limits", LIMITS)):
        (tmp_path / f"{name}.yaml").write_text(text)
    return tmp_path


def run(*arguments, text=None):
    return CliRunner().invoke(main, [str(argument) for argument in arguments], input=text)


def test_policy_binding_and_params_may_be_in_different_files(folder):
    result = run("apply", "-p", folder, "-f", "-", text=POD)

    assert result.exit_code == 1
    assert LEAD + "too many" in result.stderr


def test_a_list_is_taken_apart(tmp_path):
    documents = [f"  - {text.replace(chr(10), chr(10) + '    ')}" for text in (VAP, BINDING)]
    (tmp_path / "list.yaml").write_text(
        "apiVersion: v1\nkind: List\nitems:\n" + "\n".join(documents)
    )
    result = run("apply", "-p", tmp_path, "-f", "-", text=POD)

    assert "no params found for policy binding" in result.stderr


def test_a_stream_of_documents_is_read_from_standard_input():
    result = run("check", "-o", "json", "-", text="---\n".join((VAP, BINDING, LIMITS)))

    report = json.loads(result.stdout)
    assert result.exit_code == 0
    assert report["findings"] == []
    assert [(p["name"], p["kind"]) for p in report["policies"]] == [
        ("few", "ValidatingAdmissionPolicy")
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(VAP, "`few` has no effect without a binding", id="policy-alone"),
        pytest.param(BINDING, "binding `b` is for `few`, which is not here", id="binding-alone"),
    ],
)
def test_parts_without_an_effect_are_doubtful(text, message):
    result = run("check", "-", text=text)

    assert result.exit_code == 0
    assert f"warning: {message}" in result.stderr


@pytest.mark.parametrize(
    ("version", "code"), [pytest.param("1.31", 1, id="before"), pytest.param("1.33", 0, id="since")]
)
def test_expressions_are_checked_for_a_version_of_kubernetes(version, code):
    text = VAP.replace("size(object.spec.containers) <=", "semver('1.2.3').major() <=")
    result = run("check", "--kubernetes", version, "-", text="---\n".join((text, BINDING)))

    assert result.exit_code == code


CASES = """\
cases:
- name: two are too many
  object:
    apiVersion: v1
    kind: Pod
    metadata: {name: a}
    spec: {containers: [{name: a}, {name: b}]}
  expect: {denied: too many}
"""
MORE = """\
- name: two are few elsewhere
  params:
  - {apiVersion: v1, kind: ConfigMap, metadata: {name: limits}, data: {most: "2"}}
  object:
    apiVersion: v1
    kind: Pod
    metadata: {name: a}
    spec: {containers: [{name: a}, {name: b}]}
  expect: {allowed: true}
"""


def test_cases_are_run_with_the_params_beside_them(folder):
    (folder / "cases.yaml").write_text(CASES)

    assert run("test", folder).exit_code == 0


def test_a_case_may_bring_its_params(folder):
    (folder / "limits.yaml").unlink()
    (folder / "cases.yaml").write_text("cases:\n" + MORE)

    assert run("test", folder).exit_code == 0


def test_a_case_may_state_the_permissions_of_the_user(tmp_path):
    asking = VAP.replace("  paramKind: {apiVersion: v1, kind: ConfigMap}\n", "").replace(
        "size(object.spec.containers) <= int(params.data.most)",
        "authorizer.group('').resource('secrets').check('get').allowed()",
    )
    binding = BINDING[: BINDING.index("  paramRef")]
    (tmp_path / "policy.yaml").write_text(f"{asking}---\n{binding}")
    pod = "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {}}"
    (tmp_path / "cases.yaml").write_text(
        f"cases:\n- {{name: may not, object: {pod}, expect: {{denied: too many}}}}\n"
        f"- name: may\n  object: {pod}\n  permissions: [{{verb: get, resource: secrets}}]\n"
        "  expect: {allowed: true}\n"
    )

    assert run("test", tmp_path).stdout == "2 cases passed\n"


def test_a_validation_that_no_case_violates_is_named(folder):
    (folder / "cases.yaml").write_text("cases:\n" + MORE)
    (folder / "limits.yaml").unlink()
    result = run("test", "--coverage", folder)

    assert result.exit_code == 1
    assert "no case violates `validations[0]` of `ValidatingAdmissionPolicy/few`" in result.stderr
    (folder / "cases.yaml").write_text(CASES)
    (folder / "limits.yaml").write_text(LIMITS)
    assert run("test", "--coverage", folder).exit_code == 0


KYVERNO_POLICY = """\
apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata: {name: no-latest}
spec:
  validationActions: [Audit]
  matchConstraints:
    namespaceSelector: {matchLabels: {env: prod}}
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  validations:
  - {expression: "object.spec.containers.all(c, !c.image.endsWith(':latest'))", message: tag}
"""
KYVERNO_TEST = """\
apiVersion: cli.kyverno.io/v1alpha1
kind: Test
metadata: {name: t}
policies: [policy.yaml]
resources: [pods.yaml]
variables: values.yaml
results:
- {policy: no-latest, kind: Pod, resources: [bad], result: %s}
- {policy: no-latest, kind: Pod, resources: [good], result: pass}
- {policy: no-latest, kind: Pod, resources: [staging/other], result: skip}
"""
PODS = "---\n".join(
    f"""\
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: {namespace}}}
spec: {{containers: [{{name: a, image: "a:{tag}"}}]}}
"""
    for name, namespace, tag in (
        ("bad", "live", "latest"),
        ("good", "live", "1"),
        ("other", "staging", "latest"),
    )
)
VALUES = """\
apiVersion: cli.kyverno.io/v1alpha1
kind: Values
namespaceSelector: [{name: live, labels: {env: prod}}]
"""


@pytest.fixture
def kyverno_folder(tmp_path):
    files = {"policy": KYVERNO_POLICY, "pods": PODS, "values": VALUES}
    for name, text in files.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(VALUES, id="by-labels"),
        pytest.param("namespaces: [{metadata: {name: live, labels: {env: prod}}}]\n", id="whole"),
    ],
)
def test_kyverno_s_tests_are_run(kyverno_folder, values):
    (kyverno_folder / "values.yaml").write_text(values)
    (kyverno_folder / "kyverno-test.yaml").write_text(KYVERNO_TEST % "fail")
    result = run("test", kyverno_folder)

    assert (result.exit_code, result.stdout) == (0, "3 cases passed\n")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        pytest.param(("result: fail", "result: pass"), "it came to fail: tag", id="other-result"),
        pytest.param(("[bad]", "[gone]"), "resource `gone` not found", id="no-resource"),
        pytest.param(
            ("no-latest, kind: Pod, resources: [bad]", "gone, kind: Pod, resources: [bad]"),
            "policy `gone` not found",
            id="no-policy",
        ),
        pytest.param(
            ("kind: Pod, resources: [bad]", "kind: Job, resources: [bad]"),
            "resource `bad` not found",
            id="resource-of-another-kind",
        ),
    ],
)
def test_a_row_of_kyverno_s_that_does_not_hold_fails(kyverno_folder, change, problem):
    text = (KYVERNO_TEST % "fail").replace(*change)
    (kyverno_folder / "kyverno-test.yaml").write_text(text)
    result = run("test", kyverno_folder)

    assert result.exit_code == 1
    assert problem in result.stdout


OUTSIDE = """\
apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata: {name: asks}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: ["*"], resources: [pods]}
  validations:
  - expression: "%s"
    message: not so
"""
CONTEXT = """\
apiVersion: cli.kyverno.io/v1alpha1
kind: Context
metadata: {name: c}
spec:
  resources:
  - {apiVersion: v1, kind: ConfigMap, metadata: {name: names, namespace: x}, data: {may: bad}}
  images:
  - {image: "a:1", manifest: {by: us}}
"""
ASKING_TEST = """\
apiVersion: cli.kyverno.io/v1alpha1
kind: Test
metadata: {name: t}
policies: [asks.yaml]
resources: [pods.yaml]
context: context.yaml
apiCallResponses:
- {method: GET, url: "https://a", response: {statusCode: 200, body: {ok: true}}}
globalContextEntries:
- name: pods
  resourceFiles: [pods.yaml]
  projections: [{name: names, path: "[].metadata.name"}]
results:
- {policy: asks, kind: Pod, resources: [bad], result: pass}
"""


@pytest.mark.parametrize(
    "expression",
    [
        pytest.param(
            "resource.Get('v1', 'configmaps', 'x', 'names').data.may == 'bad'", id="object"
        ),
        pytest.param("resource.List('v1', 'configmaps', 'x').items.size() == 1", id="objects"),
        pytest.param("image.GetMetadata('a:1').manifest.by == 'us'", id="image"),
        pytest.param("http.Get('https://a').body.ok", id="answer"),
        pytest.param("globalContext.Get('pods', '').size() == 3", id="entry"),
        pytest.param("globalContext.Get('pods', 'names').size() == 3", id="projection"),
        pytest.param("globalContext.Get('pods', 'names', 'length(@)') == 3", id="jmespath"),
    ],
)
def test_a_kyverno_test_declares_the_world_outside(kyverno_folder, expression):
    (kyverno_folder / "asks.yaml").write_text(OUTSIDE % f"{expression} == true")
    (kyverno_folder / "context.yaml").write_text(CONTEXT)
    (kyverno_folder / "kyverno-test.yaml").write_text(ASKING_TEST)
    result = run("test", kyverno_folder)

    assert (result.exit_code, result.stdout) == (0, "1 case passed\n")


@pytest.mark.parametrize(
    ("values", "seen"),
    [
        pytest.param("{}", "oldObject == null", id="none"),
        pytest.param(
            "{globalValues: {request.operation: UPDATE}}", "oldObject == object", id="of-all"
        ),
        pytest.param(
            "{policies: [{name: asks, resources: [{name: bad, values: {request.operation:"
            " DELETE}}]}]}",
            "object == null",
            id="of-a-resource",
        ),
    ],
)
def test_values_in_a_kyverno_test_name_the_operation(kyverno_folder, values, seen):
    (kyverno_folder / "asks.yaml").write_text(OUTSIDE % seen)
    text = f"{ASKING_TEST}values: {values}\n".replace("context: context.yaml\n", "")
    (kyverno_folder / "kyverno-test.yaml").write_text(text)

    assert run("test", kyverno_folder).stdout == "1 case passed\n"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        pytest.param("live/*", "3 cases passed, 1 failed", id="several"),
        pytest.param("x*", "resource `x*` not found", id="none"),
    ],
)
def test_a_row_of_kyverno_s_may_name_resources_by_a_pattern(kyverno_folder, name, message):
    text = (KYVERNO_TEST % "fail").replace("[bad]", f"['{name}']")
    (kyverno_folder / "kyverno-test.yaml").write_text(text)
    result = run("test", kyverno_folder)

    assert message in result.stdout


KYVERNO_ROW = "- {policy: no-latest, kind: Pod, resources: [bad], result: fail"
UNCHANGED = """\
apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata: {name: asks}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [UPDATE], resources: [pods]}
  validations:
  - {expression: "object.metadata.?labels == oldObject.metadata.?labels", message: labels stay}
"""
WITH_LABELS = """\
apiVersion: v1
kind: Pod
metadata: {name: bad, namespace: live, labels: {a: b}}
"""


@pytest.mark.parametrize(
    ("old", "row", "result"),
    [
        pytest.param("[old.yaml]", "", "fail", id="as-a-file-says"),
        pytest.param("[old.yaml]", "operation: CREATE, ", "skip", id="created-all-the-same"),
        pytest.param("[]", "operation: UPDATE, ", "pass", id="as-it-is"),
        pytest.param("[]", "resourceOperation: UPDATE, ", "pass", id="by-the-older-name"),
        pytest.param("[]", "", "skip", id="created"),
    ],
)
def test_a_kyverno_test_says_how_objects_were(kyverno_folder, old, row, result):
    (kyverno_folder / "asks.yaml").write_text(UNCHANGED)
    (kyverno_folder / "old.yaml").write_text(WITH_LABELS)
    (kyverno_folder / "kyverno-test.yaml").write_text(
        f"policies: [asks.yaml]\nresources: [pods.yaml]\noldResources: {old}\n"
        f"results:\n- {{policy: asks, {row}resources: [bad], result: {result}}}\n"
    )

    assert run("test", kyverno_folder).stdout == "1 case passed\n"


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        pytest.param(
            f"{KYVERNO_ROW}, patchedResource: a.yaml}}\n",
            *(1, "did you mean `patchedResources`?"),
            id="of-a-row",
        ),
        pytest.param(f"{KYVERNO_ROW}, isValidatingPolicy: true}}\n", 0, "", id="needless"),
        pytest.param("resource: []\n", 0, "warning: unknown field `resource`", id="of-the-file"),
    ],
)
def test_an_unknown_field_of_a_kyverno_test_is_reported(kyverno_folder, line, code, message):
    (kyverno_folder / "kyverno-test.yaml").write_text((KYVERNO_TEST % "fail") + line)
    result = run("test", kyverno_folder)

    assert result.exit_code == code
    assert message in result.stderr
    assert ("unknown field" in result.stderr) is bool(message)


@pytest.mark.parametrize(
    ("first", "second", "result"),
    [
        pytest.param("false", "object.nothing == 1", "fail", id="violated-first"),
        pytest.param("object.nothing == 1", "false", "error", id="failed-first"),
    ],
)
def test_a_row_of_kyverno_s_may_name_either_of_what_came(kyverno_folder, first, second, result):
    asked = OUTSIDE % first + f'  - {{expression: "{second}"}}\n'
    (kyverno_folder / "asks.yaml").write_text(asked)
    text = ASKING_TEST.replace("context: context.yaml\n", "")
    for wanted, code in ((result, 0), ("pass", 1)):
        changed = text.replace("result: pass", f"result: {wanted}")
        (kyverno_folder / "kyverno-test.yaml").write_text(changed)
        assert run("test", kyverno_folder).exit_code == code


MUTATING_POLICY = """\
apiVersion: policies.kyverno.io/v1
kind: MutatingPolicy
metadata: {name: labels}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: "Object{metadata: Object.metadata{labels: {'a': 'b'}}}"}
"""


@pytest.mark.parametrize(
    ("label", "result", "message"),
    [
        pytest.param("b", "pass", "1 case passed", id="as-it-should"),
        pytest.param("c", "pass", "the resulting object is none of patched.yaml", id="otherwise"),
        pytest.param("c", "fail", "1 case passed", id="otherwise-as-expected"),
        pytest.param("b", "fail", "it came to pass", id="not-otherwise"),
    ],
)
def test_a_row_of_kyverno_s_says_how_an_object_comes_out(kyverno_folder, label, result, message):
    (kyverno_folder / "policy.yaml").write_text(MUTATING_POLICY)
    patched = PODS.split("---")[0].replace("name: bad,", f"name: bad, labels: {{a: {label}}},")
    (kyverno_folder / "patched.yaml").write_text(patched)
    (kyverno_folder / "kyverno-test.yaml").write_text(
        "policies: [policy.yaml]\nresources: [pods.yaml]\nresults:\n- {policy: labels,"
        f" resources: [bad], patchedResources: patched.yaml, result: {result}}}\n"
    )

    assert message in run("test", kyverno_folder).stdout


def test_a_policy_that_is_not_read_keeps_the_rows_of_others_from_nothing(kyverno_folder):
    refused = (
        "apiVersion: policies.kyverno.io/v1\nkind: ImageValidatingPolicy\nmetadata: {name: g}\n"
    )
    (kyverno_folder / "refused.yaml").write_text(refused)
    text = (KYVERNO_TEST % "fail").replace("[policy.yaml]", "[policy.yaml, refused.yaml]")
    (kyverno_folder / "kyverno-test.yaml").write_text(text)
    result = run("test", kyverno_folder)

    assert result.exit_code == 1
    assert "`ImageValidatingPolicy` verifies" in result.stderr
    assert "3 cases passed" in result.stdout


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        pytest.param(("pods.yaml", "gone.yaml"), "no such file or directory", id="gone"),
        pytest.param(("pods.yaml", "broken.yaml"), "not YAML", id="broken"),
        pytest.param(("values.yaml", "odd.yaml"), "`policies[0]` must be an object", id="odd"),
        pytest.param(("values.yaml", "pods.yaml"), "unknown field `spec`", id="another"),
        pytest.param(
            (KYVERNO_TEST[KYVERNO_TEST.index("results") :] % "fail", ""),
            *("field `results` is missing",),
            id="without-results",
        ),
    ],
)
def test_errors_in_a_kyverno_test_are_findings(kyverno_folder, changed, message):
    (kyverno_folder / "broken.yaml").write_text("a: [b")
    (kyverno_folder / "odd.yaml").write_text("policies: [no-latest]")
    text = (KYVERNO_TEST % "fail").replace(*changed)
    (kyverno_folder / "kyverno-test.yaml").write_text(text)
    result = run("test", kyverno_folder)

    assert result.exit_code == (2 if message == "not YAML" else 1)
    assert message in result.stderr


def test_a_kyverno_test_may_have_any_name_if_it_is_named(kyverno_folder):
    (kyverno_folder / "other.yaml").write_text(KYVERNO_TEST % "fail")

    assert run("test", kyverno_folder / "other.yaml").stdout == "3 cases passed\n"


def test_a_file_without_cases_is_identified_by_its_kind(kyverno_folder):
    result = run("test", kyverno_folder / "policy.yaml")

    assert result.exit_code == 2
    assert "this is a ValidatingPolicy, and no cases" in result.stderr


def test_a_validation_that_no_row_violates_is_named(kyverno_folder):
    text = "\n".join(line for line in (KYVERNO_TEST % "fail").splitlines() if "[bad]" not in line)
    for given, code in ((KYVERNO_TEST % "fail", 0), (text, 1)):
        (kyverno_folder / "kyverno-test.yaml").write_text(given)
        assert run("test", "--coverage", kyverno_folder).exit_code == code


def test_a_projection_that_is_not_declared_is_named(kyverno_folder):
    (kyverno_folder / "asks.yaml").write_text(
        OUTSIDE % "globalContext.Get('pods', 'name').size() == 3"
    )
    text = ASKING_TEST.replace("context: context.yaml\n", "")
    (kyverno_folder / "kyverno-test.yaml").write_text(text)
    result = run("test", kyverno_folder)

    assert "entry `pods` has no projection `name`: did you mean `names`?" in result.stdout


def test_an_exception_from_a_policy_that_is_not_here_is_doubtful(kyverno_folder):
    (kyverno_folder / "exception.yaml").write_text(
        "apiVersion: policies.kyverno.io/v1\nkind: PolicyException\nmetadata: {name: e}\n"
        "spec: {policyRefs: [{name: no-lates, kind: ValidatingPolicy}]}\n"
    )
    result = run("check", kyverno_folder / "policy.yaml", kyverno_folder / "exception.yaml")

    assert result.exit_code == 0
    assert "exception `e` is from `no-lates`, which is not here" in result.stderr
    assert "did you mean `no-latest`?" in result.stderr


@pytest.mark.parametrize("field", ["checks", "jsonPayloads"])
def test_kyverno_tests_without_requests_do_not_count_as_tested(kyverno_folder, field):
    text = (KYVERNO_TEST % "fail") + f"{field}: [a.yaml]\n"
    (kyverno_folder / "kyverno-test.yaml").write_text(text)
    result = run("test", kyverno_folder)

    assert result.exit_code == 1
    assert f"`{field}` is not read" in result.output


@pytest.mark.parametrize(
    ("named", "message"),
    [
        pytest.param("{name: bad, kind: Pod, version: v1}", "3 cases passed", id="it"),
        pytest.param("{name: bad, group: apps}", "resource `bad` not found", id="another-group"),
        pytest.param("{name: bad, version: v2}", "resource `bad` not found", id="another-version"),
    ],
)
def test_a_row_of_kyverno_s_may_name_all_of_a_resource(kyverno_folder, named, message):
    text = (KYVERNO_TEST % "fail").replace("resources: [bad]", f"resourceSpecs: [{named}]")
    (kyverno_folder / "kyverno-test.yaml").write_text(text)
    result = run("test", kyverno_folder)

    assert message in result.stdout


GADGET = "apiVersion: x.io/v1\nkind: Gadget\nmetadata: {name: g}\n"
CRD = """\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgetry.x.io}
spec: {group: x.io, scope: %s, names: {plural: gadgetry, kind: Gadget}}
"""
OF_CLUSTER = OUTSIDE.replace(
    '{apiGroups: [""], apiVersions: [v1], operations: ["*"], resources: [pods]}',
    '{apiGroups: [x.io], apiVersions: [v1], operations: ["*"], resources: [gadgetry], scope: %s}',
)


@pytest.mark.parametrize(
    ("cluster", "result"),
    [
        pytest.param(CRD % "Cluster", "fail", id="so"),
        pytest.param("kind: ClusterResource\nspec: {crds: [crd.yaml]}\n", "fail", id="by-a-file"),
        pytest.param("kind: ClusterResource\nspec: {resources: []}\n", "skip", id="not"),
    ],
)
def test_a_kyverno_test_defines_kinds(kyverno_folder, cluster, result):
    (kyverno_folder / "asks.yaml").write_text(OF_CLUSTER % ("Cluster", "false"))
    (kyverno_folder / "g.yaml").write_text(GADGET)
    (kyverno_folder / "crd.yaml").write_text(CRD % "Cluster")
    (kyverno_folder / "cluster.yaml").write_text(cluster)
    (kyverno_folder / "kyverno-test.yaml").write_text(
        "policies: [asks.yaml]\nresources: [g.yaml]\nclusterResources: [cluster.yaml]\n"
        f"results: [{{policy: asks, resources: [g], result: {result}}}]\n"
    )

    assert run("test", kyverno_folder).stdout == "1 case passed\n"


@pytest.mark.parametrize(
    ("scope", "denied"),
    [pytest.param("Cluster", 1, id="so"), pytest.param("Namespaced", 0, id="not")],
)
def test_kinds_are_defined_by_what_is_among_the_objects(tmp_path, scope, denied):
    (tmp_path / "policy.yaml").write_text(OF_CLUSTER % ("Cluster", "false"))
    result = run("apply", "-p", tmp_path, "-f", "-", text=f"{CRD % scope}---\n{GADGET}")

    assert result.exit_code == denied


def test_a_row_of_kyverno_s_without_resources_tests_nothing_and_fails(kyverno_folder):
    text = (KYVERNO_TEST % "fail").replace("resources: [bad], ", "")
    (kyverno_folder / "kyverno-test.yaml").write_text(text)
    result = run("test", kyverno_folder)

    assert result.exit_code == 1
    assert "the row names no resource" in result.stdout
