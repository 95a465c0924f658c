"""What policies look at in a new pod: too much costs time, too little is a hole."""

import typing

import msgspec
import pytest

from policyd.dialects.kyverno.environments import kyverno_environment
from policyd.dialects.registry import EVERY_FORMAT
from policyd.engine.compile.load import load_policies
from policyd.engine.remember.footprint import footprint
from policyd.engine.remember.footprint_expressions import VOLATILE
from policyd.engine.remember.footprint_tree import UnboundedError
from tests.engine.reviews import policies, policy

ALWAYS = {"apiVersion", "kind"}
CONTROLLER = {f"metadata.ownerReferences[].{name}" for name in ("apiVersion", "controller", "kind")}


def paths(type_, at=""):
    """The paths that a type reads; what is behind them is read whole."""
    if type_ is msgspec.Raw:
        return {at}
    arguments = typing.get_args(type_)
    if typing.get_origin(type_) is list:
        return paths(arguments[0], f"{at}[]")
    if arguments:
        return paths(arguments[0], at)
    fields = [(f.encode_name, f.type) for f in msgspec.structs.fields(type_)]
    return {path for name, type_ in fields for path in paths(type_, f"{at}.{name}".lstrip("."))}


def reads(*specs):
    given = policies(*(policy(spec, f"p{number}") for number, spec in enumerate(specs)))
    type_, _ = footprint(given.policies)
    return paths(type_) - ALWAYS


def asked(expression, variables=""):
    return reads(f"{variables}\nvalidations:\n- expression: |-\n    {expression}")


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        pytest.param("object.spec.hostNetwork != true", {"spec.hostNetwork"}, id="field"),
        pytest.param("!has(object.spec.hostPID)", {"spec.hostPID"}, id="has"),
        pytest.param(
            "!has(object.spec.os) || object.spec.os.name == 'linux'",
            {"spec.os.name"},
            id="has-and-within",
        ),
        pytest.param("object.metadata.labels['a/b'] == 'c'", {"metadata.labels.a/b"}, id="key"),
        pytest.param(
            "object.spec.?os.?name.orValue('') == ''", {"spec.os.name"}, id="optional-fields"
        ),
        pytest.param(
            "request.operation == 'CREATE' || object.spec != oldObject.spec",
            set(),
            id="true-by-the-operation",
        ),
        pytest.param(
            "request.operation != 'UPDATE' && !(request.operation in ['DELETE', 'CONNECT'])"
            " && object.spec.hostNetwork",
            {"spec.hostNetwork"},
            id="as-the-rest-by-the-operation",
        ),
        pytest.param(
            "(request.operation == 'UPDATE' ? object.spec.hostPID : object.spec.hostNetwork)"
            " == true",
            {"spec.hostNetwork"},
            id="one-side-by-the-operation",
        ),
        pytest.param(
            "[object.spec].all(request, request.operation == 'CREATE' || request.os.name == 'a')",
            {"spec"},
            id="operation-of-something-else",
        ),
        pytest.param(
            "request.?operation == optional.of('CREATE') || object.spec.hostNetwork",
            {"spec.hostNetwork"},
            id="optional-operation",
        ),
        pytest.param("object.spec[request.name] == 1", {"spec"}, id="computed-key"),
        pytest.param("size(object.spec.volumes) == 0", {"spec.volumes"}, id="function"),
        pytest.param("object.spec.volumes == []", {"spec.volumes"}, id="comparison"),
        pytest.param("'x' in object.metadata.labels", {"metadata.labels.x"}, id="membership"),
        pytest.param(
            "object.spec.nodeName in object.metadata.labels",
            {"metadata.labels", "spec.nodeName"},
            id="computed-membership",
        ),
        pytest.param(
            "'x' in object.spec.containers", {"spec.containers"}, id="membership-of-a-list"
        ),
        pytest.param(
            "object.spec.containers.filter(c, c.name == 'a').size() == 0",
            {"spec.containers[].name"},
            id="size-of-what-is-filtered",
        ),
        pytest.param(
            "size(object.spec.containers.filter(c, c.name == 'a') + object.spec.volumes) == 0",
            {"spec.containers[].name", "spec.volumes"},
            id="size-of-a-sum",
        ),
        pytest.param(
            "object.spec.containers.map(c, c.env).all(e, e.exists(v, v.name == ''))",
            {"spec.containers[].env[].name"},
            id="items-of-what-is-mapped",
        ),
        pytest.param(
            "object.spec.containers.map(c, c.env).size() == 0",
            {"spec.containers[].env"},
            id="size-of-what-is-mapped",
        ),
        pytest.param(
            "['a', 'b'].all(k, object.metadata.labels[?k].orValue('') != '')",
            {"metadata.labels.a", "metadata.labels.b"},
            id="keys-that-are-written-out",
        ),
        pytest.param(
            "['a', 'b'].all(k, object.metadata.labels[?(k + 'c')].orValue('') != '')",
            {"metadata.labels"},
            id="keys-that-are-made-of-such",
        ),
        pytest.param(
            "['a', request.name].all(k, object.metadata.labels[?k].orValue('') != '')",
            {"metadata.labels"},
            id="keys-some-of-which-are-not",
        ),
        pytest.param("object.spec != null", {"spec"}, id="whole-spec"),
        pytest.param(
            "object.spec.containers.all(c, c.image != '')", {"spec.containers[].image"}, id="loop"
        ),
        pytest.param(
            "object.spec.containers[0].image != ''", {"spec.containers[].image"}, id="first-item"
        ),
        pytest.param(
            "object.spec.containers.exists(c, c == null)", {"spec.containers[]"}, id="whole-item"
        ),
        pytest.param(
            "object.spec.containers.filter(c, c.name == 'a').all(c, c.image != '')",
            {"spec.containers[].name", "spec.containers[].image"},
            id="filter-hands-on",
        ),
        pytest.param(
            "object.spec.containers.map(c, c.image).exists(i, i == '')",
            {"spec.containers[].image"},
            id="map-takes",
        ),
        pytest.param(
            "(object.spec.containers + object.spec.?initContainers.orValue([])).all(c,"
            " c.image != '')",
            {"spec.containers[].image", "spec.initContainers[].image"},
            id="sum-of-lists",
        ),
        pytest.param(
            "(object.spec.hostPID ? object.spec : object.spec.template.spec).hostIPC != true",
            {"spec.hostPID", "spec.hostIPC", "spec.template"},
            id="choice-and-what-pods-have-not",
        ),
        pytest.param(
            "object.metadata.labels[object.spec.nodeName] == ''",
            {"metadata.labels", "spec.nodeName"},
            id="key-from-the-pod",
        ),
        pytest.param(
            "object.metadata.labels.all(key, key != '')", {"metadata.labels"}, id="keys-of-a-map"
        ),
        pytest.param(
            "object.spec.containers.all(object, object.image != '')",
            {"spec.containers[].image"},
            id="a-local-name-hides-the-pod",
        ),
        pytest.param(
            "object.spec.?os.optMap(os, os.name == 'linux').orValue(true)",
            {"spec.os.name"},
            id="optional-map",
        ),
        pytest.param(
            "pod.gpus() < 8",
            {
                "metadata.annotations.gpu-fraction",
                "metadata.annotations.gpu-memory",
                "spec.containers[].resources",
                "spec.initContainers[].resources",
                "spec.initContainers[].restartPolicy",
                "spec.overhead",
                "spec.resources",
            },
            id="own-method",
        ),
        pytest.param("workload.claims() == 0", {"spec.resourceClaims"}, id="claims"),
        pytest.param(
            "object.metadata.ownerReferences.all(r, r.pods() == 0)",
            {"metadata.ownerReferences[]"},
            id="own-method-of-no-pod",
        ),
        pytest.param(
            "[true].all(object, .object.spec.hostIPC != true)",
            {"spec.hostIPC"},
            id="a-dot-looks-past-local-names",
        ),
        pytest.param(
            "object.metadata.annotations[?'a\"b'] == 1", {"metadata.annotations"}, id="odd-key"
        ),
        pytest.param("workload.controller() == 'Job'", CONTROLLER, id="owner"),
        pytest.param("maker in ['', 'CronJob']", CONTROLLER, id="maker"),
        pytest.param("['a'].all(maker, maker == 'a')", set(), id="another-maker"),
        pytest.param("object.spec.volumes[0].foo.bar == 1", {"spec.volumes[].foo"}, id="no-field"),
        pytest.param("oldObject == null", set(), id="old-object"),
        pytest.param(
            "namespaceObject.metadata.labels['object'] == 'x'", set(), id="namespace"
        ),
    ],
)  # fmt: skip
def test_the_reads_of_an_expression(expression, expected):
    assert asked(expression) == expected


def test_variables_are_looked_through_and_count_only_where_they_are_used():
    variables = """
variables:
- {name: spec, expression: object.spec}
- {name: containers, expression: variables.spec.containers}
- {name: unused, expression: object.metadata == null}
"""

    assert asked("variables.containers.all(c, has(c.image))", variables) == {
        "spec.containers[].image"
    }


def test_the_whole_of_a_field_outweighs_parts_of_it():
    assert asked("has(object.spec.os.name) && object.spec.os != null") == {"spec.os"}


def test_messages_are_left_out_since_refusals_are_not_remembered():
    spec = """
validations:
- {expression: object.spec.hostIPC != true, messageExpression: string(object.metadata.name)}
"""

    assert reads(spec) == {"spec.hostIPC"}


@pytest.mark.parametrize(
    ("inject", "expected"),
    [
        pytest.param("labels: {a: b}", {"metadata.labels.a"}, id="labels"),
        pytest.param("objectAnnotations: {a/b: c}", {"metadata.annotations.a/b"}, id="annotations"),
        pytest.param(
            "labels: {a: {expression: \"object.spec.nodeName\"}}",
            {"metadata.labels.a", "spec.nodeName"},
            id="computed",
        ),
        pytest.param(
            "queueName: q", {"metadata.labels.kueue.x-k8s.io/queue-name"}, id="queue"
        ),
        pytest.param(
            "priorityClassName: p",
            {"spec.priorityClassName", "spec.priority", "spec.preemptionPolicy"},
            id="priority",
        ),
        pytest.param("tolerations: [{key: a}]", {"spec.tolerations"}, id="tolerations"),
        pytest.param("nodeSelector: {a: b}", {"spec.nodeSelector"}, id="node-selector"),
    ],
)  # fmt: skip
def test_injected_values_are_merged_with_existing_ones(inject, expected):
    assert reads(f"inject: {{{inject}}}") == expected


PATCH = "mutations: [{patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{%s}]'}}]"
APPLY = "mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: '%s'}}]"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param(
            PATCH % 'op: "add", path: "/metadata/labels/a", value: "b"',
            {"metadata.labels"},
            id="path",
        ),
        pytest.param(
            PATCH % 'op: "add", path: "/spec/containers/" + string(1) + "/env", value: []',
            {"spec.containers"},
            id="path-that-goes-on",
        ),
        pytest.param(
            PATCH % 'op: has(object.spec.os) ? "replace" : "add", path: "/spec/os", value: {}',
            {"spec.os"},
            id="one-of-two-verbs",
        ),
        pytest.param(
            APPLY % "Object{spec: Object.spec{hostIPC: false, os: Object.spec.os{name: \"x\"}}}",
            {"spec.hostIPC", "spec.os"},
            id="applied",
        ),
    ],
)  # fmt: skip
def test_mutations_look_at_what_is_where_they_write(spec, expected):
    assert reads(spec) == expected


def test_the_path_of_a_patch_may_begin_with_a_variable():
    variables = "variables: [{name: at, expression: \"object.kind == 'Pod' ? '/spec' : '/x/y'\"}]\n"

    spec = variables + PATCH % 'op: "add", path: variables.at + "/os/name", value: 1'

    assert reads(spec) == {"spec.os", "x"}


def test_the_values_of_a_path_are_found_once_for_each_variable():
    lines = ["variables:", "- {name: v0, expression: \"'/spec/os'\"}"]
    for number in range(60):
        choice = f"request.name == '' ? variables.v{number} : variables.v{number}"
        lines.append(f'- {{name: v{number + 1}, expression: "{choice}"}}')
    patch = PATCH % 'op: "add", path: variables.v60, value: {}'

    assert reads("\n".join([*lines, patch])) == {"spec.os"}


SELECTOR = """
validations: [{expression: 'true'}]
"""


def test_selectors_look_at_the_labels_they_name():
    selecting = policy(SELECTOR).replace(
        "resourceRules",
        "objectSelector: {matchLabels: {a: b}, matchExpressions: [{key: c, operator: Exists}]}\n"
        "    resourceRules",
    )

    type_, _ = footprint(policies(selecting).policies)

    assert paths(type_) - ALWAYS == {"metadata.labels.a", "metadata.labels.c"}


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param("validations: [{expression: 'request != null'}]", id="whole-request"),
        pytest.param(
            "validations: [{expression: \"!dyn(request).exists(k, k == 'name')\"}]",
            id="fields-of-the-request",
        ),
        pytest.param(
            """
            variables: [{name: image, expression: "'x'"}]
            validations:
            - expression: object.spec.containers.all(variables, variables.image != 'evil')
            """,
            id="a-local-name-hides-the-variables",
        ),
        pytest.param(
            "validations: [{expression: authorizer.path('/x').check('get').allowed()}]",
            id="permissions",
        ),
        pytest.param(PATCH % 'op: "test", path: "/spec/os", value: 1', id="patch-that-asks"),
        pytest.param(
            PATCH % 'op: "copy", from: "/metadata/uid", path: "/spec/os"', id="patch-that-copies"
        ),
        pytest.param(
            PATCH % 'op: object.spec.nodeName, path: "/spec/os", value: 1', id="any-verb"
        ),
        pytest.param(
            PATCH % 'op: "add", path: object.spec.nodeName, value: 1', id="any-path"
        ),
        pytest.param(PATCH % 'op: "add", path: "/metadata", value: {}', id="whole-metadata"),
        pytest.param(
            PATCH % 'op: "add", path: "/metadata/" + object.kind, value: 1', id="any-metadata"
        ),
        pytest.param(
            """
            validations: [{name: a, expression: 'true'}]
            exceptions: [{reason: r, owner: o, until: 2027-01-31, users: [u]}]
            """,
            id="exception",
        ),
    ],
)  # fmt: skip
def test_undeterminable_reads(spec):
    with pytest.raises(UnboundedError):
        reads(spec)


def test_reads_that_depend_on_a_resource_name_cannot_be_determined():
    named = policy("validations: [{expression: 'true'}]").replace(
        'resources: ["*"]', 'resources: ["*"], resourceNames: [a]'
    )

    with pytest.raises(UnboundedError):
        footprint(policies(named).policies)


KYVERNO = """
apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata: {name: p}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  validations: [{expression: "%s"}]
"""


def kyvernos(expression):
    loaded = load_policies(KYVERNO % expression, "policy.yaml", EVERY_FORMAT)
    assert not [finding for finding in loaded.findings if finding.severity == "error"]
    return loaded.policies


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        pytest.param("cel.bind(s, object.spec, s.hostIPC != true)", {"spec.hostIPC"}, id="bind"),
        pytest.param(
            "object.spec.containers.sortBy(c, c.name)[0].image != ''",
            {"spec.containers[].name", "spec.containers[].image"},
            id="sort-by",
        ),
        pytest.param(
            "object.spec.containers.transformList(i, c, c.image) != []",
            {"spec.containers[].image"},
            id="two-variables",
        ),
    ],
)
def test_the_reads_of_kyvernos_macros(expression, expected):
    type_, _ = footprint(kyvernos(expression))

    assert paths(type_) - ALWAYS == expected


@pytest.mark.parametrize(
    "expression",
    [
        pytest.param("time.now() > timestamp('2026-01-01T00:00:00Z')", id="clock"),
        pytest.param("random('[a-z]') != ''", id="dice"),
        pytest.param("resource.Get('v1', 'configmaps', 'a', 'b') != null", id="cluster"),
        pytest.param("http.Get('http://a') != null", id="http"),
        pytest.param("images.containers.size() > 0", id="images"),
    ],
)
def test_external_reads_of_kyvernos_policies_cannot_be_determined(expression):
    with pytest.raises(UnboundedError):
        footprint(kyvernos(expression))


def test_all_functions_that_change_their_mind_are_known():
    functions = kyverno_environment().functions

    names = {o.name for overloads in functions.values() for o in overloads if not o.constant}

    assert {name.rpartition(".")[2] for name in names} == VOLATILE


def test_what_the_operation_decides_is_looked_for_once_however_deep():
    expression = "object.spec.hostPID"
    for _ in range(80):
        expression = f"dyn({expression} || false).operation == 'a'"

    assert asked(expression) == {"spec.hostPID"}


def test_choices_that_multiply_are_given_up():
    lines = ["variables:", "- {name: v0, expression: object.spec}"]
    for number in range(8):
        choice = f"request.name == '' ? variables.v{number}.a : variables.v{number}.b"
        lines.append(f'- {{name: v{number + 1}, expression: "{choice}"}}')

    with pytest.raises(UnboundedError):
        asked("variables.v8 == 1", "\n".join(lines))
