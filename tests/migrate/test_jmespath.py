"""JMESPath in CEL: as a person would write it, with the value that JMESPath gives."""

import re

import jmespath
import jmespath.exceptions
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policyd.cel import Budget, CelError, admission_environment, compile_expression
from policyd.cel.values_as_json import as_json
from policyd.migrate.jmespath import CelTerm, Untranslatable, translate, value_of

ROOTS = {"request.object": "object", "request.operation": "request.operation"}
ENVIRONMENT = admission_environment()
PODS = [
    {
        "kind": "Pod",
        "metadata": {"name": "a", "labels": {"app": "b", "example.com/team": "c"}},
        "spec": {
            "hostNetwork": True,
            "terminationGracePeriodSeconds": 30,
            "containers": [
                {"name": "one", "image": "x:1", "args": ["-a", "-b"], "ports": [{"hostPort": 80}]},
                {"name": "two", "image": "y:2", "securityContext": {"runAsUser": 0}},
            ],
            "initContainers": [{"name": "three", "image": "z", "args": []}],
            "volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "hostPath": {"path": "/"}}],
        },
    },
    {"kind": "Pod", "metadata": {"name": "b"}, "spec": {"containers": []}},
    {"kind": "Pod", "metadata": {}, "spec": {"hostNetwork": False, "volumes": []}},
    {"kind": "Pod", "metadata": {}},
]


def evaluated(text, obj):
    program = compile_expression(text, ENVIRONMENT)
    try:
        return as_json(
            program.evaluate({"object": obj, "request": {"operation": "CREATE"}}, Budget())
        )
    except CelError:
        return None  # as CEL says that there is no value


@pytest.mark.parametrize(
    ("expression", "cel"),
    [
        ("request.object.spec.replicas", "object.spec.replicas"),
        ("request.object.spec.replicas || `1`", "object.?spec.?replicas.orValue(1)"),
        ("request.operation || 'BACKGROUND'", "request.operation"),
        (
            'request.object.metadata.labels."app.kubernetes.io/name"',
            "object.metadata.labels['app.kubernetes.io/name']",
        ),
        (
            "request.object.spec.volumes[?hostPath] | length(@)",
            "object.?spec.?volumes.orValue([])"
            ".filter(volume, volume.?hostPath.orValue({}).size() > 0).size()",
        ),
        (
            "request.object.spec.containers[].image",
            "object.?spec.?containers.orValue([])"
            ".map(container, has(container.image), container.image)",
        ),
        (
            "request.object.spec.[initContainers, containers][].name",
            "(object.?spec.?initContainers.orValue([]) + object.?spec.?containers.orValue([]))"
            ".map(container, container.name)",
        ),
        (
            "contains(request.object.rules[].verbs[], '*')",
            ("'*' in object.?rules.orValue([]).map(rule, rule.?verbs.orValue([])).flatten()"),
        ),
        ("keys(request.object.spec) | contains(@, 'tls')", "'tls' in object.?spec.orValue({})"),
        (
            "request.object.spec.limits.memory || request.object.spec.requests.memory",
            "object.?spec.?limits.?memory.or(object.?spec.?requests.?memory).value()",
        ),
        (
            "contains(request.object.kind, 'Set')",
            "object.kind.contains('Set')",
        ),
        (
            "semver_compare('{{ request.object.metadata.labels.version }}', '>=1.2.0 <2')",
            "object.metadata.?labels.?version.hasValue()"
            " && semver(object.metadata.labels.version).compareTo(semver('1.2.0')) >= 0"
            " && semver(object.metadata.labels.version).compareTo(semver('2.0.0')) < 0",
        ),
    ],
)
def test_it_is_written_as_a_person_would(expression, cel):
    assert translate(expression, ROOTS) == cel
    compile_expression(cel, ENVIRONMENT)


LISTS = st.sampled_from(["containers", "initContainers", "volumes", "ephemeralContainers"]).map(
    "request.object.spec.{}".format
)
CONDITIONS = st.recursive(
    st.sampled_from(
        [
            *("name == 'one'", "'two' != name", "image != 'x:1'", "hostPath", "emptyDir", "args"),
            *("!hostPath", "contains(name, 'o')", "securityContext.runAsUser == `0`"),
            *("starts_with(name, 't')", "ports[?hostPort]", "contains(keys(@), 'emptyDir')"),
            *("ports[0].hostPort > `79`", "name == null", "args == null", "length(name) < `4`"),
            *("securityContext.runAsUser || image", "args[0] == '-a'", "hostPath.path == '/'"),
        ]
    ),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["&&", "||"]), inner).map("({0[0]} {0[1]} {0[2]})".format),
        inner.map("!({})".format),
    ),
    max_leaves=3,
)
LISTED = st.one_of(
    st.tuples(LISTS, CONDITIONS).map("{0[0]}[?{0[1]}]".format),
    LISTS.map("{}[]".format),
    LISTS.map("{}[*]".format),
    st.just("request.object.spec.[containers, initContainers][]"),
)
SCALARS = st.one_of(
    LISTED.map("{}.name".format),
    LISTED.map("{}.args[]".format),
    LISTED.map("{}.ports[].hostPort".format),
    LISTED.map("{}.securityContext.runAsUser".format),
    LISTED.map("{}.keys(@)[]".format),
    LISTED.map("{}.name.contains(@, 'o')".format),
)
EXPRESSIONS = st.one_of(
    *(SCALARS, LISTED),
    SCALARS.map("length({} || `[]`)".format),
    SCALARS.map("({}) | [0]".format),
    SCALARS.map("({})[-1]".format),
    SCALARS.map("contains({} || `[]`, 'one')".format),
    LISTED.map("join(',', {}.name || `[]`)".format),
    LISTED.map("sort({}.name || `[]`)".format),
    LISTED.map("{}.{{name: name, image: image}}".format),
    LISTED.map("{}.[name, image]".format),
    LISTED.map("{}.not_null(image, name)".format),
    LISTED.map("max_by({} || `[]`, &name).name".format),
    st.sampled_from(
        [
            *("request.object.metadata.name || 'none'", "request.object.metadata.labels.app"),
            *(
                'request.object.metadata.labels."example.com/team"',
                "request.object.metadata.labels",
            ),
            *("values(request.object.metadata.labels || `{}`)", "request.object.spec.hostNetwork"),
            "request.object.spec.terminationGracePeriodSeconds || `5`",
            "request.object.spec.containers[0:1].name",
            "request.object.metadata.name == 'a' && request.object.spec.hostNetwork",
            "request.object.metadata.labels.* | length(@)",
            "!(request.object.spec.hostNetwork)",
        ]
    ),
)
SORTED = {"keys", "values", "labels.*"}


def without_nulls(value):
    """Drop what selections of several fields have for absent ones."""
    if isinstance(value, dict):
        return {key: without_nulls(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [without_nulls(each) for each in value if each is not None]
    return value


def same(expression, one, other):
    """Whether two values mean the same where absence is what its use makes of it."""
    absent = (None, [], False)
    one, other = without_nulls(one), without_nulls(other)
    if any(name in expression for name in SORTED) and isinstance(one, list):
        return sorted(map(str, one)) == sorted(map(str, other or []))
    return one == other or (one in absent and other in absent)


@settings(max_examples=300, deadline=None)
@given(EXPRESSIONS, st.sampled_from(PODS))
def test_it_has_the_value_that_jmespath_gives(expression, obj):
    try:
        truth = jmespath.search(expression, {"request": {"object": obj, "operation": "CREATE"}})
    except jmespath.exceptions.JMESPathError:
        return  # a function of null, which is an error there
    text = translate(expression, ROOTS)
    assert same(expression, truth, evaluated(text, obj)), text


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("request.object.spec[", "is not JMESPath"),
        ("parse_json(request.operation)", "a function of Kyverno's own kinds"),
        ("path_canonicalize(request.operation)", "no function such as path_canonicalize"),
        ("nonsense(request.operation)", "Kyverno has none of that name"),
        ("contains(request.operation)", "contains() does not take 1 arguments"),
        ("request", "the variable request is not known here"),
        ("other.name", "the variable other is not known here"),
        ("'{{ request.operation'", "has no `}}`"),
        ("request.object." + "a." * 12_000 + "a", "over 20,000 characters"),
        ("(" * 4_000 + "request.operation" + ")" * 4_000, "nested too deeply"),
        ("!" * 100 + "request.operation", "nested too deeply"),
        ('`{"a": {{ request.operation }}}`', "is made of text and a variable"),
        ("{{ request.operation }}", "without quotes"),
        ("contains({{ request.operation }}, 'a')", "without quotes"),
    ],
)
def test_what_has_no_counterpart_is_named(expression, reason):
    with pytest.raises(Untranslatable, match=re.escape(reason)):
        translate(expression, ROOTS)


def test_variables_in_literals_and_names():
    roots = {**ROOTS, "element": CelTerm(text="container", kind="map")}
    assert translate("'{{ element.name }}'", roots) == "container.name"
    assert translate("'a-{{ element.name }}'", roots) == "'a-' + container.name"
    assert translate('request.object.data."{{ element.name }}"', roots) == (
        "object.data[container.name]"
    )
    assert translate("'{{ element.a || 'b' }}'", roots) == "container.?a.orValue('b')"


def test_a_condition_of_what_may_be_absent_is_false():
    value = value_of("contains(request.object.metadata.name, 'a')", ROOTS)
    assert value.truth() == "has(object.metadata.name) && object.metadata.name.contains('a')"
