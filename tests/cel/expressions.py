"""Hypothesis strategies for expressions: mostly well-typed, some that fail."""

from hypothesis import strategies as st

from policyd.cel.environments import extended_environment
from policyd.cel.types import DYN, Type

VARIABLES = {
    "object": {
        "metadata": {"name": "web", "labels": {"app": "web", "tier": ""}},
        "spec": {"replicas": 3, "ratio": 0.5, "paused": False, "nothing": None, "items": [1, 2, 3]},
        "list": ["a", "b", "abc", ""],
        "mixed": [1, "1", 1.0, None, True, [1], {"a": 1}],
    },
    "numbers": [3, 1, 2],
    "text": "h\u00e9llo",
    "flag": True,
    "nil": None,
}
ENVIRONMENT = extended_environment().extend(variables=dict.fromkeys(VARIABLES, DYN))
TYPED = ENVIRONMENT.extend(variables={"text": Type("string"), "flag": Type("bool")})

_ATOMS = {
    "bool": ["true", "false", "flag", "object.spec.paused", "x == y"],
    "int": ["0", "1", "-1", "3", "9223372036854775807", "object.spec.replicas", "size(numbers)"],
    "double": ["0.5", "1.0", "-2.5", "object.spec.ratio"],
    "string": [
        *("''", "'a'", "'abc'", "'\\n{'", "text", "object.metadata.name"),
        *("object.metadata.labels.app", "object.metadata.labels['tier']", "'b-1'"),
    ],
    "list": ["[]", "[1, 2]", "['a', 'b']", "numbers", "object.list", "object.spec['items']"],
    "map": ["{}", "{'a': 1}", "object.metadata.labels", "{1: 'x', true: 2, 'a': null}", "object"],
    "optional": ["optional.none()", "object.?metadata", "object.spec[?'replicas']"],
    "other": [
        *("null", "2u", "b'a'", "nil", "duration('1m')", "timestamp(0)", "quantity('1Gi')", "int"),
        *("object.spec.missing", "object.spec.nothing.more", "unknown", "object.mixed", "x", "y"),
    ],
}
_FORMS = {
    "bool": [
        *("({bool} && {bool})", "({bool} || {bool})", "({bool} && {any})", "({any} || {bool})"),
        *("!({bool})", "({any} == {any})", "({any} != {any})", "({int} < {int})"),
        *("({int} >= {double})", "({string} <= {string})", "({any} in {list})"),
        *("({string} in {map})", "({bool} ? {bool} : {bool})", "has(({map}).a)"),
        *("({list}).all(x, {bool})", "({list}).exists(x, x == {any})", "({map}).all(x, {bool})"),
        *("({list}).exists_one(x, {bool})", "({map}).exists(x, y, {bool})", "dyn({bool})"),
        *("({list}).all(x, y, {bool})", "({string}).startsWith({string})"),
        *("({string}).matches('^[a-z]+$')", "({string}).contains({string})"),
        *("({list}).isSorted()", "({optional}).hasValue()", "sets.intersects({list}, {list})"),
        *("({string}).matches({string})", "({any} < {any})", "({list}).all(x, x > 0)"),
    ],
    "int": [
        *("({int} + {int})", "({int} - {int})", "({int} * {int})", "({int} / {int})"),
        *("({int} % {int})", "-({int})", "({any}).size()", "size({list})", "({list})[{int}]"),
        *("({bool} ? {int} : {int})", "({string}).indexOf({string})", "({list}).sum()"),
        *("({list}).max()", "int({any})", "math.greatest({int}, {int})", "({any} + {any})"),
        *("cel.bind(x, {any}, {int})", "({optional}).orValue({int})", "int({double})"),
    ],
    "double": ["({double} + {double})", "({double} / {double})", "double({int})", "-({double})"],
    "string": [
        *("({string} + {string})", "string({any})", "({list}).join(',')", "({map})[{string}]"),
        *("({string}).lowerAscii()", "({string}).substring({int})", "({string}).charAt({int})"),
        *("'%s %d'.format([{any}, {int}])", "'%s'.format([{any}])", "({string}).reverse()"),
        *("({bool} ? {string} : {string})", "({string}).replace('a', {string})", "type({any})"),
        *("cel.bind(y, {string}, {string} + y)", "({optional}).orValue({string})"),
    ],
    "list": [
        *("[{any}, {any}]", "[{int}, {int}]", "({list} + {list})", "({list}).map(x, {any})"),
        *("({list}).filter(x, {bool})", "({list}).map(x, {bool}, {any})", "[?{optional}, {any}]"),
        *("({list}).transformList(x, y, {any})", "({map}).map(x, {any})", "({list}).distinct()"),
        *(
            "({list}).sort()",
            "({list}).sortBy(x, {any})",
            "({list}).flatten()",
            "({list}).reverse()",
        ),
        *("({string}).split('')", "({map}).transformList(x, y, {bool}, {any})", "dyn({list})"),
        *("({list}).slice({int}, {int})", "lists.range({int} % 9)"),
    ],
    "map": [
        *("{{{string}: {any}}}", "{{{any}: {any}}}", "({map}).transformMap(x, y, {any})"),
        *("({list}).transformMap(x, y, {bool}, {any})", "{{?'k': {optional}}}", "dyn({map})"),
        *("({list}).transformMapEntry(x, y, {{y: {any}}})", "({bool} ? {map} : {map})"),
    ],
    "optional": [
        *("optional.of({any})", "optional.ofNonZeroValue({any})", "({map}).?a", "({list})[?{int}]"),
        *("({optional}).optMap(x, {any})", "({optional}).or({optional})", "({list}).first()"),
        *("({optional}).optFlatMap(x, {optional})", "({map})[?{string}]", "({optional}).?a"),
    ],
    "other": [
        "({any}).a",
        "({any})[{any}]",
        "({optional}).value()",
        "({any} - {any})",
        "({any}).b()",
    ],
}
_DEPTH = 4


def _expression(draw, kind, depth):
    if kind == "any":
        kind = draw(st.sampled_from(list(_FORMS)))
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from(_ATOMS[kind]))
    form = draw(st.sampled_from(_FORMS[kind]))
    parts = _Parts(draw, depth - 1)
    return form.format_map(parts)


class _Parts(dict):
    """Draws a new expression for each place of a form."""

    def __init__(self, draw, depth):
        super().__init__()
        self.draw = draw
        self.depth = depth

    def __missing__(self, kind):
        return _expression(self.draw, kind, self.depth)


@st.composite
def _expressions(draw):
    return _expression(draw, "any", _DEPTH)


EXPRESSIONS = _expressions()
