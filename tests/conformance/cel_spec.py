"""cel-spec's simple tests: an expression, its variables, and a value, an error or a type."""

import base64
import json
import math
from dataclasses import replace
from functools import partial

from policyd.cel import Budget
from policyd.cel.check.checker import check
from policyd.cel.compile.program import compile_expression, compile_unchecked
from policyd.cel.containers import make_map
from policyd.cel.environments import extended_environment
from policyd.cel.errors import CelCompileError, CelError, CelInternalError
from policyd.cel.syntax.parser import parse
from policyd.cel.types import Type
from policyd.cel.values import CelMap, Duration, Optional, Timestamp, TypeValue, UInt
from tests.conformance.outcome import Outcome, judge


def run_cel_spec(path):
    for case in json.loads(path.read_text()):
        name = f"{case['section']}/{case['name']}"
        rule = _out_of_scope(case)
        if rule:
            yield Outcome(name, rule=rule)
            continue
        yield judge(name, partial(_failure, case))


def _out_of_scope(case):
    expression = case["expression"]
    if any(word in expression for word in ("cel.block(", "cel.index(", "cel.iterVar(")):
        return "cel.block: a macro of cel-go's optimiser, written by no one"
    if "::ffff:" in expression.lower():
        return "IPv4-mapped IPv6 addresses: Kubernetes refuses them"
    if any(declared["type"] == "function" for declared in case.get("declarations", ())):
        return "functions declared without a signature"
    return ""


def _failure(case):
    environment = _environment(case)
    want = case["want"]
    try:
        kind = _type_of(case, environment) if "type" in want else None
        value = None if case.get("checkOnly") else _evaluate(case, environment)
    except (CelCompileError, CelError) as error:
        if isinstance(error, CelInternalError):
            raise
        return "" if "error" in want else f"unexpected error: {error}"
    if "error" in want:
        return f"expected an error, got {value!r}"
    if kind is not None and kind != want["type"]:
        return f"expected type {want['type']}, got {kind}"
    if "value" in want and not case.get("checkOnly") and not same(value, decode(want["value"])):
        return f"expected {want['value']}, got {value!r}"
    return ""


def _environment(case):
    environment = extended_environment()
    declared = {d["name"]: parse_type(d["type"]) for d in case.get("declarations", ())}
    environment = environment.extend(variables=declared)
    macros = frozenset() if case.get("disableMacros") else environment.macros
    container = case.get("container", "")
    return replace(environment, container=container, macros=macros, strict_selection=True)


def _type_of(case, environment):
    tree = parse(case["expression"], macros=environment.macros)
    return type_text(check(tree, case["expression"], environment).result)


def type_text(kind):
    """Write a type as the cases do: without spaces."""
    return str(kind).replace(", ", ",")


def _evaluate(case, environment):
    compiled = compile_unchecked if case.get("disableCheck") else compile_expression
    bindings = {name: decode(value) for name, value in case.get("bindings", {}).items()}
    return compiled(case["expression"], environment).evaluate(bindings, Budget())


def parse_type(text):
    """Read a type as the cases write it: `map(string,list(int))`."""
    name, _, rest = text.partition("(")
    names = {
        "null": "null_type",
        "timestamp": "google.protobuf.Timestamp",
        "duration": "google.protobuf.Duration",
    }
    parameters, depth, start = [], 0, 0
    inside = rest.removesuffix(")")
    for place, character in enumerate(f"{inside},"):
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0 and inside:
            parameters.append(parse_type(inside[start:place].strip()))
            start = place + 1
    return Type(names.get(name, name), tuple(parameters))


def decode(value):
    """Turn a typed value of the cases into one of CEL."""
    ((kind, content),) = value.items()
    return _DECODERS[kind](content)


_DECODERS = {
    "int": int,
    "uint": lambda content: UInt(int(content)),
    "double": lambda content: float(content.replace("Infinity", "inf")),
    "string": lambda content: content,
    "bytes": base64.b64decode,
    "bool": lambda content: content,
    "null": lambda content: None,
    "list": lambda content: [decode(part) for part in content],
    "map": lambda content: make_map([(decode(key), decode(part)) for key, part in content]),
    "timestamp_ns": lambda content: Timestamp(int(content)),
    "duration_ns": lambda content: Duration(int(content)),
    "type": TypeValue,
}


def same(got, wanted):
    """Compare strictly: types too, and NaN with itself."""
    if isinstance(wanted, dict):
        return isinstance(got, dict) and _same_maps(got, wanted)
    if type(got) is not type(wanted):
        return False
    if isinstance(wanted, list):
        return len(got) == len(wanted) and all(map(same, got, wanted))
    if isinstance(wanted, float):
        return got == wanted or (math.isnan(got) and math.isnan(wanted))
    if isinstance(wanted, Optional):
        return got.present == wanted.present and same(got.value, wanted.value)
    return got == wanted


def _same_maps(got, wanted):
    pairs, others = list(CelMap(got).items()), list(CelMap(wanted).items())
    return len(pairs) == len(others) and all(
        any(same(key, other) and same(value, part) for other, part in others)
        for key, value in pairs
    )
