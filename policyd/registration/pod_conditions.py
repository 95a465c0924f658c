"""Conditions on pods that the API server can ask: it has checked the types of their fields itself.

A condition on `pod` is handed over for those of Kubernetes' own kinds that have one template, as it
is written, with `pod` as the optional pod or template. It is handed over only if it cannot fail,
which follows from the types of the fields in it. Objects of all other kinds are sent.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from policyd.api.kinds import FieldType, fields
from policyd.cel.syntax import ast

_RESOURCE: Final = "request.resource.resource"

_HELD_BY: Final = {
    "Pod": "/pods",
    "PodTemplate": "/podtemplates",
    "ReplicationController": "/replicationcontrollers",
    "CronJob": "batch/cronjobs",
    "Job": "batch/jobs",
    "DaemonSet": "apps/daemonsets",
    "Deployment": "apps/deployments",
    "ReplicaSet": "apps/replicasets",
    "StatefulSet": "apps/statefulsets",
}
"""The kinds that have one pod or template, with their groups and resources."""

PLAIN_KINDS: Final = frozenset(_HELD_BY)
"""Kinds whose pods the API server itself can look at."""

WHOLE: Final = frozenset(("", "ephemeralcontainers", "resize", "status"))
"""Subresources whose requests carry the whole object."""


class _Optional(NamedTuple):
    """The type of a value that may be missing."""

    of: FieldType


_Type = FieldType | _Optional | None
"""The type of an expression; None of one that may fail."""

_Scope = Mapping[str, _Type]
"""The types of names."""

_BOOL: Final = FieldType(shape="scalar", scalar="bool")
_INT: Final = FieldType(shape="scalar", scalar="int64")
_STRING: Final = FieldType(shape="scalar", scalar="string")
_POD: Final = _Optional(FieldType(shape="struct", struct="core/v1.PodTemplateSpec"))

_SCALARS: Final = {bool: _BOOL, int: _INT, str: _STRING}
_INTEGERS: Final = frozenset({"int32", "int64"})
_TEXTS: Final = frozenset({"startsWith", "endsWith", "contains"})
_ORDERS: Final = frozenset({"_<_", "_<=_", "_>_", "_>=_"})
_LOOPS: Final = frozenset({"all", "exists", "exists_one", "filter"})


def of_pod(text: str) -> str:
    """Write a condition on `pod` for the API server: true of all objects that it may hold for.

    Args:
        text: CEL with the name `pod`, for a pod that may be missing.
    """
    known = ", ".join(f"'{held}'" for held in sorted(_HELD_BY.values()))
    template = (
        f"{_RESOURCE} == 'pods' ? optional.of(object)"
        f" : {_RESOURCE} == 'cronjobs' ? object.?spec.?jobTemplate.?spec.?template"
        f" : {_RESOURCE} == 'podtemplates' ? object.?template : object.?spec.?template"
    )
    return (
        f"!((request.resource.group + '/' + {_RESOURCE}) in [{known}])"
        f" || [{template}].exists(pod, {text}\n)"
    )


def is_sure_of_pods(node: ast.ExpressionNode) -> bool:
    """Tell whether an expression on `pod` alone is true or false of every pod, and never fails."""
    return _is_bool(_type(node, {"pod": _POD}))


def _type(node: ast.ExpressionNode, scope: _Scope) -> _Type:
    judge = _JUDGES.get(type(node))
    return judge(node, scope) if judge else None


def _of_name(node: ast.Identifier, scope: _Scope) -> _Type:
    return None if node.absolute else scope.get(node.name)


def _of_field(node: ast.Select, scope: _Scope) -> _Type:
    found = _field(_held(_type(node.operand, scope)), node.field) if node.optional else None
    return None if found is None else _Optional(found)


def _of_item(node: ast.Index, scope: _Scope) -> _Type:
    held = _held(_type(node.operand, scope))
    named = isinstance(node.index, ast.Literal) and isinstance(node.index.value, str)
    if not node.optional or not named or held is None or held.shape != "map":
        return None
    return _Optional(held.element) if held.element else None


def _of_presence(node: ast.Has, scope: _Scope) -> _Type:
    held = _type(node.operand, scope)
    return _BOOL if isinstance(held, FieldType) and _field(held, node.field) else None


def _of_logic(node: ast.Logic, scope: _Scope) -> _Type:
    return _BOOL if all(_is_bool(_type(each, scope)) for each in node.operands) else None


def _of_choice(node: ast.Conditional, scope: _Scope) -> _Type:
    then, otherwise = _type(node.then, scope), _type(node.otherwise, scope)
    return then if _is_bool(_type(node.condition, scope)) and _agree(then, otherwise) else None


def _of_list(node: ast.ListLiteral, scope: _Scope) -> _Type:
    elements = [_type(each, scope) for each in node.elements]
    if not elements:
        return FieldType(shape="list")
    first = elements[0]
    if node.optionals or not isinstance(first, FieldType):
        return None
    alike = all(_agree(first, each) for each in elements)
    return FieldType(shape="list", element=first) if alike else None


def _of_loop(node: ast.Comprehension, scope: _Scope) -> _Type:
    """Return the type of a loop over the items of a list, or the keys of a map."""
    held = _type(node.range, scope)
    if node.kind not in _LOOPS or node.variables[1:] or not isinstance(held, FieldType):
        return None
    item = _STRING if held.shape == "map" else held.element
    result = _type(node.result, {**scope, node.variables[0]: item})
    if not _is_many(held) or not _is_bool(result):
        return None
    return FieldType(shape="list", element=item) if node.kind == "filter" else _BOOL


def _of_call(node: ast.Call, scope: _Scope) -> _Type:
    given = [
        _type(each, scope) for each in ((node.target,) if node.target else ()) + node.arguments
    ]
    return None if None in given or not given else _call(node.function, given)


_JUDGES: Final[Mapping[type[ast.ExpressionNode], Callable[[Any, _Scope], _Type]]] = {
    ast.Literal: lambda node, _scope: _SCALARS.get(type(node.value)),
    ast.Identifier: _of_name,
    ast.Select: _of_field,
    ast.Index: _of_item,
    ast.Has: _of_presence,
    ast.Logic: _of_logic,
    ast.Conditional: _of_choice,
    ast.ListLiteral: _of_list,
    ast.MapLiteral: lambda node, _scope: None if node.entries else FieldType(shape="map"),
    ast.Comprehension: _of_loop,
    ast.Call: _of_call,
}
"""What returns the type of each kind of node."""


def _held(value: _Type) -> FieldType | None:
    return value.of if isinstance(value, _Optional) else value


def _field(held: FieldType | None, name: str) -> FieldType | None:
    return fields(held.struct).get(name) if held and held.struct else None


def _call(function: str, given: list[_Type]) -> _Type:
    """Return the type of a call of a function, a method or an operator."""
    first, last = given[0], given[-1]
    if function == "orValue":
        return _filled(first, last)
    if not all(isinstance(each, FieldType) for each in given):
        return None
    if function == "_+_":
        return _sum(first, last)
    if function == "size":
        return _INT if _is_many(first) or _scalar(first) == "string" else None
    return _BOOL if _is_test(function, given) else None


def _is_test(function: str, given: list[_Type]) -> bool:
    """Tell whether a call is true or false of any values of these types."""
    if function in {"_==_", "_!=_"}:
        return True
    if function == "!_":
        return _is_bool(given[0])
    if function == "@in":
        return _is_many(given[-1])
    scalars = {_scalar(each) for each in given}
    if function in _TEXTS:
        return scalars == {"string"}
    return function in _ORDERS and scalars <= _INTEGERS


def _is_many(held: _Type) -> bool:
    return isinstance(held, FieldType) and held.shape in {"list", "map"}


def _sum(one: _Type, other: _Type) -> _Type:
    if not isinstance(one, FieldType) or not _agree(one, other):
        return None
    if one.shape != "list":
        return one if one.scalar == "string" else None
    return one if one.element else other


def _filled(held: _Type, default: _Type) -> _Type:
    fits = isinstance(held, _Optional) and _agree(held.of, default)
    return held.of if isinstance(held, _Optional) and fits else None


def _agree(one: _Type, other: _Type) -> bool:
    """Tell whether two types are the same; of an empty list or map, any items are."""
    if not isinstance(one, FieldType) or not isinstance(other, FieldType):
        return one is not None and one == other
    if one.shape != other.shape or one.struct != other.struct:
        return False
    if one.shape == "scalar":
        return _scalar(one) == _scalar(other) or {one.scalar, other.scalar} <= _INTEGERS
    return not one.element or not other.element or _agree(one.element, other.element)


def _scalar(held: _Type) -> str | None:
    return held.scalar if isinstance(held, FieldType) else None


def _is_bool(held: _Type) -> bool:
    return _scalar(held) == "bool"
