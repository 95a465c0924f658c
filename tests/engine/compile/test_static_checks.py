"""What is known of a policy before a request comes is said of it when it is checked."""

import msgspec
import pytest

from policyd.api.policy import Policy
from policyd.engine.compile.load import load_policies
from policyd.engine.compile.static_checks import static_findings
from policyd.engine.documents.reading import read_documents

PODS = "{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}"
JOBS = "{apiGroups: [batch], apiVersions: [v1], operations: [CREATE], resources: [jobs]}"
OTHERS = "{apiGroups: [x.io], apiVersions: [v1], operations: [CREATE], resources: [things]}"
ANY = "{apiGroups: ['*'], apiVersions: ['*'], operations: [CREATE], resources: ['*']}"
CHECK = "authorizer.path('/{}').check('get').allowed()"


def found(rules, *lines):
    text = "\n".join(
        (
            "apiVersion: policyd.io/v1alpha1",
            "kind: Policy",
            "metadata: {name: p}",
            "spec:",
            f"  matchConstraints: {{resourceRules: [{', '.join(rules)}]}}",
            *(f"  {line}" for line in lines),
        )
    )
    ((document,), _) = read_documents(text, "p.yaml")
    policy = msgspec.convert(document.value, Policy)
    return static_findings(policy, document)


def validation(expression):
    return f'validations: [{{expression: "{expression}"}}]'


@pytest.mark.parametrize(
    ("rules", "expression", "message"),
    [
        pytest.param(
            [PODS],
            "object.spec.hostNetwrk == true",
            "undefined field 'hostNetwrk' of v1, Kind=Pod",
            id="misspelt",
        ),
        pytest.param(
            [JOBS],
            "object.spec.template.spec.containers.all(c, c.img != '')",
            "undefined field 'img' of batch/v1, Kind=Job",
            id="within-a-loop",
        ),
        pytest.param(
            [PODS, JOBS],
            "object.spec.replicas > 1",
            "undefined field 'replicas' of v1, Kind=Pod or batch/v1, Kind=Job",
            id="of-none-of-the-kinds",
        ),
        pytest.param(
            [PODS],
            "oldObject.status.reasn == ''",
            "undefined field 'reasn' of v1, Kind=Pod",
            id="old-object",
        ),
    ],
)
def test_a_field_no_kind_has_is_doubtful(rules, expression, message):
    (finding,) = found(rules, validation(expression))

    assert (finding.message, finding.severity) == (message, "warning")


def test_a_doubtful_field_has_its_place_and_what_may_be_meant():
    (finding,) = found([PODS], validation("object.spec.hostNetwrk == true"))

    assert (finding.line, finding.column) == (6, 42)
    assert finding.hint == "did you mean `hostNetwork`?"


@pytest.mark.parametrize(
    ("rules", "expression"),
    [
        pytest.param([PODS], "object.spec.hostNetwork == true", id="right"),
        pytest.param([PODS, JOBS], "has(object.spec.template)", id="of-one-of-the-kinds"),
        pytest.param([OTHERS], "object.spec.anything == 1", id="kind-nobody-knows"),
        pytest.param([PODS, OTHERS], "object.spec.anything == 1", id="one-kind-nobody-knows"),
        pytest.param([ANY], "object.spec.anything == 1", id="any-kind"),
        pytest.param([PODS], "object.metadata.labels.anything == 'a'", id="map"),
        pytest.param([PODS], "pod.gpus() > 0", id="own-functions"),
    ],
)
def test_nothing_is_reported_where_nothing_is_known_to_be_wrong(rules, expression):
    assert found(rules, validation(expression)) == []


def test_variables_have_the_types_of_their_kinds():
    (finding,) = found(
        [PODS],
        'variables: [{name: all, expression: "object.spec.containers"}]',
        validation("variables.all.all(c, c.imge != '')"),
    )

    assert finding.message == "undefined field 'imge' of v1, Kind=Pod"


def test_an_expression_that_is_always_over_its_limit_is_wrong():
    checks = f"[{', '.join(CHECK.format(path) for path in 'abc')}].size() == 3"

    (finding,) = found([PODS], validation(checks))

    assert finding.severity == "error"
    assert finding.message == "the expression costs at least 1,050,021, the limit is 1,000,000"


def test_match_conditions_have_a_limit_together():
    one = CHECK.format("a")
    conditions = ", ".join(f'{{name: c{i}, expression: "{one}"}}' for i in range(8))

    (finding,) = found([PODS], f"matchConditions: [{conditions}]")

    assert finding.message == "the match conditions cost at least 2,800,024, the limit is 2,500,000"


def test_the_expressions_of_a_policy_have_a_limit_together():
    one = CHECK.format("a")
    validations = ", ".join(f'{{expression: "{one} && {one}"}}' for _ in range(30))

    (finding,) = found([PODS], f"validations: [{validations}]")

    assert "the expressions of the policy cost at least 10,500,090" in finding.message


NATIVE = """\
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: p}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  validations:
  - {expression: "object.spec.hostNetwrk == true"}
  - {expression: "[CHECKS].size() == 3"}
"""


def test_a_policy_of_the_api_server_is_used_despite_findings():
    checks = ", ".join(CHECK.format(path) for path in "abc")

    loaded = load_policies(NATIVE.replace("CHECKS", checks), "p.yaml")

    assert [policy.name for policy in loaded.policies] == ["p"]
    assert {finding.severity for finding in loaded.findings} == {"warning"}
    assert len(loaded.findings) == 2
