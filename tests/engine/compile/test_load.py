"""What is wrong with a policy is said with its place; what is right goes on."""

import pytest

from policyd.cli.formats.documents import DIALECT
from policyd.engine.compile.load import load_document, load_policies
from policyd.engine.documents.findings import caret_lines
from policyd.engine.documents.reading import Document
from tests.engine.reviews import policy

BASE = """\
apiVersion: policyd.io/v1alpha1
kind: Policy
metadata: {name: p}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
"""


def findings(text):
    return load_policies(text, "p.yaml").findings


def found(spec):
    """What is wrong with a policy of these lines in its spec, which begin at line 8."""
    loaded = load_policies(BASE + spec, "p.yaml")
    return [(f.line, f.column, f.message, f.hint) for f in loaded.findings]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param(
            "  validation: []\n  inject: {labels: {a: b}}\n",
            (8, 3, "unknown field `validation`", "did you mean `validations`?"),
            id="unknown-field",
        ),
        pytest.param(
            "  validations: [{expresion: 'true'}]\n",
            (8, 18, "unknown field `expresion`", "did you mean `expression`?"),
            id="misspelt-field-is-not-missing-too",
        ),
        pytest.param(
            "  paramKind: {kind: ConfigMap}\n  inject: {labels: {a: b}}\n",
            (8, 3, "field `apiVersion` is missing", None),
            id="kind-of-params-without-its-version",
        ),
        pytest.param(
            "",
            (
                4,
                1,
                "a policy needs `validations`, `inject`, `mutations` or `auditAnnotations`",
                None,
            ),
            id="empty",
        ),
        pytest.param(
            "  enforcement: deny\n  inject: {labels: {a: b}}\n",
            (8, 16, "`deny` is not one of `Audit`, `Deny`, `Warn`", "did you mean `Deny`?"),
            id="enumeration",
        ),
        pytest.param(
            "  inject: {queueName: 3}\n",
            (8, 23, "`queueName` must be a string or `{expression: …}`, not a number", None),
            id="type-of-a-value-or-expression",
        ),
        pytest.param(
            "  inject: {queueName: {expresion: x}}\n",
            (8, 24, "unknown field `expresion`", "did you mean `expression`?"),
            id="misspelt-expression",
        ),
        pytest.param(
            "  inject: {tolerations: [{effect: Never}]}\n",
            (8, 35, "`Never` is not one of `NoExecute`, `NoSchedule`, `PreferNoSchedule`", None),
            id="enumeration-or-expression",
        ),
        pytest.param(
            "  inject: {topology: {required: a, preferred: b}}\n",
            (8, 22, "`topology` takes only one of `required`, `preferred`, `unconstrained`", None),
            id="one-of",
        ),
        pytest.param(
            "  validations: [{expression: ''}]\n",
            (8, 30, "`expression` is empty", None),
            id="empty",
        ),
        pytest.param(
            "  validations: []\n  inject: {override: true}\n",
            (9, 11, "nothing is injected", None),
            id="nothing-injected",
        ),
        pytest.param(
            "  inject: {labels: {a b: c}}\n",
            (8, 21, "label `a b` is not a valid name", None),
            id="label-name",
        ),
        pytest.param(
            "  inject: {resources: {requests: {cpu: much}}}\n",
            (8, 40, "`much` is not a quantity", "such as 500m or 4Gi"),
            id="quantity",
        ),
        pytest.param(
            "  inject: {resources: {requests: {cpu: 2}, limits: {cpu: 1}}}\n",
            (8, 40, "request of `cpu` exceeds its limit", None),
            id="request-above-limit",
        ),
        pytest.param(
            "  inject: {tolerations: [{key: a, operator: Exists, value: b}]}\n",
            (8, 60, "`Exists` takes no `value`", "use `operator: Equal`"),
            id="toleration-with-a-value-too-many",
        ),
        pytest.param(
            "  validations: [{expression: 'true', message: \"a\\nb\"}]\n",
            (8, 47, "a message is one line", "put the advice into `remedy`"),
            id="message-of-two-lines",
        ),
        pytest.param(
            "  inject: {labels: {a: b}}\n  variables: [{name: a-b, expression: '1'}]\n",
            (9, 22, "`name` may have only letters, digits and `_`", None),
            id="name-of-a-variable",
        ),
        pytest.param(
            "  inject: {labels: {a: b}}\n  variables:\n"
            "  - {name: a, expression: '1'}\n  - {name: a, expression: '2'}\n",
            (11, 12, "`a` is named twice", None),
            id="variable-named-twice",
        ),
    ],
)
def test_a_mistake_is_found_at_its_place(spec, expected):
    line, column, message, hint = expected

    assert found(spec)[0][:3] == (line, column, message)
    assert hint is None or found(spec)[0][3] == hint


@pytest.mark.parametrize(
    ("spec", "place", "word"),
    [
        pytest.param(
            "  validations: [{expression: '1 +'}]\n", (8, 34), "Syntax error", id="syntax"
        ),
        pytest.param(
            "  validations: [{expression: 'objct.x'}]\n", (8, 31), "objct", id="undeclared"
        ),
        pytest.param(
            "  validations: [{expression: pod.gpu() > 0}]\n", (8, 37), "gpu", id="unknown-function"
        ),
        pytest.param(
            "  validations: [{expression: pod.gpus() == 'x'}]\n", (8, 41), "_==_", id="types"
        ),
        pytest.param(
            "  validations: [{expression: pod.gpus()}]\n", (8, 38), "bool", id="not-a-condition"
        ),
        pytest.param(
            "  validations:\n  - message: m\n    expression: |\n      1 > 0 &&\n        objct.x\n",
            (12, 9),
            "objct",
            id="in-a-block",
        ),
        pytest.param(
            "  validations:\n  - expression: >-\n      pod.gpus() > 0 &&\n      objct.x\n",
            (11, 7),
            "objct",
            id="in-a-folded-block",
        ),
        pytest.param(
            "  validations: [{expression: 'variables.x'}]\n",
            (8, 40),
            "undefined field",
            id="variable",
        ),
        pytest.param(
            "  matchConditions: [{name: a, expression: 'variables.x'}]\n"
            "  variables: [{name: x, expression: 'true'}]\n  inject: {labels: {a: b}}\n",
            (8, 53),
            "undefined field",
            id="conditions-see-no-variables",
        ),
        pytest.param(
            "  inject: {gang: {minMember: {expression: \"'x'\"}}}\n",
            (8, 43),
            "`minMember` must be an integer, this is string",
            id="value-of-the-wrong-type",
        ),
        pytest.param(
            "  inject: {tolerations: {expression: \"{'a': 1}\"}}\n",
            (8, 38),
            "`tolerations` must be a list of objects",
            id="list-of-the-wrong-type",
        ),
    ],
)
def test_a_wrong_expression_is_found_at_the_character(spec, place, word):
    line, column, message, _ = found(spec)[0]

    assert (line, column) == place
    assert word in message


def test_the_caret_stands_below_the_mistake():
    finding = findings(BASE + "  validations: [{expression: 'objct.x'}]\n")[0]

    assert caret_lines(finding) == [
        "  8 |   validations: [{expression: 'objct.x'}]",
        "    | " + " " * 30 + "^",
    ]


def test_everything_that_is_wrong_is_reported_at_once_in_the_order_of_the_text():
    lines = [
        "  matchConditions: [{name: a, expression: 'x'}]",
        "  variables: [{name: a, expression: 'y'}]",
        "  validations: [{expression: 'z', messageExpression: 'w', remedy: {expression: 'v'}}]",
        "  inject: {labels: {a: {expression: 'u'}}, queueName: {expression: 't'}}",
    ]

    messages = [message for _, _, message, _ in found("\n".join(lines))]

    words = [word for word in "xyzwvut" if any(f"'{word}'" in message for message in messages)]
    assert words == list("xyzwvut")
    assert len(messages) == 7


def test_a_wrong_variable_is_no_reason_to_blame_its_uses():
    spec = "  variables: [{name: a, expression: 'x'}]\n  validations: [{expression: variables.a}]\n"

    assert [message for _, _, message, _ in found(spec)] == [
        "undeclared reference to 'x' (in container '')"
    ]


def test_a_wrong_policy_does_not_stop_the_others():
    text = "---\n".join(
        [
            policy("inject: {labels: {a: b}}", "good"),
            policy("inject: {lables: {a: b}}", "bad"),
            "a: [\n",
            policy("inject: {labels: {a: b}}", "fine"),
        ]
    )

    loaded = load_policies(text, "p.yaml")

    assert [p.name for p in loaded.policies] == ["good", "fine"]
    assert len(loaded.findings) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("just text", "not an object", id="text"),
        pytest.param("a: 1", "field `apiVersion` is missing", id="no-api-version"),
        pytest.param("apiVersion: v1", "field `kind` is missing", id="no-kind"),
        pytest.param(
            "apiVersion: policyd.io/v1alpha1\nkind: Polcy", "unknown kind `Polcy`", id="kind"
        ),
        pytest.param(
            BASE.replace("v1alpha1", "v1") + "  inject: {labels: {a: b}}",
            "`policyd.io/v1` is not `policyd.io/v1alpha1`",
            id="version",
        ),
    ],
)
def test_a_document_that_was_meant_to_be_a_policy_is_not_passed_over(text, message):
    assert message in findings(text)[0].message


def test_documents_of_other_kinds_are_passed_over():
    loaded = load_policies("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n", "x.yaml")

    assert loaded.policies == ()
    assert loaded.findings == ()


def test_a_policy_from_the_api_server_is_identified_by_field():
    value = {
        "apiVersion": "policyd.io/v1alpha1",
        "kind": "Policy",
        "metadata": {"name": "p", "uid": "1", "managedFields": []},
        "spec": {
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["pods"],
                    }
                ]
            },
            "validations": [{"expression": "objct.x"}],
        },
        "status": {"observedGeneration": 1},
    }

    finding = load_document(Document(value, "Policy/p")).findings[0]

    assert finding.place == "Policy/p: spec.validations[0].expression"
    assert "objct" in finding.message


def test_a_policy_knows_where_it_came_from():
    loaded = load_policies("# first\n" + policy("inject: {labels: {a: b}}"), "dir/p.yaml")

    assert loaded.policies[0].place == "dir/p.yaml:2:1"


BOUNDED = """\
apiVersion: policyd.io/v1alpha1
kind: Policy
metadata: {name: p}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: ["*"], resources: [pods]}]
  validations:
"""


def bounded(*expressions):
    return BOUNDED + "".join(f"  - expression: {each!r}\n" for each in expressions)


LARGE = r"(\pL{100}){3}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(bounded(*["true"] * 1_001), "more than 1,000 expressions", id="expressions"),
        pytest.param(
            bounded(*[f"object.a == '{'x' * 90_000}'"] * 3), "262,144 characters", id="characters"
        ),
        pytest.param(
            bounded(*(f"object.a.matches('{LARGE}{n}')".replace("\\", "\\\\") for n in range(5))),
            "patterns of more than 200,000 instructions",
            id="patterns",
        ),
        pytest.param(
            bounded(*(f"'a'.find('{LARGE}{n}') == ''".replace("\\", "\\\\") for n in range(40))),
            "patterns of more than 200,000 instructions",
            id="patterns-of-constants",
        ),
        pytest.param(
            bounded("true").replace("[v1]", f"[{','.join(f'v{n}' for n in range(10_001))}]"),
            "the rules name more than 10,000 resources",
            id="rules",
        ),
        pytest.param(bounded(*["1 +"] * 500), "300 more findings are not shown", id="findings"),
    ],
)
def test_the_work_of_a_document_is_bounded_and_others_continue(text, message):
    for _ in range(2):  # what is compiled already counts as well
        loaded = load_policies(f"{text}---\n{bounded('true').replace('name: p', 'name: q')}", "a")

        assert [policy.name for policy in loaded.policies] == ["q"]
        assert any(message in finding.message for finding in loaded.findings)
        assert len(loaded.findings) <= 201


def test_objects_of_an_api_server_are_no_deeper_than_the_readable_depth():
    value = []
    for _ in range(50_000):
        value = [value]
    document = Document({"apiVersion": "policyd.io/v1alpha1", "kind": "Policy", "spec": value}, "p")

    assert [finding.message for finding in load_document(document).findings] == ["nested too deep"]


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        pytest.param(
            "policies.kyverno.io/v1 PolicyException", {"policyRefs": [{}] * 25_000}, id="references"
        ),
        pytest.param(
            "kyverno.io/v2 PolicyException", {"match": {"any": [{}] * 25_000}}, id="match"
        ),
        pytest.param("policyd.io/v1alpha1 Policy", {"validations": [{"a": 1}] * 15_000}, id="own"),
    ],
)
def test_a_policy_of_an_api_server_with_more_fields_than_can_be_checked_is_refused(kind, spec):
    version, _, kind = kind.partition(" ")
    value = {"apiVersion": version, "kind": kind, "metadata": {"name": "a"}, "spec": spec}

    (finding,) = load_document(Document(value, "p"), DIALECT).findings

    assert finding.message == "more than 20,000 fields and items in one document"


def test_an_object_that_is_no_policy_may_have_any_number_of_fields():
    value = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "data": dict.fromkeys(map(str, range(30_000))),
    }

    assert load_document(Document(value, "c")).findings == ()


def test_a_document_has_its_time():
    def load(document, dialect):
        return load_document(document, dialect, lambda: True)

    loaded = load_policies(bounded("true"), "a", load=load)

    assert loaded.policies == ()
    assert "takes too long" in loaded.findings[0].message
