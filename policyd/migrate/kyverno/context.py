"""Write the `context` of a rule as named variables."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from policyd.api.meta import Json
from policyd.migrate.cel_values import NO_LITERAL, Untranslatable, Value, literal
from policyd.migrate.jmespath import value_of
from policyd.migrate.kyverno.scopes import Scope

_MOST: Final = 200
_OUTSIDE: Final = {
    "configMap": "a ConfigMap",
    "apiCall": "an answer of the API server or a service",
    "imageRegistry": "the registry of an image",
    "globalReference": "a GlobalContextEntry",
}


@dataclass(frozen=True)
class Named:
    """A variable of a policy."""

    name: str
    expression: str


def variables_of(context: Json, scope: Scope) -> tuple[Scope, list[Named]]:
    """Return what expressions see with the context of a rule, and its variables.

    Raises:
        Untranslatable: If an entry has no counterpart in CEL.
    """
    made: list[Named] = []
    for name, value in _entries(context, lambda: scope):
        scope = _with(scope, name, value, made)
    return scope, made


def _with(scope: Scope, name: str, value: Value, made: list[Named]) -> Scope:
    called = _identifier(name)
    text = value.text
    if value.needs:
        default = {"string": "''", "list": "[]", "map": "{}", "number": "0", "bool": "false"}
        text = value.otherwise(default.get(value.kind, "''"))
    made.append(Named(called, text))
    kept = replace(
        value, text=f"variables.{called}", needs=(), itself=False, loose=False, keys_of=None,
        condition=None, literal=NO_LITERAL,
    )
    return scope.with_roots(**{name: kept})


def inline_variables(context: Json, scope: Scope) -> Scope:
    """Return what expressions see with the context of a `foreach`, whose values stand in them.

    Raises:
        Untranslatable: If an entry has no counterpart in CEL.
    """
    holder = [scope]
    for name, value in _entries(context, lambda: holder[0]):
        holder[0] = holder[0].with_roots(**{name: value})
    return holder[0]


def _entries(context: Json, scope: Any) -> Iterator[tuple[str, Value]]:  # noqa: ANN401 - a function
    if not context:
        return
    if not isinstance(context, list) or len(context) > _MOST:
        raise Untranslatable("`context` is not a list of variables")
    for entry in context:
        if not isinstance(entry, Mapping) or not entry.get("name"):
            raise Untranslatable("an entry of `context` has no name")
        name = str(entry["name"])
        outside = next((kind for kind in _OUTSIDE if kind in entry), None)
        if outside is not None:
            raise Untranslatable(
                f"the variable `{name}` is {_OUTSIDE[outside]}, which is not converted yet"
            )
        yield name, _variable(name, entry.get("variable"), scope())


def _variable(name: str, given: Json, scope: Scope) -> Value:
    if not isinstance(given, Mapping):
        raise Untranslatable(f"the variable `{name}` has no value")
    value = None
    if "value" in given:
        value = scope.value(given["value"])
    if given.get("jmesPath"):
        inner = str(given["jmesPath"])
        value = value_of(inner, scope.roots, scope=value)
    if value is None:
        raise Untranslatable(f"the variable `{name}` has neither `value` nor `jmesPath`")
    if "default" in given and value.needs:
        default = literal(given["default"])
        text = value.otherwise(default.text)
        value = replace(value, text=text, needs=(), itself=False, kind=default.kind)
    return value


def _identifier(name: str) -> str:
    """Return a name as CEL permits it: `pod-count` is podCount."""
    first, *others = re.split(r"[^A-Za-z0-9]+", name.strip("_"))
    called = first + "".join(word[:1].upper() + word[1:] for word in others)
    return called if called[:1].isalpha() else f"v{called}"
