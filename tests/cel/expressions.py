"""Hypothesis strategies for expressions: mostly well-typed, some that fail."""

from hypothesis import strategies as st

from policyd.cel.environments import JSON_PATCH, JSON_PATCHES, extended_environment
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
ENVIRONMENT = (
    extended_environment()
    .extend(variables=dict.fromkeys(VARIABLES, DYN))
    .with_mutation(JSON_PATCH, JSON_PATCHES)
)
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
    "bytes": ["b''", "b'a'", "b'\\xff'", "bytes(text)"],
    "time": [
        *(
            "duration('90s')",
            "duration('-1h30m')",
            "timestamp(0)",
            "timestamp('2024-02-29T12:00:00Z')",
        ),
        *("timestamp('9999-12-31T23:59:59Z')", "duration('100000h')"),
    ],
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
        *("({list}).existsOne(x, y, {bool})", "({map}).existsOne(x, y, y == {any})", "!!({bool})"),
        *("({bool} && {bool} && {any})", "({any} || {bool} || {bool})", "has(({any}).labels)"),
        *("sets.contains({list}, {list})", "sets.equivalent({list}, {list})", "bool({any})"),
        *("({list}).includes({any})", "({any} == {bool} ? {any} : {bool})", "({bytes} <= {bytes})"),
        *("({time} < {time})", "isQuantity({string})", "isURL({string})", "isIP({string})"),
        *("isSemver({string})", "format.dns1123Label().validate({string}).hasValue()"),
        *("cel.bind(x, {any}, x == {any} || {bool})", "(1 / {int} > 0 || {bool})"),
        *("({list}).exists(x, x[0] == 1 || x == {any})", "({map}).all(x, y, y == {any})"),
    ],
    "int": [
        *("({int} + {int})", "({int} - {int})", "({int} * {int})", "({int} / {int})"),
        *("({int} % {int})", "-({int})", "({any}).size()", "size({list})", "({list})[{int}]"),
        *("({bool} ? {int} : {int})", "({string}).indexOf({string})", "({list}).sum()"),
        *("({list}).max()", "int({any})", "math.greatest({int}, {int})", "({any} + {any})"),
        *("cel.bind(x, {any}, {int})", "({optional}).orValue({int})", "int({double})"),
        *("({list}).indexOf({any})", "({list}).lastIndexOf({any})", "({time}).getHours()"),
        *("({time}).getMonth({string})", "size({bytes})", "math.abs({int})", "({list}).min()"),
        *("math.bitShiftLeft({int}, {int})", "math.least([{int}, {double}, dyn({any})])"),
        "uint({any})",
        *("quantity('1Gi').compareTo(quantity({string}))", "semver('1.2.3').major()"),
        *("({string}).lastIndexOf({string}, {int})", "cel.bind(x, {int}, x * x + {int})"),
    ],
    "double": ["({double} + {double})", "({double} / {double})", "double({int})", "-({double})"],
    "string": [
        *("({string} + {string})", "string({any})", "({list}).join(',')", "({map})[{string}]"),
        *("({string}).lowerAscii()", "({string}).substring({int})", "({string}).charAt({int})"),
        *("'%s %d'.format([{any}, {int}])", "'%s'.format([{any}])", "({string}).reverse()"),
        *("({bool} ? {string} : {string})", "({string}).replace('a', {string})", "type({any})"),
        *("cel.bind(y, {string}, {string} + y)", "({optional}).orValue({string})"),
        *("({string}).upperAscii()", "({string}).trim()", "strings.quote({string})"),
        *("({string}).find('[a-z]+')", "({string}).substring({int}, {int})", "r'\\n' + {string}"),
        *("base64.encode({bytes})", "string({time})", "'%x %b %.2f'.format([{any}, {int}, {any}])"),
        *("({list}).join({string})", "({string}).replace({string}, {string}, {int})"),
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
        *("({list}).slice({int}, {int})", "lists.range({int} % 9)", "({string}).split({string})"),
        *("({string}).findAll('[a-z]')", "({list}).transformList(x, y, {bool}, {any})"),
        *("({list}).map(x, ({list}).map(y, [x, y]))", "({list}).filter(x, x == {any})"),
        *("({list}).flatten({int})", "({list}).map(x, cel.bind(y, x, y == {any}))", "[,]"),
        *("({bool} ? {list} : {any})", "optional.unwrap([{optional}, {optional}])"),
    ],
    "map": [
        *("{{{string}: {any}}}", "{{{any}: {any}}}", "({map}).transformMap(x, y, {any})"),
        *("({list}).transformMap(x, y, {bool}, {any})", "{{?'k': {optional}}}", "dyn({map})"),
        *("({list}).transformMapEntry(x, y, {{y: {any}}})", "({bool} ? {map} : {map})"),
        *("{{'a': {any}, 'b': {any}, ?'c': {optional}}}", "({map}).transformMap(x, y, {bool}, y)"),
        *("{{{int}: {any}, {double}: {any}}}", "{{{bool}: {any}, 'k': {any},}}", "object.spec"),
        *("Object{{spec: Object.spec{{a: {any}, ?b: {optional}}}}}", "cel.bind(x, {map}, x)"),
        *("JSONPatch{{op: {string}, path: '/a', value: {any}}}", "Object{{metadata: {any}}}"),
    ],
    "optional": [
        *("optional.of({any})", "optional.ofNonZeroValue({any})", "({map}).?a", "({list})[?{int}]"),
        *("({optional}).optMap(x, {any})", "({optional}).or({optional})", "({list}).first()"),
        *("({optional}).optFlatMap(x, {optional})", "({map})[?{string}]", "({optional}).?a"),
    ],
    "bytes": ["({bytes} + {bytes})", "bytes({string})", "base64.decode({string})"],
    "time": ["({time} + {time})", "({time} - {time})", "duration({any})", "timestamp({any})"],
    "other": [
        "({any}).`a`",
        "({any}).a.b[{any}]",
        "({bool} ? {any} : {any})",
        "({time} - {any})",
        "({any})[?{any}]",
        "({any}).?a.?b",
        "({any}).a",
        "({any})[{any}]",
        "({optional}).value()",
        "({any} - {any})",
        "({any}).b()",
    ],
}
_DEPTH = 4
_KINDS = list(_FORMS)
_CUT = [True, False, False, False]


def expression(choose, kind="any", depth=_DEPTH):
    """Make up an expression; `choose` picks one of some options."""
    if kind == "any":
        kind = choose(_KINDS)
    if depth == 0 or choose(_CUT):
        return choose(_ATOMS[kind])
    return choose(_FORMS[kind]).format_map(_Parts(choose, depth - 1))


class _Parts(dict):
    """Makes up a new expression for each place of a form."""

    def __init__(self, choose, depth):
        super().__init__()
        self.choose = choose
        self.depth = depth

    def __missing__(self, kind):
        return expression(self.choose, kind, self.depth)


_TOKENS = [
    *("(", ")", "[", "]", "{", "}", ",", ":", "?", ".", "&&", "||", "==", "+", "-", "!", " in "),
    *(
        "a",
        "x",
        "1",
        "1u",
        "1.5",
        "'x'",
        "has",
        "true",
        "null",
        "`a`",
        "@",
        "=",
        "|",
        "'",
        '"',
        "\\",
    ),
]


def mutated(draw, source):
    """Insert, leave out or replace a few tokens somewhere in an expression."""
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(source)))
        removed = draw(st.sampled_from([0, 0, 1, 2, 5]))
        source = source[:at] + draw(st.sampled_from(["", *_TOKENS])) + source[at + removed :]
    return source


@st.composite
def _expressions(draw):
    return expression(lambda options: draw(st.sampled_from(options)))


EXPRESSIONS = _expressions()
