"""Make up expressions that may take long on the largest objects, and measure how long they do.

Every function, operator and macro of every environment gets a call with whatever of its types is
nasty: once, in loops until the limits are reached, with its errors absorbed, and with other calls
in the place of its arguments.
"""

import math
import random
import signal
import time
from functools import lru_cache
from typing import NamedTuple

from policyd.cel import Budget, CelCompileError, CelCostError, CelError
from policyd.cel.compile.program import compile_expression, compile_unchecked
from policyd.cel.cost import EXPRESSION_LIMIT, WORK_UNITS
from policyd.cel.environments import admission_environment, extended_environment
from policyd.cel.functions import collect
from policyd.cel.lib.authorizer import Authorization, Authorizer
from policyd.cel.types import DYN
from policyd.cel.values import UInt
from policyd.dialects.kyverno.environments import kyverno_environment, kyverno_values
from policyd.engine.model.dialects import Volatile
from policyd.engine.model.functions import FUNCTIONS

BOUND_SECONDS = 0.2
"""CPU that one expression may take."""
_GIVEN_UP_SECONDS = 2.0
_SIZE = 3 << 20
_OUTSIDE = frozenset(("Get", "List", "Post", "Put", "Client", "GetMetadata"))
_OUTSIDE_TYPES = frozenset(("resource.Context", "http.Context", "globalcontext.Context"))


class Measured(NamedTuple):
    """What an expression took.

    `ended` is how: with a value, an error, or at a limit.
    """

    seconds: float
    source: str
    cost: int
    work: int
    ended: str

    @property
    def nanoseconds_per_unit(self):
        return self.seconds * 1e9 / max(self.cost + WORK_UNITS * self.work, 1)


class _GivenUpError(BaseException):
    """An expression took far longer than it may."""


class _Counted(Budget):
    """A budget that remembers how much work an expression did."""

    __slots__ = ("done",)

    def __init__(self, limit=EXPRESSION_LIMIT):
        super().__init__(limit)
        self.done = 0

    def charge_work(self, elements):
        self.done += elements
        super().charge_work(elements)


def _deep(levels, last):
    value = last
    for level in range(levels):
        value = [value] if level % 2 else {"a": value}
    return value


def _shared(levels, width, last):
    value = last
    for _ in range(levels):
        value = [value] * width
    return value


def _container(resources):
    limits = {f"nvidia.com/mig-{n}": 1 for n in range(resources)}
    return {"name": "a", "resources": {"limits": limits}}


_LONG = {
    "ascii": "a" * _SIZE,
    "less": "<" * _SIZE,
    "wide": "\u00e9" * (_SIZE // 2),
    "emoji": "\U0001f600A" * (_SIZE // 5),
    "ones": "1" * _SIZE,
    "spaces": " " * _SIZE,
    "dots": "a." * (_SIZE // 2),
    "slashes": "/a" * (_SIZE // 2),
    "percents": "%s" * (_SIZE // 2),
    "escapes": "%41" * (_SIZE // 3),
    "pairs": "/?" + "a=b&" * (_SIZE // 4),
    "hours": "1h" * (_SIZE // 2),
    "version": "1.2.3-" + "a." * (_SIZE // 2) + "a",
    "url": "https://a/" + "%41" * (_SIZE // 3),
    "json": "[" + "[]," * (_SIZE // 3) + "1]",
    "texts": '["' + 'a","' * (_SIZE // 4) + '"]',
    "deep_json": "[" * 500 + "]" * 500,
    "yaml": "- a\n" * (_SIZE // 4),
    "brackets": "(" * (_SIZE // 2) + ")" * (_SIZE // 2),
    "classes": "[a-z]" * 1000,
    "backslashes": "\\1" * (_SIZE // 2),
    "colons": "a:" * (_SIZE // 2),
    "lines": "a\n" * (_SIZE // 2),
    "quotes": '"' * _SIZE,
    "controls": "\a\\" * (_SIZE // 2),
}
_MIDDLE = {
    "k_ascii": "a" * 10_000,
    "k_b": "a" * 9_999 + "b",
    "k_wide": "\u00e9" * 10_000,
    "k_dots": "a." * 5_000,
    "k_version": "1.2.3-" + "1." * 5_000 + "1",
    "k_hours": "1h" * 400,
    "k_pairs": "/?" + "a=b&" * 2_500,
    "k_url": "https://a/" + "%41" * 3_000,
    "k_quantity": "1" * 900,
    "k_no_number": "1" * 20_000 + "!",
    "k_open": "(" * 10_000,
    "k_exponent": "1e900",
    "k_pattern": "(a|aa)*" * 30 + "b",
    "k_random": "((((((((((a{9}){9}){9}){9}){9}){9}){9}){9}){9}){9})",
    "k_classes": "[\\x00-\U0010ffff]" * 60,
    "k_percents": "%s" * 5_000,
    "k_precision": "%.999f" * 100,
    "k_json": "[" + "1," * 5_000 + "1]",
    "k_yaml": "a: [" + "1," * 500 + "1]",
    "k_aliases": "a: &a [1,1,1,1,1,1,1,1]\n"
    + "".join(
        f"{b}: &{b} [{','.join(['*' + a] * 8)}]\n" for a, b in zip("abcde", "bcdef", strict=True)
    ),
    "k_merges": "a: &a {k: v}\n"
    + "".join(
        f"{b}: &{b} {{<<: [{','.join(['*' + a] * 8)}]}}\n"
        for a, b in zip("abcdef", "bcdefg", strict=True)
    ),
}
_SHORT = {
    "s": "a",
    "empty": "",
    "number": "12",
    "size": "1.5Gi",
    "ipv4": "10.1.2.3",
    "ipv6": "ff::1:2",
    "net": "10.0.0.0/8",
    "net6": "ff00::/10",
    "link": "https://a.example:80/b?c=d",
    "semver": "1.2.3-a.1",
    "moment": "2024-02-29T12:00:00Z",
    "hour": "1h30m",
    "zone": "Europe/Berlin",
    "no_zone": "No/Where",
    "pattern": "a*",
    "group": "(a)",
    "letters": "\\pL{20}",
    "image": "ghcr.io/team/app:1.2",
    "clause": "%s %d %f %e",
    "user": "system:serviceaccount:a:b",
    "selector": "a in (b,c),d",
    "encoded": "YWJj",
}
_INTS = {"zero": 0, "one": 1, "minus": -1, "many": 1_000, "huge": 2**63 - 1}
_LISTS = {
    "ints": list(range(1_000_000)),
    "falling": list(range(300_000, 0, -1)),
    "same": [7] * 1_500_000,
    "doubles": [i + 0.5 for i in range(600_000)],
    "nans": [math.nan] * 400_000,
    "nulls": [None] * 600_000,
    "bools": [True] * 600_000,
    "texts_of": [f"t{i}" for i in range(300_000)],
    "one_text": ["a"] * 700_000,
    "empties": [""] * 1_000_000,
    "long_texts": ["x" * 1_000 + str(i) for i in range(3_000)],
    "maps": [{"name": f"n{i}", "value": i} for i in range(80_000)],
    "empty_maps": [{} for _ in range(700_000)],
    "lists_of": [[i] for i in range(500_000)],
    "pairs_of": [[i, "a"] for i in range(200_000)],
    "mixed": [1, "1", 1.5, None, True, [1], {"a": 1}] * 50_000,
    "deep_list": [_deep(400, i) for i in range(700)],
    "shared": _shared(6, 10, {"a": "b"}),
    "shared_texts": _shared(12, 8, "a"),
}
_MAPS = {
    "wide_map": {f"k{i}": i for i in range(200_000)},
    "text_map": {f"k{i}": "v" for i in range(200_000)},
    "long_keys": {"k" * 1_000 + str(i): {} for i in range(3_000)},
    "map_of_lists": {f"k{i}": [i] for i in range(150_000)},
    "map_of_maps": {f"k{i}": {"a": {"b": i}} for i in range(100_000)},
    "deep_map": _deep(500, 1),
    "many_containers": {"spec": {"containers": [_container(1) for _ in range(30_000)]}},
    "many_resources": {"spec": {"containers": [_container(100_000)]}},
    "many_owners": {"metadata": {"ownerReferences": [{"kind": "a"} for _ in range(150_000)]}},
    "job": {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "spec": {"template": {"spec": {"containers": [_container(1) for _ in range(30_000)]}}},
    },
}
_LITTLE = {
    "t": list(range(100)),
    "k": list(range(1_000)),
    "m": list(range(20_000)),
    "kt": [f"t{i}" for i in range(1_000)],
    "km": [{"name": f"n{i}", "value": i} for i in range(1_000)],
    "kk": {f"k{i}": i for i in range(1_000)},
    "kl": [list(range(100)) for _ in range(100)],
    "kd": [i + 0.5 for i in range(1_000)],
}
_OTHERS = {
    "flag": True,
    "nil": None,
    "double": 1.5,
    "nan": math.nan,
    "large": 1e300,
    "unsigned": UInt(7),
    "data": b"a" * _SIZE,
    "k_data": b"a" * 10_000,
}
# Values that a call in a loop gets without making them anew.
_MADE = {
    "moment": "timestamp('2026-11-28T03:04:05.678Z')",
    "hour": "duration('1h2m3s')",
    "amount": "quantity('1.5Gi')",
    "address": "url('https://a.example.com:443/b?c=d')",
    "release": "semver('1.2.3-rc.1')",
    "host": "ip('2001:db8::1')",
    "subnet": "cidr('2001:db8::/32')",
    "picture": "image('a.example.com/b/c:d')",
}


def _copied(value):
    if isinstance(value, list):
        return [_copied(part) for part in value]
    return dict(value) if isinstance(value, dict) else value


@lru_cache(maxsize=1)
def variables():
    """Return the values of all variables, which take some 600 MB."""
    made = {**_LONG, **_MIDDLE, **_SHORT, **_INTS, **_LISTS, **_MAPS, **_LITTLE, **_OTHERS}
    twins = (*("maps", "pairs_of", "empty_maps", "long_texts"), *_MAPS)
    for name in twins:  # equal, and not the same
        made[f"{name}2"] = _copied(made[name])
    made["ascii2"] = "a" * (_SIZE - 1) + "a"
    functions = kyverno_environment(mutation=True)
    for name, source in _MADE.items():
        made[name] = compile_expression(source, functions).evaluate({}, Budget())
    made["authorizer"] = Authorizer(lambda _attributes: Authorization(allowed=True))
    return {**made, **kyverno_values()}


_BY_TYPE = {
    "string": (*_LONG, *_MIDDLE, *_SHORT, *_SHORT, "ascii2"),
    "int": tuple(_INTS),
    "uint": ("unsigned",),
    "double": ("double", "nan", "large"),
    "bool": ("flag",),
    "null_type": ("nil",),
    "bytes": ("data", "k_data", "bytes(s)"),
    "list": (*_LISTS, *_LITTLE, "maps2", "pairs_of2", "empty_maps2", "long_texts2"),
    "map": (*_MAPS, *(f"{name}2" for name in _MAPS), "kk"),
    "optional_type": (
        *("optional.of(maps)", "optional.of(maps2)", "optional.none()", "optional.of(s)"),
        *("optional.of(text_map)", "optional.of(text_map2)", "optional.of(ascii)"),
        *("optional.of(optional.of(maps))", "optional.of(optional.of(maps2))"),
    ),
    "google.protobuf.Duration": ("duration('1h')", "hour"),
    "google.protobuf.Timestamp": ("timestamp(1000000000)", "moment"),
    "kubernetes.Quantity": (
        "amount",
        "quantity('1Gi')",
        "quantity('1e900')",
        "quantity(k_quantity)",
    ),
    "kubernetes.URL": (
        "address",
        "url(link)",
        "url(k_url)",
        "url(k_pairs)",
        "url(url)",
        "url(pairs)",
    ),
    "kubernetes.Semver": ("release", "semver('1.2.3')", "semver(k_version)", "semver(version)"),
    "net.IP": ("host", "ip(ipv4)", "ip(ipv6)"),
    "net.CIDR": ("subnet", "cidr(net)", "cidr(net6)"),
    "kubernetes.NamedFormat": (
        *("format.dns1123Label()", "format.uri()", "format.byte()", "format.qualifiedName()"),
        *("format.dns1123Subdomain()", "format.datetime()", "format.labelValue()"),
    ),
    "kubernetes.authorization.Authorizer": ("authorizer",),
    "kubernetes.authorization.PathCheck": ("authorizer.path('/a')",),
    "kubernetes.authorization.GroupCheck": ("authorizer.group('a')",),
    "kubernetes.authorization.ResourceCheck": ("authorizer.group('a').resource('b')",),
    "kubernetes.authorization.Decision": ("authorizer.path('/a').check('get')",),
    "json.Json": ("json",),
    "yaml.Yaml": ("yaml",),
    "kyverno.image": ("image(image)", "picture"),
    "resource.Context": ("resource",),
    "kyverno.GroupVersionResource": ("resource.ToGVR('v1', 'pods')",),
    "type": ("string", "int"),
}
_ANY = tuple(name for kind in ("string", "list", "list", "map", "map") for name in _BY_TYPE[kind])


def _dice(sides):
    return 7 % sides


@lru_cache(maxsize=1)
def environment():
    """Return an environment with all functions and macros that there are."""
    kyverno = kyverno_environment(
        mutation=True, volatile=Volatile(now=lambda: 10**18, random_below=_dice)
    )
    extended = extended_environment()
    functions = {**kyverno.functions}
    for name, overloads in extended.functions.items():
        known = functions.get(name, ())
        functions[name] = (*known, *(o for o in overloads if o not in known))
    for name, overloads in collect([FUNCTIONS]).items():
        functions[name] = (*functions.get(name, ()), *overloads)
    whole = admission_environment(mutation=True)
    declared = {name: DYN for name in variables() if name not in kyverno.variables}
    made = kyverno.extend(variables={**declared, "authorizer": whole.variables["authorizer"]})
    return made.__class__(
        **{
            **{f: getattr(made, f) for f in made.__dataclass_fields__},
            "functions": functions,
            "same_type_literals": False,
        }
    )


@lru_cache(maxsize=1)
def overloads():
    """Return all ways to call a function that do not ask the world outside."""
    return tuple(
        overload
        for several in environment().functions.values()
        for overload in several
        if not (overload.name in _OUTSIDE and overload.parameters[0].name in _OUTSIDE_TYPES)
        and len(overload.parameters) < 5
    )


_OPERATORS = {"_==_": "==", "_!=_": "!=", "_<_": "<", "_<=_": "<=", "_>_": ">", "_>=_": ">="}
_OPERATORS |= {"_+_": "+", "_-_": "-", "_*_": "*", "_/_": "/", "_%_": "%", "@in": "in"}


def _written(overload, arguments):
    name = overload.name
    if name in _OPERATORS:
        return f"({arguments[0]} {_OPERATORS[name]} {arguments[1]})"
    if name in ("!_", "-_"):
        return f"({name[0]}{arguments[0]})"
    if overload.member:
        return f"{arguments[0]}.{name}({', '.join(arguments[1:])})"
    return f"{name}({', '.join(arguments)})"


class _Maker:
    """Makes up one expression."""

    def __init__(self, rng):
        self.rng = rng
        self.choose = rng.choice

    def of_type(self, kind, depth):
        """Return an expression of a type."""
        name = "any" if kind.variable or kind.name in ("dyn", "any") else kind.name
        if self.rng.random() < 0.15 * depth:
            made = self.made_by_macro(name, depth) or self.made(name, depth)
            if made:
                return made
        if name == "any":
            return self.choose((*_ANY, "i", "j"))
        if name == "list" and kind.parameters and self.rng.random() < 0.6:
            inner = kind.parameters[0].name
            known = _ELEMENTS.get(inner)
            if known:
                return self.choose(known)
        return self.choose(_BY_TYPE.get(name, _ANY))

    def made(self, name, depth):
        fitting = _by_result().get(name)
        return self.call(self.choose(fitting), depth - 1) if fitting else ""

    def made_by_macro(self, name, depth):
        forms = _MACROS.get(name)
        if not forms or self.rng.random() < 0.5:
            return ""
        return self.filled(self.choose(forms), depth - 1)

    def filled(self, form, depth):
        for kind in ("list", "map", "string", "any", "bool", "optional_type", "int"):
            while f"<{kind}>" in form:
                form = form.replace(f"<{kind}>", self.of_type(_Named(kind), depth), 1)
        return form

    def call(self, overload, depth):
        return _written(overload, [self.of_type(kind, depth) for kind in overload.parameters])

    def expression(self, number):
        """Return the expression of a number: the functions take turns."""
        every = overloads()
        turn = number % (len(every) + len(_FORMS))
        if turn < len(every):
            inner = self.call(every[turn], self.choose((0, 0, 1, 2)))
        else:
            inner = self.filled(_FORMS[turn - len(every)], self.choose((0, 1, 2)))
        return self.choose(_WRAPPERS).replace("<>", inner)


class _Named(NamedTuple):
    """A type by its name alone."""

    name: str
    parameters: tuple = ()
    variable: bool = False


@lru_cache(maxsize=1)
def _by_result():
    found = {}
    for overload in overloads():
        found.setdefault(overload.result.name, []).append(overload)
    return found


_ELEMENTS = {
    "string": ("texts_of", "one_text", "empties", "long_texts", "kt"),
    "int": ("ints", "falling", "same", "k", "m"),
    "double": ("doubles", "nans", "kd"),
    "bool": ("bools",),
    "list": ("lists_of", "pairs_of", "shared", "shared_texts", "kl"),
    "optional_type": ("m.map(x, optional.of(x))", "one_text.map(x, optional.of(x))"),
}
# Besides functions: macros, literals and selections.
_MACROS = {
    "list": (
        *("<list>.map(x, <any>)", "<list>.filter(x, x == <any>)", "<map>.map(x, <any>)"),
        *("<list>.transformList(i, v, v)", "<list>.sortBy(x, <any>)", "[<any>, <any>]"),
        *("<list>.map(x, x + x)", "<list>.map(x, [x, x])", "[?<optional_type>, <any>]"),
    ),
    "map": (
        *("<list>.transformMap(i, v, v)", "<map>.transformMap(i, v, <any>)"),
        *("<list>.transformMapEntry(i, v, {string(i): v})", "{<string>: <any>}"),
        *("<map>.transformMapEntry(i, v, {i: v})", "{<string>: <any>, ?<string>: <optional_type>}"),
        "Object{spec: Object.spec{a: <any>, ?b: <optional_type>}}",
    ),
    "bool": ("<list>.all(x, <any> == x)", "has(<map>.k1)", "<list>.exists_one(x, x == <any>)"),
    "optional_type": (
        *("<map>.?k1", "<list>[?<int>]", "<map>[?<string>]", "<optional_type>.optMap(x, <any>)"),
        *("<optional_type>.optFlatMap(x, optional.of(x))", "<optional_type>.?k1.?a"),
    ),
    "any": ("<map>[<string>]", "<list>[<int>]", "<map>.k1", "cel.bind(x, <any>, [x, x])"),
    "string": ("string(i)", "string(j)", "(<string> + string(i))"),
    "int": ("i", "j"),
}
_FORMS = (
    *(form for forms in _MACROS.values() for form in forms),
    *("<list>.all(x, <list>.all(y, x == y || true))", "<list>.exists(x, <map> == <map>)"),
    *("<list>.all(x, <list>[5].x == 1 || true)", "<list>.all(x, x.a.b.c == 1 || true)"),
    *("<list>.all(x, cel.bind(y, <any>, y == x || true))", "<list>.exists_one(x, <bool>)"),
    *("<map>.all(x, <map>[x] == <any> || true)", "<list>.map(x, x == <any>, <any>)"),
    *("<list>.all(i, v, <bool> || true)", "<list>.existsOne(i, v, v == <any>)"),
    *("[<list>].map(x, x + x).map(x, x + x).map(x, x + x)", "cel.bind(q, <string>, q + q + q + q)"),
    *("<list>.all(x, (<bool> ? <any> : <any>) == x || true)", "type(<any>) == type(<any>)"),
    *("[<any>, <any>] == [<any>, <any>]", "{'a': <any>} == {'a': <any>}"),
    *("[<optional_type>, <any>] == [<optional_type>, <any>]", "<any> != <any>"),
    "Object{a: <any>} == Object{a: <any>}",
    "[JSONPatch{op: 'add', path: <string>, value: <any>}]",
    *("<list>.filter(x, <list>.exists(y, y == x))", "<list>.map(x, <list>.filter(y, x == y))"),
    *("<list>.all(x, <list>.all(y, <list>.all(z, x == z || y == z || true)))",),
    *("<list>.all(x, <bool> && <bool> || true)", "(<bool> || <bool>) && <bool>"),
    *(
        "t.all(x, yaml.parse(k_aliases) == x || true)",
        "t.all(x, yaml.parse(k_merges) == x || true)",
    ),
)
_WRAPPERS = (
    "<>",
    "<>",
    "[<>] == [<>]",
    "k.all(i, k.all(j, [<>].size() == 1))",
    "k.all(i, k.all(j, [<>].size() == 1 || true))",
    "ints.all(i, [<>].size() == 1 || true)",
    "m.map(i, [<>].size())",
    "t.all(i, t.all(j, t.all(z, [<>].size() == 1 || true)))",
    "cel.bind(b, <>, k.all(i, k.all(j, b == b || true)))",
    "optional.of(<>) == optional.of(<>)",
)


def expression(seed, number):
    """Make up one of the expressions of a seed."""
    return _Maker(random.Random(f"{seed} {number}")).expression(number)


def _stop(*_given):
    raise _GivenUpError


def measure(source):
    """Return what an expression takes; None if it cannot be compiled."""
    values = {**variables(), "i": 3, "j": 5}
    known = environment().extend(variables={"i": DYN, "j": DYN})
    try:
        program = compile_expression(source, known)
    except CelCompileError:
        try:
            program = compile_unchecked(source, known)
        except CelCompileError:
            return None
    budget = _Counted()
    before = signal.signal(signal.SIGVTALRM, _stop)
    began = time.thread_time()
    ended = "given up"
    signal.setitimer(signal.ITIMER_VIRTUAL, _GIVEN_UP_SECONDS)
    try:
        program.evaluate(values, budget)
        ended = "a value"
    except CelCostError:
        ended = "a limit"
    except CelError:
        ended = "an error"
    except (_GivenUpError, MemoryError):
        pass
    finally:
        seconds = time.thread_time() - began
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    return Measured(seconds, source, budget.spent, budget.done, ended)


def measured_again(measured):
    """Return what an expression takes at least: what the machine did besides is not its own."""
    return min(measured, *(measure(measured.source) for _ in range(3)))


def shown(measured):
    """Say what an expression took, on a line."""
    charged = f"cost {measured.cost:,}, work {measured.work:,}, {measured.ended}"
    return f"{measured.seconds * 1000:.0f} ms, {charged}: {measured.source}"
