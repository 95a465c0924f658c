"""Check names, fields and elements, and hold the state of a check."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from policyd.cel import types
from policyd.cel.check.checked import CheckedExpression, TypeReference, VariableReference
from policyd.cel.check.unify import Substitution
from policyd.cel.environment import Environment
from policyd.cel.errors import MAX_ISSUES, issue_at
from policyd.cel.syntax import ast
from policyd.cel.types import BOOL, DYN, ERROR, NULL, Type, is_dyn, list_of, map_of, optional_of
from policyd.cel.values import UInt
from policyd.errors import did_you_mean

Check = Callable[["Checker", Any], Type]

_MUTATIONS: Final = "mutations"
_KYVERNO: Final = "Kyverno's policies"
ELSEWHERE: Final = {
    **dict.fromkeys(("Object", "JSONPatch", "jsonpatch", "escapeKey"), _MUTATIONS),
    **dict.fromkeys(("math", "base64", "bind", "hash", "gzip", "x509", "random"), _KYVERNO),
    **dict.fromkeys(("parseImageReference", "parseServiceAccount", "listObjToMap"), _KYVERNO),
    **dict.fromkeys(("globalContext", "image", "sha256", "sha1", "md5"), _KYVERNO),
    **dict.fromkeys(
        ("pod", "workload", "maker", "gpus", "claims", "claimedDevices", "devices"),
        "policyd's own policies",
    ),
    **dict.fromkeys(("queue", "clusterQueue", "cluster"), "policyd's own policies"),
    "authorizer": "validations, mutations and match conditions",
    "variables": "validations, mutations and messages",
}
"""The places where names are declared that are not declared everywhere."""

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


class Checker:
    """The state of one check, and the checks of names."""

    def __init__(
        self,
        source: str,
        environment: Environment,
        checked: CheckedExpression,
        *,
        checks: Mapping[type[ast.ExpressionNode], Check],
    ) -> None:
        """Begin a check; `checks` has the function for each kind of node."""
        self.checks = checks
        self.source = source
        self.environment = environment
        self.checked = checked
        self.found = Substitution()
        self.scopes: list[tuple[str, Type]] = []

    def finish(self) -> CheckedExpression:
        """Return the result, with all types resolved."""
        checked = self.checked
        resolve = self.found.resolve
        checked.types = {n: resolve(t, default=DYN) for n, t in checked.types.items()}
        checked.result = checked.types[checked.tree]
        checked.issues.sort(key=lambda issue: (issue.line, issue.column))
        return checked

    def check(self, node: ast.ExpressionNode) -> Type:
        """Return the type of a node, and remember it; a type that is too large becomes dyn."""
        kind = self.checks[type(node)](self, node)
        if kind.parameters and self.found.is_too_large(kind):
            kind = DYN
        self.checked.types[node] = kind
        return kind

    def issue(self, node: ast.ExpressionNode, message: str, hint: str | None = None) -> Type:
        """Report an issue at a node, whose type is unknown then."""
        if len(self.checked.issues) < MAX_ISSUES:
            self.checked.issues.append(issue_at(self.source, node.position, message, hint))
        return ERROR

    def shown(self, kind: Type) -> str:
        """Write a type as messages do."""
        return str(self.found.resolve(kind, default=DYN))

    def expect(self, node: ast.ExpressionNode, wanted: Type) -> None:
        """Check a node, and report a type that does not fit the one wanted."""
        actual = self.check(node)
        if not self.found.assignable(actual, wanted):
            found = f"found '{self.shown(actual)}'"
            self.issue(node, f"expected type '{self.shown(wanted)}' but {found}")

    # --- names

    def literal(self, node: ast.Literal) -> Type:
        """Return the type of a constant."""
        return _LITERALS[type(node.value)]

    def identifier(self, node: ast.Identifier) -> Type:
        """Return the type of a name."""
        if not node.absolute:
            local = self.local(node.name)
            if local is not None:
                return local
        return self.resolved(node, (node.name,), absolute=node.absolute) or self.undeclared(
            node, node.name
        )

    def local(self, name: str) -> Type | None:
        """Return the type of a variable of a macro; None if there is none."""
        return next((kind for known, kind in reversed(self.scopes) if known == name), None)

    def resolved(
        self, node: ast.ExpressionNode, parts: tuple[str, ...], *, absolute: bool
    ) -> Type | None:
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

    def selected(self, node: ast.ExpressionNode, kind: Type, fields: tuple[str, ...]) -> Type:
        """Return the type of fields selected one after the other."""
        for name in fields:
            kind = self.field_of(node, kind, name)
        return kind

    def undeclared(self, node: ast.ExpressionNode, name: str) -> Type:
        """Report an unknown name."""
        message = f"undeclared reference to '{name}' (in container '{self.environment.container}')"
        self.checked.unknown[node] = message
        return self.issue(node, message, self.hint(name))

    def hint(self, name: str) -> str | None:
        """Suggest a similar name, or the version that has the name."""
        unavailable = self.environment.unavailable
        inside = (since for other, since in unavailable.items() if other.startswith(f"{name}."))
        since = unavailable.get(name) or next(inside, None)
        if since is not None:
            return f"`{name}` needs Kubernetes {since[0]}.{since[1]}"
        if name in ELSEWHERE:
            return f"`{name}` is there in {ELSEWHERE[name]} only"
        if len(self.checked.issues) >= MAX_ISSUES:
            return None  # it is not visible
        known = {known for known, _ in self.scopes}
        known.update(self.environment.variables, self.environment.functions)
        # A method of that name does not help if a variable is meant.
        return did_you_mean(name, (word for word in known - {name} if word[:1].isalpha()))

    # --- fields and elements

    def select(self, node: ast.Select) -> Type:
        """Return the type of a selection, or of a qualified name."""
        parts = ast.qualified_name(node)
        if parts is not None and not node.optional:
            absolute = _is_absolute(node)
            if absolute or self.local(parts[0]) is None:
                kind = self.resolved(node, parts, absolute=absolute)
                return kind or self.undeclared(_root(node), parts[0])
        operand = self.check(node.operand)
        if node.optional:
            operand = unwrapped(self.found.resolve(operand))
            return optional_of(unwrapped(self.field_of(node, operand, node.field)))
        return self.field_of(node, operand, node.field)

    def field_of(self, node: ast.ExpressionNode, operand: Type, name: str) -> Type:
        """Return the type of a field of a value."""
        operand = self.found.resolve(operand)
        if operand.name == "optional_type":
            return optional_of(unwrapped(self.field_of(node, operand.parameters[0], name)))
        if operand.name == "map":
            return operand.parameters[1]
        if is_dyn(operand):
            return DYN
        if operand.variable:
            # Nothing may be concluded from a selection later, as cel-go says.
            self.found.assignable(operand, DYN)
            return DYN
        return self.struct_field(node, operand, name)

    def struct_field(self, node: ast.ExpressionNode, operand: Type, name: str) -> Type:
        """Return the type of a field of a struct; report one it has not."""
        kind = self.environment.field_type(operand.name, name)
        if kind is not None:
            return kind
        fields = self.environment.struct_fields(operand.name)
        if fields is None:
            shown = self.shown(operand)
            return self.issue(node, f"type '{shown}' does not support field selection")
        return self.issue(node, f"undefined field '{name}'", did_you_mean(name, fields))

    def has(self, node: ast.Has) -> Type:
        """Return bool; the field must be one that can be there."""
        whole = ast.Select(node.position, node.operand, node.field)
        parts = ast.qualified_name(whole)
        if parts is not None and self.local(parts[0]) is None:
            kind = self.resolved(node, parts, absolute=_is_absolute(whole))
            if kind is not None:
                self.name_operand(node.operand)
                return BOOL
        self.field_of(node, self.check(node.operand), node.field)
        return BOOL

    def name_operand(self, operand: ast.ExpressionNode) -> None:
        """Resolve the operand of has(), if it is a value."""
        parts = ast.qualified_name(operand)
        if parts is not None:
            kind = self.resolved(operand, parts, absolute=_is_absolute(operand))
            self.checked.types[operand] = kind or ERROR

    def index(self, node: ast.Index) -> Type:
        """Return the type of an element."""
        operand = self.found.resolve(self.check(node.operand))
        optional = node.optional or operand.name == "optional_type"
        key = self.check(node.index)
        held = unwrapped(operand)
        if is_dyn(held) and optional:
            # cel-go only knows that it exists: its replacement decides.
            return DYN if held is operand else optional_of(self.found.fresh())
        element = self.element_of(node, held, key)
        return optional_of(unwrapped(element)) if optional else element

    def element_of(self, node: ast.Index, operand: Type, key: Type) -> Type:
        """Return the type of the elements of a list or map."""
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

    def no_overload(
        self,
        node: ast.ExpressionNode,
        function: str,
        receiver: tuple[Type, ...] | None,
        arguments: tuple[Type, ...],
    ) -> Type:
        """Report arguments that no overload takes."""
        listed = f"({', '.join(map(self.shown, arguments))})"
        applied = f"{self.shown(receiver[0])}.{listed}" if receiver else listed
        message = f"found no matching overload for '{function}' applied to '{applied}'"
        since = self.environment.unavailable.get(function)
        hint = f"`{function}` needs Kubernetes {since[0]}.{since[1]}" if since else None
        return self.issue(node, message, hint)


def _root(node: ast.ExpressionNode) -> ast.ExpressionNode:
    while isinstance(node, ast.Select):
        node = node.operand
    return node


def _is_absolute(node: ast.ExpressionNode) -> bool:
    root = _root(node)
    return isinstance(root, ast.Identifier) and root.absolute


def unwrapped(kind: Type) -> Type:
    """Return the type of the value of an optional, which is never optional; others as they are."""
    return kind.parameters[0] if kind.name == "optional_type" else kind
