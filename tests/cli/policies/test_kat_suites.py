"""`policyd test` runs tests in kat's layout, where the names of files say what they are."""

import pytest
from click.testing import CliRunner

from policyd.cli import main

POLICY = """\
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: owner}
spec:
  failurePolicy: Fail
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE, DELETE], resources: [pods]}
    - {apiGroups: [""], apiVersions: [v1], operations: [CONNECT], resources: [pods/exec]}
  matchConditions:
  - {name: not-root, expression: "request.userInfo.username != 'root'"}
  validations:
  - expression: >-
      request.operation != 'CREATE' || params.data.key in object.metadata.?labels.orValue({})
    messageExpression: "'label ' + params.data.key + ' is missing'"
  - expression: >-
      request.operation != 'DELETE'
      || authorizer.group('').resource('pods').namespace('x').check('drain').allowed()
    message: not allowed to drain
  - expression: >-
      request.operation != 'CONNECT' || namespaceObject.metadata.?labels.?env.orValue('') != 'prod'
    message: nobody looks inside
  auditAnnotations:
  - {key: who, valueExpression: request.userInfo.username}
"""
BINDING = """\
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: b}
spec:
  policyName: owner
  validationActions: [%s]
  paramRef: {name: keys, namespace: config, parameterNotFoundAction: Deny}
"""
MUTATING = """\
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: label}
spec:
  reinvocationPolicy: Never
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: "Object{metadata: Object.metadata{labels: {'a': 'b'}}}"}
"""
POD = "{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: x%s}, spec: {containers: []}}"
BARE = POD % ""
LABELLED = POD % ", labels: {team: a}"
PARAMS = "data: {key: team}"
EXEC = """\
operation: CONNECT
subResource: exec
name: a
namespace: p
namespaceObject: {apiVersion: v1, kind: Namespace, metadata: {name: p, labels: {env: prod}}}
options: {container: app}
"""
REQUEST = "{userInfo: {username: me}, params: {data: {key: team}}}"
DRAIN = "[{group: '', resource: pods, namespace: x, verb: drain, decision: allow}]"


@pytest.fixture
def folder(tmp_path):
    def write(files, *, policy=POLICY, actions="Deny", bound=True):
        (tmp_path / "policy.yaml").write_text(policy)
        if bound:
            (tmp_path / "binding.yaml").write_text(BINDING % actions)
        (tmp_path / "tests").mkdir()
        for name, text in files.items():
            (tmp_path / "tests" / name).write_text(text)
        return tmp_path

    return write


def run(path):
    return CliRunner().invoke(main, ["test", "-v", str(path)])


@pytest.mark.parametrize(
    "files",
    [
        pytest.param(
            {
                "owner.bad.deny.object.yaml": BARE,
                "owner.bad.deny.params.yaml": PARAMS,
                "owner.bad.deny.message.txt": "label team is missing\n",
            },
            id="denied-with-a-message",
        ),
        pytest.param(
            {
                "owner.good.audit.object.yaml": LABELLED,
                "owner.good.audit.request.yaml": REQUEST,
                "owner.good.audit.annotations.yaml": "who: me",
            },
            id="audited",
        ),
        pytest.param(
            {
                "owner.gone.allow.oldObject.yaml": BARE,
                "owner.gone.allow.params.yaml": PARAMS,
                "owner.gone.allow.authorizer.yaml": DRAIN,
            },
            id="deleted-by-who-may",
        ),
        pytest.param(
            {
                "owner.exec.deny.request.yaml": EXEC,
                "owner.exec.deny.params.yaml": PARAMS,
                "owner.exec.deny.message.txt": "nobody looks inside",
            },
            id="connected",
        ),
        pytest.param(
            {
                "owner.root.allow.request.yaml": "userInfo: {username: root}",
                "owner.root.allow.object.yaml": BARE,
                "owner.root.allow.params.yaml": PARAMS,
            },
            id="left-out-by-a-condition",
        ),
        pytest.param(
            {"owner.other.skip.object.yaml": BARE.replace("kind: Pod", "kind: Secret")},
            id="meant-to-be-no-concern",
        ),
        pytest.param(
            {"good.allow.object.yaml": LABELLED, "good.allow.params.yaml": PARAMS},
            id="of-the-only-policy",
        ),
    ],
)
def test_a_test_passes_if_it_goes_as_its_files_say(files, folder):
    result = run(folder(files))

    assert result.exit_code == 0, result.output
    assert "1 case passed" in result.output


@pytest.mark.parametrize(
    ("files", "message"),
    [
        pytest.param(
            {"owner.a.deny.object.yaml": LABELLED, "owner.a.deny.params.yaml": PARAMS},
            "allowed, but should not be",
            id="allowed",
        ),
        pytest.param(
            {"owner.a.allow.object.yaml": BARE, "owner.a.allow.params.yaml": PARAMS},
            "refused: label team is missing",
            id="refused",
        ),
        pytest.param(
            {
                "owner.a.deny.object.yaml": BARE,
                "owner.a.deny.params.yaml": PARAMS,
                "owner.a.deny.message.txt": "no",
            },
            "refused with another message: label team is missing",
            id="another-message",
        ),
        pytest.param(
            {"owner.a.allow.object.yaml": BARE.replace("kind: Pod", "kind: Secret")},
            "no rule matches CREATE of secrets; add `skip` to the name if that is intended",
            id="no-concern",
        ),
        pytest.param(
            {"owner.a.skip.object.yaml": LABELLED, "owner.a.skip.params.yaml": PARAMS},
            "a rule matches this request, but should not",
            id="a-concern-after-all",
        ),
        pytest.param(
            {
                "owner.a.allow.object.yaml": LABELLED,
                "owner.a.allow.request.yaml": f"object: {LABELLED}",
            },
            "`object` is in two files",
            id="said-twice",
        ),
        pytest.param(
            {
                "owner.a.allow.oldObject.yaml": BARE,
                "owner.a.allow.request.yaml": "operation: CREATE",
            },
            "`CREATE` does not go with these objects: DELETE",
            id="another-operation",
        ),
        pytest.param(
            {"owner.a.allow.params.yaml": PARAMS},
            "neither an object nor an `operation` is given",
            id="no-object",
        ),
        pytest.param(
            {"owner.a.allow.request.yaml": "[CREATE]"},
            "the request is not an object",
            id="list-for-a-request",
        ),
        pytest.param(
            {
                "owner.a.deny.object.yaml": LABELLED,
                "owner.a.deny.params.yaml": f"{{metadata: 5, {PARAMS}}}",
            },
            "allowed, but should not be",
            id="misshapen-params",
        ),
        pytest.param(
            {
                "owner.a.audit.object.yaml": LABELLED,
                "owner.a.audit.params.yaml": PARAMS,
                "owner.a.audit.annotations.yaml": "who: me",
            },
            "audit annotation `who` is 'someone'",
            id="another-annotation",
        ),
    ],
)
def test_a_test_fails_if_it_does_not(files, message, folder):
    result = run(folder(files))

    assert result.exit_code == 1
    assert message in result.output


@pytest.mark.parametrize(
    ("warnings", "passes"),
    [pytest.param("label team is missing", True, id="so"), pytest.param("no", False, id="not-so")],
)
def test_warnings_are_compared_line_by_line(warnings, passes, folder):
    files = {
        "owner.a.warn.object.yaml": BARE,
        "owner.a.warn.params.yaml": PARAMS,
        "owner.a.warn.warnings.txt": warnings,
    }
    result = run(folder(files, actions="Warn"))

    assert (result.exit_code == 0) == passes


def test_a_policy_without_a_binding_denies(folder):
    files = {"owner.a.deny.object.yaml": BARE, "owner.a.deny.params.yaml": PARAMS}

    assert run(folder(files, bound=False)).exit_code == 0


@pytest.mark.parametrize(
    ("files", "message"),
    [
        pytest.param({"label.a.gold.yaml": POD % ", labels: {a: b}"}, "1 case passed", id="so"),
        pytest.param({"label.a.gold.yaml": BARE}, "resulting object differs", id="differently"),
        pytest.param({}, "changed, but there is no .gold.yaml", id="not-said"),
    ],
)
def test_the_changed_object_equals_the_gold_file(files, message, folder):
    files = {"label.a.object.yaml": BARE, **files}

    assert message in run(folder(files, policy=MUTATING, bound=False)).output


def test_of_several_policies_the_name_says_which_is_tested(folder):
    files = {"other.a.allow.object.yaml": BARE}
    result = run(folder(files, policy=f"{POLICY}---\n{MUTATING}"))

    assert "its name must begin with a policy's name: label, owner" in result.output
