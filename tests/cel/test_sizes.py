"""No function makes more than an expression was charged for before it ran."""

import itertools

import pytest

from policyd.cel import Budget, CelError
from policyd.cel.environments import extended_environment
from policyd.cel.program import compile_unchecked
from policyd.cel.values import Duration, Optional, Timestamp, UInt

_ENVIRONMENT = extended_environment()
_CALLS = 24
# What is made may be so many characters for each unit of cost and of work, and so many for free:
# at their limits together, 30 MB.
_PER_COST, _PER_WORK, _FREE = 20, 40, 2_000
_PER_ELEMENT = 10

_SOURCES = {
    "kubernetes.Quantity": ["quantity('1Gi')", "quantity('1e900')"],
    "kubernetes.URL": ["url('/' + '%41'.replace('1', '1aaaaaaaa') + '?a=b&c=d')"],
    "net.IP": ["ip('ff::1')"],
    "net.CIDR": ["cidr('ff::/16')"],
    "kubernetes.Semver": ["semver('1.2.3-a.b.c')"],
    "kubernetes.NamedFormat": ["format.dns1123Label()", "format.uri()"],
    "optional_type": ["optional.of([1])"],
}
_VALUES = {
    "bool": [True],
    "int": [3, 20_000],
    "uint": [UInt(3)],
    "double": [1.5, 1e300],
    "string": ["", "a", "a" * 5_000, "a=b&%41" * 500, "\u00e9A" * 2_000, "%.999f%s%x" * 50],
    "bytes": [b"", b"a" * 5_000],
    "list": [[], [1, 2], ["a" * 100] * 100, [[1] * 50] * 50, [1.5] * 1_000, [None, "x"] * 300],
    "map": [{}, {str(n): n for n in range(500)}],
    "null_type": [None],
    "google.protobuf.Duration": [Duration(10**15)],
    "google.protobuf.Timestamp": [Timestamp(10**18)],
    "dyn": [1, "a" * 5_000, ["a" * 50] * 100],
}


def _candidates(kind):
    if kind.variable:
        return _VALUES["dyn"]
    made = [
        compile_unchecked(source, _ENVIRONMENT).evaluate({}, Budget())
        for source in _SOURCES.get(kind.name, ())
    ]
    return made or _VALUES.get(kind.name, [])


def _size(value, given):
    """Return how many characters a value takes, parts that were given aside."""
    size, pending = 0, [value]
    while pending:
        part = pending.pop()
        if id(part) in given:
            continue
        if isinstance(part, str | bytes):
            size += len(part)
        elif isinstance(part, dict):
            size += _PER_ELEMENT * len(part)
            pending += (*part.keys(), *part.values())
        elif isinstance(part, list):
            size += _PER_ELEMENT * len(part)
            pending += part
        elif isinstance(part, Optional):
            pending.append(part.value)
    return size


def _identities(arguments):
    found, pending = set(), list(arguments)
    while pending:
        part = pending.pop()
        found.add(id(part))
        if isinstance(part, list):
            pending += part
        elif isinstance(part, Optional):
            pending.append(part.value)
    return found


def _calls():
    for name, overloads in sorted(_ENVIRONMENT.functions.items()):
        for number, overload in enumerate(overloads):
            candidates = [_candidates(kind) for kind in overload.parameters]
            if all(candidates) and len(candidates) <= 4 and not name.startswith(("_", "@")):
                yield pytest.param(overload, candidates, id=f"{name}-{number}")


@pytest.mark.parametrize(("overload", "candidates"), [*_calls()])
def test_what_is_made_was_charged_for(overload, candidates):
    combinations = list(itertools.product(*candidates))
    step = max(1, len(combinations) // _CALLS)
    for arguments in combinations[::step]:
        cost = overload.cost if isinstance(overload.cost, int) else overload.cost(*arguments)
        try:
            work = overload.work(*arguments) if overload.work else 0
            made = overload.run(*arguments)
        except CelError:
            continue
        allowed = _PER_COST * cost + _PER_WORK * work + _FREE
        assert _size(made, _identities(arguments)) <= allowed
