"""Elements of a JSON patch that overwrite what others of it have added."""

import pytest

from policyd.engine.compile.load import load_policies
from policyd.engine.lint.overwritten import overwritten

POLICY = """\
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: p}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  mutations:
"""
A_MAP = "JSONPatch{op: 'add', path: '/spec/nodeSelector', value: {'gpu': 'a'}}"
ANOTHER = "JSONPatch{op: 'add', path: '/spec/nodeSelector', value: {'zone': 'b'}}"
EMPTY = "JSONPatch{op: 'add', path: '/spec/nodeSelector', value: {}}"
AN_ENTRY = "JSONPatch{op: 'add', path: '/spec/nodeSelector/gpu', value: 'a'}"
ANOTHER_ENTRY = "JSONPatch{op: 'add', path: '/spec/nodeSelector/zone', value: 'b'}"
MISSING = "!has(object.spec.nodeSelector)"


def found(*expressions):
    mutations = "".join(
        f"  - patchType: JSONPatch\n    jsonPatch:\n      expression: >-\n        {each}\n"
        for each in expressions
    )
    loaded = load_policies(POLICY + mutations, "p.yaml")
    (policy,) = loaded.policies
    return list(overwritten(policy))


@pytest.mark.parametrize(
    "expressions",
    [
        pytest.param([f"[{A_MAP}, {ANOTHER}]"], id="always"),
        pytest.param(
            [f"({MISSING} ? [{A_MAP}] : []) + ({MISSING} ? [{ANOTHER}] : [])"],
            id="each-where-the-map-is-missing",
        ),
        pytest.param(
            [f"[{MISSING} ? {A_MAP} : {AN_ENTRY}, {MISSING} ? {ANOTHER} : {ANOTHER_ENTRY}]"],
            id="element-by-element",
        ),
        pytest.param(
            [
                f"(object.spec.hostNetwork == true && {MISSING} ? [{A_MAP}] : [])"
                f" + (has(object.metadata.labels) && {MISSING} ? [{ANOTHER}] : [])"
            ],
            id="each-with-a-condition-of-its-own",
        ),
        pytest.param(
            [
                "[JSONPatch{op: 'add',"
                f" path: {MISSING} ? '/spec/nodeSelector' : '/spec/nodeSelector/gpu',"
                f" value: {MISSING} ? dyn({{'gpu': 'a'}}) : dyn('a')}}, {ANOTHER}]"
            ],
            id="path-by-a-condition",
        ),
        pytest.param(
            [
                "object.spec.containers.map(c, JSONPatch{op: 'add', path: '/spec/nodeSelector',"
                " value: {c.name: 'a'}})"
            ],
            id="each-turn-of-a-loop",
        ),
        pytest.param([f"[{EMPTY}, {AN_ENTRY}, {EMPTY}, {ANOTHER_ENTRY}]"], id="emptied-again"),
        pytest.param(
            [
                "[JSONPatch{op: 'add', path: '/spec/tolerations', value: [{'key': 'a'}]},"
                " JSONPatch{op: 'add', path: '/spec/tolerations', value: [{'key': 'b'}]}]"
            ],
            id="list",
        ),
        pytest.param([f"[{A_MAP}]", f"[{ANOTHER}]"], id="another-mutation"),
    ],
)
def test_an_element_that_overwrites_what_another_added_is_doubtful(expressions):
    (warning,) = found(*expressions)

    assert "more than once: the last one overwrites" in warning.message


@pytest.mark.parametrize(
    "expressions",
    [
        pytest.param(
            [f"({MISSING} ? [{EMPTY}] : []) + [{AN_ENTRY}, {ANOTHER_ENTRY}]"],
            id="the-map-and-then-its-entries",
        ),
        pytest.param([f"{MISSING} ? [{A_MAP}] : [{ANOTHER}]"], id="either-or"),
        pytest.param(
            [f"({MISSING} ? [{A_MAP}] : []) + (has(object.spec.nodeSelector) ? [{ANOTHER}] : [])"],
            id="one-where-the-map-is-there",
        ),
        pytest.param(
            [
                f"(object.spec.restartPolicy == 'Never' ? [{A_MAP}] : [])"
                f" + (object.spec.restartPolicy == 'Always' ? [{ANOTHER}] : [])"
            ],
            id="for-different-values",
        ),
        pytest.param(
            [f"{MISSING} ? [{A_MAP}] : []", f"{MISSING} ? [{ANOTHER}] : []"],
            id="another-mutation-that-asks-anew",
        ),
        pytest.param([f"[{A_MAP}, {A_MAP}]"], id="the-same-again"),
        pytest.param(
            [
                "object.spec.containers.map(c, JSONPatch{op: 'add',"
                " path: '/metadata/labels/' + c.name, value: {'a': 'b'}})"
            ],
            id="a-path-for-each-turn-of-a-loop",
        ),
        pytest.param(
            [
                "[JSONPatch{op: 'add', path: '/spec/tolerations/-', value: {'key': 'a'}},"
                " JSONPatch{op: 'add', path: '/spec/tolerations/-', value: {'operator': 'b'}}]"
            ],
            id="items-that-are-appended",
        ),
        pytest.param(
            [
                f"[{A_MAP}, JSONPatch{{op: 'add', path: '/spec/nodeSelector',"
                " value: object.metadata.labels}]"
            ],
            id="a-value-that-is-not-known",
        ),
    ],
)
def test_elements_that_leave_each_other_alone_are_fine(expressions):
    assert found(*expressions) == []


def test_loops_in_loops_take_no_longer_for_each_level():
    loops = "[1].map(v{}, [JSONPatch{{op: 'remove', path: '/spec/nodeSelector'}}] + {}).flatten()"
    expression = "[]"
    for level in range(20):
        expression = loops.format(level, expression)

    assert found(expression) == []


def test_the_warning_says_what_to_write_instead():
    (warning,) = found(f"[{A_MAP}, {ANOTHER}]")

    assert warning.message == (
        "`mutations[0]` adds `/spec/nodeSelector` more than once: the last one overwrites `'gpu'`"
    )
    assert "add `/spec/nodeSelector` empty, once, where it is missing" in (warning.hint or "")
