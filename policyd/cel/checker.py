"""Check an expression against its environment: names, types, overloads.

The result says, for every node, its type and what its name refers to. Everything wrong is reported,
not only the first thing; what cannot be typed counts as dyn from there on.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from policyd.cel import ast, types
from policyd.cel.environment import Environment
from policyd.cel.errors import CelCompileError, Issue, issue_at
from policyd.cel.functions import Overload
from policyd.cel.types import BOOL, DYN, ERROR, NULL, Type, is_dyn, list_of, map_of, optional_of
from policyd.cel.unify import Substitution, most_general
from policyd.cel.values import UInt
from policyd.errors import did_you_mean


@dataclass(frozen=True, slots=True)
class VariableReference:
    """A name that is a variable of the environment; `fields` of it are selected after that."""

    name: str
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TypeReference:
    """A name that is a type."""

    name: str
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FunctionReference:
    """A call of the overloads that fit; a namespace before the name is no receiver."""

    overloads: tuple[Overload, ...]
    has_receiver: bool


Reference = VariableReference | TypeReference | FunctionReference


@dataclass(slots=True)
class Checked:
    """A tree with the type of each node, and what its names refer to.

    A name without a reference is a local variable, or unknown; `unknown` says which.
    """

    tree: ast.Node
    types: dict[ast.Node, Type] = field(default_factory=dict)
    references: dict[ast.Node, Reference] = field(default_factory=dict)
    unknown: dict[ast.Node, str] = field(default_factory=dict)
    issues: list[Issue] = field(default_factory=list)
    result: Type = DYN


TYPE_NAMES: Final = {
    **{kind.name: kind for kind in (types.BOOL, types.INT, types.UINT, types.DOUBLE)},
    **{kind.name: kind for kind in (types.STRING, types.BYTES, types.NULL)},
    **{kind.name: kind for kind in (types.TIMESTAMP, types.DURATION)},
    "list": list_of(DYN),
    "map": map_of(DYN, DYN),
    "type": types.ANY_TYPE,
    "optional_type": optional_of(DYN),
    "net.IP": Type("net.IP"),
    "net.CIDR": Type("net.CIDR"),
}
_LITERALS: Final[dict[type, Type]] = {
    bool: types.BOOL,
    int: types.INT,
    UInt: types.UINT,
    float: types.DOUBLE,
    str: types.STRING,
    bytes: types.BYTES,
    type(None): NULL,
}


def check(tree: ast.Node, source: str, environment: Environment) -> Checked:
    """Check a tree.

    Raises:
        CelCompileError: If anything is wrong with it.
    """
    checked = check_leniently(tree, source, environment)
    if checked.issues:
        raise CelCompileError(checked.issues)
    return checked


def check_leniently(tree: ast.Node, source: str, environment: Environment) -> Checked:
    """Check a tree, and leave the decision about its issues to the caller."""
    checker = _Checker(source, environment, Checked(tree))
    checker.check(tree)
    return checker.finish()


class _Checker:
    def __init__(self, source: str, environment: Environment, checked: Checked) -> None:
        self.source = source
        self.environment = environment
        self.checked = checked
        self.found = Substitution()
        self.scopes: list[tuple[str, Type]] = []

    def finish(self) -> Checked:
        checked = self.checked
        resolve = self.found.resolve
        checked.types = {n: resolve(t, default=DYN) for n, t in checked.types.items()}
        checked.result = checked.types[checked.tree]
        checked.issues.sort(key=lambda issue: (issue.line, issue.column))
        return checked

    def check(self, node: ast.Node) -> Type:
        kind: Type = _CHECKS[type(node)](self, node)
        self.checked.types[node] = kind
        return kind

    def issue(self, node: ast.Node, message: str, hint: str | None = None) -> Type:
        self.checked.issues.append(issue_at(self.source, node.position, message, hint))
        return ERROR

    def shown(self, kind: Type) -> str:
        return str(self.found.resolve(kind, default=DYN))

    def expect(self, node: ast.Node, wanted: Type) -> None:
        actual = self.check(node)
        if not self.found.assignable(actual, wanted):
            found = f"found '{self.shown(actual)}'"
            self.issue(node, f"expected type '{self.shown(wanted)}' but {found}")

    # --- names

    def literal(self, node: ast.Literal) -> Type:
        return _LITERALS[type(node.value)]

    def identifier(self, node: ast.Identifier) -> Type:
        if not node.absolute:
            local = self.local(node.name)
            if local is not None:
                return local
        return self.resolved(node, (node.name,), absolute=node.absolute) or self.undeclared(
            node, node.name
        )

    def local(self, name: str) -> Type | None:
        return next((kind for known, kind in reversed(self.scopes) if known == name), None)

    def resolved(self, node: ast.Node, parts: tuple[str, ...], *, absolute: bool) -> Type | None:
        """Find the longest declared name that `parts` begin with; select the rest from it."""
        environment = self.environment
        for length in range(len(parts), 0, -1):
            name = ".".join(parts[:length])
            rest = parts[length:]
            for candidate in (name,) if absolute else environment.candidates(name):
                if candidate in environment.variables:
                    self.checked.references[node] = VariableReference(candidate, rest)
                    return self.selected(node, environment.variables[candidate], rest)
                if candidate in TYPE_NAMES:
                    self.checked.references[node] = TypeReference(candidate, rest)
                    return self.selected(node, types.type_of(TYPE_NAMES[candidate]), rest)
        return None

    def selected(self, node: ast.Node, kind: Type, fields: tuple[str, ...]) -> Type:
        for name in fields:
            kind = self.field_of(node, kind, name)
        return kind

    def undeclared(self, node: ast.Node, name: str) -> Type:
        message = f"undeclared reference to '{name}' (in container '{self.environment.container}')"
        self.checked.unknown[node] = message
        return self.issue(node, message, self.hint(name))

    def hint(self, name: str) -> str | None:
        since = self.environment.unavailable.get(name)
        if since is not None:
            return f"`{name}` needs Kubernetes {since[0]}.{since[1]}"
        known = {known for known, _ in self.scopes}
        known.update(self.environment.variables, self.environment.functions)
        return did_you_mean(name, (word for word in known if word[:1].isalpha()))

    # --- fields and elements

    def select(self, node: ast.Select) -> Type:
        parts = ast.qualified_name(node)
        if parts is not None and not node.optional:
            absolute = _is_absolute(node)
            if absolute or self.local(parts[0]) is None:
                kind = self.resolved(node, parts, absolute=absolute)
                return kind or self.undeclared(_root(node), parts[0])
        operand = self.check(node.operand)
        if node.optional:
            operand = _unwrapped(self.found.resolve(operand))
            return optional_of(_flat(self.field_of(node, operand, node.field)))
        return self.field_of(node, operand, node.field)

    def field_of(self, node: ast.Node, operand: Type, name: str) -> Type:
        operand = self.found.resolve(operand)
        if operand.name == "optional_type":
            return optional_of(_flat(self.field_of(node, operand.parameters[0], name)))
        if operand.name == "map":
            return operand.parameters[1]
        if is_dyn(operand):
            return DYN
        if operand.variable:
            # Nothing may be concluded from a selection later, as cel-go says.
            self.found.assignable(operand, DYN)
            return DYN
        return self.struct_field(node, operand, name)

    def struct_field(self, node: ast.Node, operand: Type, name: str) -> Type:
        kind = self.environment.field_type(operand.name, name)
        if kind is not None:
            return kind
        fields = self.environment.struct_fields(operand.name)
        if fields is None:
            shown = self.shown(operand)
            return self.issue(node, f"type '{shown}' does not support field selection")
        return self.issue(node, f"undefined field '{name}'", did_you_mean(name, fields))

    def has(self, node: ast.Has) -> Type:
        whole = ast.Select(node.position, node.operand, node.field)
        parts = ast.qualified_name(whole)
        if parts is not None and self.local(parts[0]) is None:
            kind = self.resolved(node, parts, absolute=_is_absolute(whole))
            if kind is not None:
                self.name_operand(node.operand)
                return BOOL
        self.field_of(node, self.check(node.operand), node.field)
        return BOOL

    def name_operand(self, operand: ast.Node) -> None:
        """Resolve what stands before the last field of has(), if it is a value."""
        parts = ast.qualified_name(operand)
        if parts is not None:
            kind = self.resolved(operand, parts, absolute=_is_absolute(operand))
            self.checked.types[operand] = kind or ERROR

    def index(self, node: ast.Index) -> Type:
        operand = self.found.resolve(self.check(node.operand))
        optional = node.optional or operand.name == "optional_type"
        key = self.check(node.index)
        element = self.element_of(node, _unwrapped(operand), key)
        return optional_of(_flat(element)) if optional else element

    def element_of(self, node: ast.Index, operand: Type, key: Type) -> Type:
        if is_dyn(operand):
            return DYN
        element = self.found.fresh()
        wanted = list_of(element)
        if operand.name == "map":
            wanted = map_of(self.found.fresh(), element)
        position = wanted.parameters[0] if operand.name == "map" else types.INT
        if self.found.unify((operand, key), (wanted, position)):
            return self.found.resolve(element)
        function = "_[?_]" if node.optional else "_[_]"
        return self.no_overload(node, function, None, (operand, key))

    # --- calls

    def call(self, node: ast.Call) -> Type:
        name, has_receiver = self.function_name(node)
        overloads = self.environment.functions.get(name or node.function)
        if name is None or overloads is None:
            for part in (*((node.target,) if node.target else ()), *node.arguments):
                self.check(part)
            return self.undeclared(node, node.function)
        target = node.target if has_receiver else None
        receiver = (self.check(target),) if target else ()
        arguments = tuple(self.check(argument) for argument in node.arguments)
        return self.overload(node, overloads, receiver, arguments)

    def function_name(self, node: ast.Call) -> tuple[str | None, bool]:
        """Return the declared name of a function, and whether the target is its receiver."""
        functions = self.environment.functions
        parts = ast.qualified_name(node.target) if node.target else ()
        if parts is not None and not (parts and self.local(parts[0]) is not None):
            qualified = ".".join((*parts, node.function))
            for candidate in self.environment.candidates(qualified):
                if candidate in functions:
                    return candidate, False
        if node.target is not None and node.function in functions:
            return node.function, True
        return None, False

    def overload(
        self,
        node: ast.Call,
        overloads: tuple[Overload, ...],
        receiver: tuple[Type, ...],
        arguments: tuple[Type, ...],
    ) -> Type:
        actual = receiver + arguments
        fitting = []
        result: Type | None = None
        for overload in overloads:
            if overload.member != bool(receiver) or len(overload.parameters) != len(actual):
                continue
            wanted = self.found.instantiate((*overload.parameters, overload.result))
            if not self.found.unify(actual, wanted[:-1]):
                continue
            fitting.append(overload)
            returned = self.found.resolve(wanted[-1])
            result = returned if result in (None, returned) else DYN
        self.checked.references[node] = FunctionReference(tuple(fitting), bool(receiver))
        if result is None:
            self.checked.references[node] = FunctionReference(overloads, bool(receiver))
            return self.no_overload(node, overloads[0].name, receiver, arguments)
        return result

    def no_overload(
        self,
        node: ast.Node,
        function: str,
        receiver: tuple[Type, ...] | None,
        arguments: tuple[Type, ...],
    ) -> Type:
        listed = f"({', '.join(map(self.shown, arguments))})"
        applied = f"{self.shown(receiver[0])}.{listed}" if receiver else listed
        message = f"found no matching overload for '{function}' applied to '{applied}'"
        since = self.environment.unavailable.get(function)
        hint = f"`{function}` needs Kubernetes {since[0]}.{since[1]}" if since else None
        return self.issue(node, message, hint)

    def logic(self, node: ast.Logic) -> Type:
        function = "_&&_" if node.conjunction else "_||_"
        kinds = tuple(self.check(operand) for operand in node.operands)
        for kind in kinds:
            if not self.found.assignable(kind, BOOL):
                return self.no_overload(node, function, None, kinds)
        return BOOL

    def conditional(self, node: ast.Conditional) -> Type:
        kinds = (self.check(node.condition), self.check(node.then), self.check(node.otherwise))
        result = self.found.fresh()
        if not self.found.unify(kinds, (BOOL, result, result)):
            return self.no_overload(node, "_?_:_", None, kinds)
        return self.found.resolve(result)

    # --- literals

    def list_literal(self, node: ast.ListLiteral) -> Type:
        element: Type | None = None
        for place, part in enumerate(node.elements):
            kind = self.check(part)
            if place in node.optionals:
                kind = self.optional_part(part, kind)
            element = self.joined(part, element, kind)
        return list_of(element or self.found.fresh())

    def map_literal(self, node: ast.MapLiteral) -> Type:
        key: Type | None = None
        value: Type | None = None
        for entry in node.entries:
            key = self.joined(entry.key, key, self.check(entry.key))
            kind = self.check(entry.value)
            if entry.optional:
                kind = self.optional_part(entry.value, kind)
            value = self.joined(entry.value, value, kind)
        return map_of(key or self.found.fresh(), value or self.found.fresh())

    def optional_part(self, node: ast.Node, kind: Type) -> Type:
        kind = self.found.resolve(kind)
        if is_dyn(kind):
            return DYN
        inner = self.found.fresh()
        if not self.found.assignable(kind, optional_of(inner)):
            found = f"found '{self.shown(kind)}'"
            return self.issue(node, f"expected type 'optional_type' but {found}")
        return self.found.resolve(inner)

    def joined(self, node: ast.Node, before: Type | None, kind: Type) -> Type:
        if before is None:
            return kind
        if self.found.assignable(before, kind):
            return most_general(self.found.resolve(before), self.found.resolve(kind))
        if self.environment.same_type_literals:
            wanted = f"expected type '{self.shown(before)}'"
            self.issue(node, f"{wanted} but found '{self.shown(kind)}'")
            return before
        return DYN

    def struct_literal(self, node: ast.StructLiteral) -> Type:
        name = self.struct_name(node)
        for entry in node.fields:
            self.struct_entry(entry, name)
        if name is None:
            return self.undeclared(node, node.name)
        self.checked.references[node] = TypeReference(name)
        return Type(name)

    def struct_name(self, node: ast.StructLiteral) -> str | None:
        environment = self.environment
        return next(
            (
                name
                for name in environment.candidates(node.name)
                if name in environment.structs or environment.is_open_struct(name)
            ),
            None,
        )

    def struct_entry(self, entry: ast.Field, struct: str | None) -> None:
        kind = self.check(entry.value)
        if entry.optional:
            kind = self.optional_part(entry.value, kind)
        if struct is None:
            return
        wanted = self.environment.field_type(struct, entry.name)
        if wanted is None:
            fields = self.environment.structs.get(struct, ())
            self.issue(entry, f"undefined field '{entry.name}'", did_you_mean(entry.name, fields))
            return
        if self.environment.is_open_struct(struct):
            wanted = self.nested_struct(f"{struct}.{entry.name}", kind)
        if not self.found.assignable(kind, wanted):
            expected = f"expected type of field '{entry.name}' is '{self.shown(wanted)}'"
            self.issue(entry, f"{expected} but provided type is '{self.shown(kind)}'")

    def nested_struct(self, path: str, kind: Type) -> Type:
        """Return what a field of `Object` takes: a struct must be named by the path to it."""
        kind = self.found.resolve(kind)
        if self.environment.is_open_struct(kind.name):
            return Type(path)
        if kind.name == "list" and self.environment.is_open_struct(kind.parameters[0].name):
            return list_of(Type(path))
        return DYN

    # --- macros

    def comprehension(self, node: ast.Comprehension) -> Type:
        first, second = self.range_of(node.range)
        bound = (second,) if len(node.variables) == 1 else (first, second)
        if len(node.variables) == 1 and self.is_map(node.range):
            bound = (first,)
        scope = list(zip(node.variables, bound, strict=True))
        self.scopes.extend(scope)
        if node.condition is not None:
            self.expect(node.condition, BOOL)
        result = self.comprehended(node, first, second)
        del self.scopes[-len(scope) :]
        return result

    def comprehended(self, node: ast.Comprehension, first: Type, second: Type) -> Type:
        if node.kind in ("all", "exists", "exists_one", "filter"):
            self.expect(node.result, BOOL)
            element = first if self.is_map(node.range) else second
            return list_of(element) if node.kind == "filter" else BOOL
        result = self.check(node.result)
        if node.kind == "transformMap":
            return map_of(first, result)
        if node.kind == "transformMapEntry":
            entry = map_of(self.found.fresh(), self.found.fresh())
            if not self.found.assignable(result, entry):
                self.no_overload(node, "cel.@mapInsert", None, (entry, result))
            return self.found.resolve(entry)
        return list_of(result)

    def is_map(self, node: ast.Node) -> bool:
        return self.found.resolve(self.checked.types[node]).name == "map"

    def range_of(self, node: ast.Node) -> tuple[Type, Type]:
        """Return the types of key and value, or of index and element, of what is looped over."""
        kind = self.found.resolve(self.check(node))
        if kind.name == "map":
            return kind.parameters[0], kind.parameters[1]
        if kind.name == "list":
            return types.INT, kind.parameters[0]
        if is_dyn(kind) or kind.variable:
            self.found.assignable(kind, DYN)
            return DYN, DYN
        wanted = "(must be list, map, or dynamic)"
        message = f"expression of type '{self.shown(kind)}' cannot be range of a comprehension"
        self.issue(node, f"{message} {wanted}")
        return ERROR, ERROR

    def scoped(self, name: str, kind: Type, body: ast.Node) -> Type:
        self.scopes.append((name, kind))
        result = self.check(body)
        self.scopes.pop()
        return result

    def bind(self, node: ast.Bind) -> Type:
        return self.scoped(node.name, self.check(node.value), node.body)

    def optional_map(self, node: ast.OptionalMap) -> Type:
        operand = self.found.resolve(self.check(node.operand))
        if operand.name != "optional_type" and not is_dyn(operand):
            macro = "optFlatMap" if node.flat else "optMap"
            self.no_overload(node, macro, (operand,), (DYN, DYN))
        result = self.found.resolve(self.scoped(node.name, _unwrapped(operand), node.body))
        if not node.flat:
            return optional_of(result)
        inner = self.found.fresh()
        if not self.found.assignable(result, optional_of(inner)):
            found = f"found '{self.shown(result)}'"
            return self.issue(node.body, f"expected type 'optional_type' but {found}")
        return self.found.resolve(optional_of(inner))

    def sort_by(self, node: ast.SortBy) -> Type:
        _, element = self.range_of(node.operand)
        self.scoped(node.name, element, node.key)
        return list_of(element)


_CHECKS: Final[dict[type[ast.Node], Callable[[_Checker, Any], Type]]] = {
    ast.Literal: _Checker.literal,
    ast.Identifier: _Checker.identifier,
    ast.Select: _Checker.select,
    ast.Has: _Checker.has,
    ast.Index: _Checker.index,
    ast.Call: _Checker.call,
    ast.Logic: _Checker.logic,
    ast.Conditional: _Checker.conditional,
    ast.ListLiteral: _Checker.list_literal,
    ast.MapLiteral: _Checker.map_literal,
    ast.StructLiteral: _Checker.struct_literal,
    ast.Comprehension: _Checker.comprehension,
    ast.Bind: _Checker.bind,
    ast.OptionalMap: _Checker.optional_map,
    ast.SortBy: _Checker.sort_by,
}


def _root(node: ast.Node) -> ast.Node:
    while isinstance(node, ast.Select):
        node = node.operand
    return node


def _is_absolute(node: ast.Node) -> bool:
    root = _root(node)
    return isinstance(root, ast.Identifier) and root.absolute


def _unwrapped(kind: Type) -> Type:
    return kind.parameters[0] if kind.name == "optional_type" else kind


def _flat(kind: Type) -> Type:
    return _unwrapped(kind)
