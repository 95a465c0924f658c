"""The CEL rules in the schemas of custom kinds: `x-kubernetes-validations`."""

from collections.abc import Iterator
from functools import lru_cache

from policyd.api.meta import Json
from policyd.cel import (
    Budget,
    CelCompileError,
    CelError,
    Environment,
    Program,
    base_environment,
    compile_expression,
)
from policyd.cel.types import DYN
from policyd.local.apiserver.status import Cause, Object, wrong

RULES = "x-kubernetes-validations"

OBJECT_BUDGET = 10_000_000
"""CEL cost of all the rules of one object."""

REASONS = {
    "FieldValueForbidden": "Forbidden",
    "FieldValueRequired": "Required value",
    "FieldValueDuplicate": "Duplicate value",
}
"""How messages begin, by the rule's reason; any other is an invalid value."""


def check_rules(new: Object, old: Object | None, schema: Object) -> Iterator[Cause]:
    """Evaluate the rules of a schema on an object, and on the old one if there is one."""
    yield from _check(new, old, schema, "", Budget(OBJECT_BUDGET))


def has_rules(schema: Object) -> bool:
    """Tell whether a schema has rules anywhere."""
    if schema.get(RULES):
        return True
    inner = [*schema.get("properties", {}).values()]
    inner += [schema.get("items"), schema.get("additionalProperties")]
    return any(isinstance(part, dict) and has_rules(part) for part in inner)


def _check(value: Json, old: Json, schema: Object, path: str, budget: Budget) -> Iterator[Cause]:
    for rule in schema.get(RULES, ()):
        yield from _evaluate(rule, value, old, path, budget)
    if isinstance(value, dict):
        before = old if isinstance(old, dict) else {}
        others = schema.get("additionalProperties")
        for name, part in value.items():
            inner = schema.get("properties", {}).get(name, others)
            if isinstance(inner, dict) and part is not None:
                at = f"{path}.{name}" if path else name
                yield from _check(part, before.get(name), inner, at, budget)
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for index, item in enumerate(value):
            # The items of a list are not compared with the old ones.
            yield from _check(item, None, schema["items"], f"{path}[{index}]", budget)


def _evaluate(rule: Object, value: Json, old: Json, path: str, budget: Budget) -> Iterator[Cause]:
    program = compile_rule(rule["rule"])
    if "oldSelf" in program.variables_used and old is None:
        return
    variables = {"self": value, "oldSelf": old}
    at = path + rule.get("fieldPath", "") if path else rule.get("fieldPath", "").lstrip(".")
    try:
        if program.evaluate(variables, budget):
            return
    except CelError as error:
        yield _wrong(at, value, f"rule: {rule['rule']}: {error}")
        return
    yield _cause(rule, at, value, _message(rule, variables, budget))


def _message(rule: Object, variables: Object, budget: Budget) -> str:
    if rule.get("messageExpression"):
        try:
            program = compile_rule(rule["messageExpression"], wants="string")
            return str(program.evaluate(variables, budget))
        except CelError:
            pass  # then the plain message says it
    return rule.get("message") or f"failed rule: {rule['rule']}"


def _cause(rule: Object, path: str, value: Json, message: str) -> Cause:
    reason = rule.get("reason", "FieldValueInvalid")
    if reason in REASONS:
        return Cause(reason, f"{REASONS[reason]}: {message}", path)
    return _wrong(path, value, message)


def _wrong(path: str, value: Json, message: str) -> Cause:
    """Quote a scalar, but no object or list."""
    if isinstance(value, dict | list):
        return Cause("FieldValueInvalid", f"Invalid value: {message}", path)
    return wrong(path, value, message)


@lru_cache(maxsize=1024)
def compile_rule(expression: str, *, wants: str = "bool") -> Program:
    """Compile a rule, or a message expression.

    Raises:
        CelCompileError: If it cannot be.
    """
    return compile_expression(expression, _environment(), wants=wants)


@lru_cache(maxsize=1)
def _environment() -> Environment:
    return base_environment().extend(variables={"self": DYN, "oldSelf": DYN})


def check_expressions(schema: Object, path: str) -> Iterator[Cause]:
    """Compile the rules of a schema that is to be stored."""
    for index, rule in enumerate(schema.get(RULES, ())):
        try:
            compile_rule(rule.get("rule", ""))
        except CelCompileError as error:
            at = f"{path}.{RULES}[{index}].rule"
            yield wrong(at, rule.get("rule", ""), f"compilation failed: {error}")
    for name, part in schema.get("properties", {}).items():
        yield from check_expressions(part, f"{path}.properties[{name}]")
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            yield from check_expressions(schema[name], f"{path}.{name}")
