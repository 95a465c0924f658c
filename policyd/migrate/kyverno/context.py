"""Write the `context` of a rule as named variables."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from policyd.api.kinds import resource
from policyd.api.meta import Json
from policyd.cel.syntax.literals import text_literal
from policyd.migrate.cel_values import (
    IDENTIFIER,
    NO_LITERAL,
    CelTerm,
    OutsideError,
    Untranslatable,
    value_of_optional,
)
from policyd.migrate.kyverno.scopes import ExpressionScope

_MOST: Final = 200
_OUTSIDE: Final = ("configMap", "apiCall", "imageRegistry", "globalReference")
_KYVERNOS: Final = (
    *("request", "images", "element", "elementIndex", "target", "items"),
    *("serviceAccountName", "serviceAccountNamespace"),
)
"""Variables that Kyverno has itself."""
_API_PATH: Final = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/(?P<version>[^/]+)"
    r"(?:/namespaces/(?P<namespace>[^/]+))?/(?P<plural>[^/]+)(?:/(?P<name>[^/]+))?/?"
)


@dataclass(frozen=True)
class Named:
    """A variable of a policy."""

    name: str
    expression: str


def variables_of(context: Json, scope: ExpressionScope) -> tuple[ExpressionScope, list[Named]]:
    """Return what expressions see with the context of a rule, and its variables.

    Raises:
        Untranslatable: If an entry has no counterpart in CEL.
    """
    made: list[Named] = []
    holder = [scope]
    for name, value in _entries(context, lambda: holder[0]):
        holder[0] = _with(holder[0], name, value, made)
    return holder[0], made


def _with(scope: ExpressionScope, name: str, value: CelTerm, made: list[Named]) -> ExpressionScope:
    called, number = _identifier(name), 2
    while called in [each.name for each in made]:  # it hides the one of its name from here on
        called, number = f"{_identifier(name)}{number}", number + 1
    text = value.text
    if value.needs:
        default = {"string": "''", "list": "[]", "map": "{}", "number": "0", "bool": "false"}
        text = value.otherwise(default.get(value.kind, "''"))
    made.append(Named(called, text))
    kept = replace(
        value,
        text=f"variables.{called}",
        needs=(),
        itself=False,
        loose=False,
        keys_of=None,
        condition=None,
        literal=NO_LITERAL,
    )
    return scope.with_roots(**{name: kept})


def inline_variables(context: Json, scope: ExpressionScope) -> ExpressionScope:
    """Return what expressions see with the context of a `foreach`, whose values stand in them.

    Raises:
        Untranslatable: If an entry has no counterpart in CEL.
    """
    holder = [scope]
    for name, value in _entries(context, lambda: holder[0]):
        holder[0] = holder[0].with_roots(**{name: value})
    return holder[0]


def _entries(context: Json, scope: Any) -> Iterator[tuple[str, CelTerm]]:  # noqa: ANN401 - a function
    if not context:
        return
    if not isinstance(context, list) or len(context) > _MOST:
        raise Untranslatable("`context` is not a list of variables")
    for entry in context:
        if not isinstance(entry, Mapping) or not entry.get("name"):
            raise Untranslatable("an entry of `context` has no name")
        name = str(entry["name"])
        if name in _KYVERNOS:
            raise Untranslatable(f"the variable `{name}` hides one of Kyverno")
        outside = next((kind for kind in _OUTSIDE if kind in entry), None)
        try:
            if outside is None:
                yield name, _variable(name, entry.get("variable"), scope())
            else:
                yield name, _from_outside(name, outside, entry[outside], scope())
        except Untranslatable as error:
            raise _in_a_circle(name, context, error) or error from error


def _in_a_circle(name: str, context: list[Any], error: Untranslatable) -> Untranslatable | None:
    """Say that a variable needs one that is not known before it."""
    for entry in context:
        other = str(entry.get("name")) if isinstance(entry, Mapping) else ""
        if error.reason == f"the variable {other} is not known here":
            which = "itself" if other == name else f"`{other}`, which comes after it"
            return Untranslatable(f"the variable `{name}` needs {which}")
    return None


def _from_outside(name: str, source: str, given: Json, scope: ExpressionScope) -> CelTerm:
    """Return the value of a variable that is read from elsewhere."""
    if not isinstance(given, Mapping):
        raise Untranslatable(f"the variable `{name}` has no value")
    if not scope.kyverno:
        raise OutsideError(f"the variable `{name}` is read from outside of the request")
    if source == "configMap":
        return _config_map(given, scope)
    if source == "imageRegistry":
        return _image(name, given, scope)
    if source == "globalReference":
        found = f"globalContext.Get({text_literal(str(given.get('name', '')))}, '')"
        return _selected(given, CelTerm(text=found), scope)
    return _api_call(name, given, scope)


_CONFIGURATION: Final = re.compile(r"\bconfigData\b")
"""What Kyverno's CEL calls `config`."""


def _image(name: str, given: Mapping[str, Any], scope: ExpressionScope) -> CelTerm:
    """Return the data of an image in a registry."""
    if not given.get("reference"):
        raise Untranslatable(f"the variable `{name}` has no `reference` of an image")
    if given.get("imageRegistryCredentials"):
        raise Untranslatable(
            f"the variable `{name}` has credentials of its own: give them to the webhooks with"
            " `--registry-credentials`"
        )
    found = CelTerm(text=f"image.GetMetadata({_text(scope, given['reference'])})", kind="map")
    asked = _CONFIGURATION.sub("config", str(given.get("jmesPath") or ""))
    return scope.translated(asked, found) if asked else found


def _config_map(given: Mapping[str, Any], scope: ExpressionScope) -> CelTerm:
    places = [_text(scope, given.get(field) or "default") for field in ("namespace", "name")]
    found = f"resource.Get('v1', 'configmaps', {', '.join(places)})"
    shapes = frozenset({("struct", "core/v1.ConfigMap")})
    return CelTerm(text=found, kind="map", shapes=shapes)


def _text(scope: ExpressionScope, given: Json) -> str:
    value = scope.value(str(given))
    return value.otherwise("''") if value.needs else value.text


def _api_call(name: str, given: Mapping[str, Any], scope: ExpressionScope) -> CelTerm:
    method = given.get("method", "GET")
    if "service" in given or method not in ("GET", "POST") or not given.get("urlPath"):
        raise Untranslatable(
            f"the variable `{name}` calls a service: write it with `http.Get` or `http.Post`"
        )
    path = str(given["urlPath"])
    variables = re.findall(r"\{\{.*?\}\}", path)
    plain = re.sub(r"\{\{.*?\}\}", "\ue000", path)
    if plain.rstrip("/").endswith("/namespaces/\ue000") or re.fullmatch(
        r"/api/v1/namespaces/[^/]+", plain
    ):
        parts: dict[str, str | None] = {
            "group": None,
            "version": "v1",
            "namespace": None,
            "plural": "namespaces",
            "name": plain.rpartition("/")[2],
        }
    else:
        match = _API_PATH.fullmatch(plain)
        if match is None:
            raise Untranslatable(f"the variable `{name}` calls `{path}`, which is not a resource")
        parts = match.groupdict()
    waiting = iter(variables)
    shown = {
        key: _text(scope, part.replace("\ue000", next(waiting)))
        if part and "\ue000" in part
        else text_literal(part or "")
        for key, part in parts.items()
    }
    version = f"{parts['group']}/{parts['version']}" if parts["group"] else str(parts["version"])
    where = f"{text_literal(version)}, {shown['plural']}, {shown['namespace']}"
    if method == "POST":
        sent = scope.value({each["key"]: each.get("value") for each in given.get("data") or ()})
        place = where if parts["namespace"] else where.rpartition(", ")[0]
        found = CelTerm(text=f"resource.Post({place}, {sent.text})", kind="map")
    elif parts["name"]:
        found = CelTerm(text=f"resource.Get({where}, {shown['name']})", kind="map")
    else:
        found = CelTerm(text=f"resource.List({where})", kind="map")
        scope = replace(scope, roots={**scope.roots, "items": _items(found, parts)})
        if str(given.get("jmesPath", "")).startswith("items"):
            return scope.asked(str(given["jmesPath"]))
    return _selected(given, found, scope)


def _items(of: CelTerm, parts: Mapping[str, str | None]) -> CelTerm:
    """Return the items of a list of the API server, which always has them."""
    group, version = parts["group"] or "", str(parts["version"])
    built_in = resource(group, version, str(parts["plural"]))
    shapes = {("list", ("struct", built_in.type_name))} if built_in else set()
    return CelTerm(
        text=f"{of.text}.items", kind="list", element="map", name="item", shapes=frozenset(shapes)
    )


def _selected(given: Mapping[str, Any], found: CelTerm, scope: ExpressionScope) -> CelTerm:
    if not given.get("jmesPath"):
        return found
    return scope.translated(str(given["jmesPath"]), found)


def _variable(name: str, given: Json, scope: ExpressionScope) -> CelTerm:
    if not isinstance(given, Mapping):
        raise Untranslatable(f"the variable `{name}` has no value")
    value = None
    if "value" in given:
        value = scope.value(given["value"])
    if given.get("jmesPath"):
        inner = str(given["jmesPath"])
        value = scope.translated(inner, value)
    if value is None:
        raise Untranslatable(f"the variable `{name}` has neither `value` nor `jmesPath`")
    if "default" in given and value.needs:
        default = scope.value(given["default"])
        if default.needs:
            optional = f"{value.optional()}.or({default.optional()})"
            return value_of_optional(optional, kind=default.kind)
        text = value.otherwise(default.text)
        value = replace(value, text=text, needs=(), itself=False, kind=default.kind)
    return value


def _identifier(name: str) -> str:
    """Return a name as CEL permits it: `pod-count` is podCount."""
    first, *others = re.split(r"\W+", name)
    called = first + "".join(word[:1].upper() + word[1:] for word in others)
    return called if IDENTIFIER.fullmatch(called) else f"v{called}"
