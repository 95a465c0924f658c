"""Check the names of fields against the types of Kubernetes' own kinds.

An API server does the same for the status of a policy: it takes the objects a policy concerns for
values of their kind, and report fields that do not exist. When a policy is evaluated, objects
are used as they are, regardless of findings here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from policyd.api.kinds import FieldType, fields, resource
from policyd.cel.check.checker import check_leniently
from policyd.cel.environment import Environment, Fields
from policyd.cel.errors import CelCompileError, Issue
from policyd.cel.recursion import deep_recursion
from policyd.cel.syntax.parser import parse
from policyd.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    Type,
    list_of,
    map_of,
)

_SCALARS: Final[Mapping[str, Type]] = {
    "string": STRING,
    "int32": INT,
    "int64": INT,
    "bool": BOOL,
    "double": DOUBLE,
    "bytes": BYTES,
    "time": TIMESTAMP,
    "microtime": TIMESTAMP,
    "quantity": DYN,
    "intstr": DYN,
    "any": DYN,
}
# The fields of every object besides those of its type.
_OF_EACH: Final[Fields] = {"apiVersion": STRING, "kind": STRING}
_OBJECTS: Final = ("object", "oldObject")


@dataclass(frozen=True, slots=True)
class BuiltinKind:
    """A built-in kind, and the name of its type in the table."""

    group: str
    version: str
    name: str
    type_name: str

    def __str__(self) -> str:
        version = f"{self.group}/{self.version}" if self.group else self.version
        return f"{version}, Kind={self.name}"


def kind_of(group: str, version: str, plural: str) -> BuiltinKind | None:
    """Return the kind of a resource, or of its subresource; None if it is unknown."""
    plural, _, part = plural.partition("/")
    found = resource(group, version, plural)
    if found is None:
        return None
    if not part:
        return BuiltinKind(group, version, found.kind, found.type_name)
    taken = found.subresources.get(part)
    if taken is None or taken.type_name is None:
        return None
    return BuiltinKind(taken.group, taken.version, taken.kind, taken.type_name)


@lru_cache(maxsize=64)
def structs_of(type_name: str) -> Mapping[str, Fields]:
    """Return the types of fields of a struct, and of all structs within it."""
    found: dict[str, Fields] = {}
    waiting = [type_name]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        kinds = fields(name)
        found[name] = {field: _type_of(kind) for field, kind in kinds.items()}
        waiting += [struct for kind in kinds.values() if (struct := _struct_in(kind)) is not None]
    found[type_name] = {**_OF_EACH, **found[type_name]}
    return found


def _type_of(field: FieldType) -> Type:
    if field.shape == "struct" and field.struct is not None:
        return Type(field.struct)
    if field.element is None:
        return _SCALARS[field.scalar or "any"]
    inner = _type_of(field.element)
    return list_of(inner) if field.shape == "list" else map_of(STRING, inner)


def _struct_in(field: FieldType) -> str | None:
    while field.element is not None:
        field = field.element
    return field.struct


def typed_environment(environment: Environment, kind: BuiltinKind) -> Environment:
    """Return an environment whose objects are of a kind."""
    known = {name: Type(kind.type_name) for name in _OBJECTS if name in environment.variables}
    return environment.extend(variables=known, structs=structs_of(kind.type_name))


class TypeCheck:
    """Checks the expressions of one policy for one kind; variables in their order first."""

    def __init__(self, kind: BuiltinKind) -> None:
        """Begin with no variable known."""
        self.kind = kind
        self._variables: dict[str, Type] = {}

    def variable(self, name: str, source: str, environment: Environment) -> tuple[Issue, ...]:
        """Check a variable's expression, and remember its type."""
        result, issues = self._check(source, environment)
        self._variables[name] = result
        return issues

    def expression(self, source: str, environment: Environment) -> tuple[Issue, ...]:
        """Check an expression, and return the issues for the kind alone.

        Args:
            source: The text.
            environment: The variables and functions, with objects of any kind. An error
                there is one for each kind, and reported elsewhere.
        """
        return self._check(source, environment)[1]

    def _check(self, source: str, environment: Environment) -> tuple[Type, tuple[Issue, ...]]:
        typed = typed_environment(environment, self.kind)
        if "kubernetes.variables" in typed.structs:
            typed = replace(
                typed, structs={**typed.structs, "kubernetes.variables": dict(self._variables)}
            )
        try:
            tree = parse(source, macros=environment.macros)
        except CelCompileError:
            return DYN, ()
        with deep_recursion():
            checked = check_leniently(tree, source, typed)
            anyway = check_leniently(tree, source, environment) if checked.issues else checked
        known = {_identity(issue) for issue in anyway.issues} if checked.issues else set()
        found = tuple(issue for issue in checked.issues if _identity(issue) not in known)
        return (DYN if checked.issues else checked.result), found


def _identity(issue: Issue) -> tuple[int, int, str]:
    return issue.line, issue.column, issue.message
