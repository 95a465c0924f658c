"""Find elements of a JSON patch that overwrite what an element before them has added.

All elements are computed from the object as it was before the patch. Where a map is missing, two
elements that each add the map, with an entry of their own, leave the entry of the second alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from itertools import islice, product
from typing import Final, NamedTuple

from policyd.cel import CelCompileError
from policyd.cel.syntax import ast
from policyd.cel.syntax.parser import parse
from policyd.cel.syntax.unparse import unparse
from policyd.engine.documents.findings import LintWarning
from policyd.engine.model.compiled import CompiledPolicy, environments_of

_MOST: Final = 200
"""Elements of a policy that are compared."""


class _Guard(NamedTuple):
    """A part of a condition: what has a value, or has another one."""

    subject: str
    value: str
    holds: bool

    def excludes(self, other: "_Guard") -> bool:
        """Tell whether no object meets both."""
        if self.subject != other.subject:
            return False
        if self.value == other.value:
            return self.holds != other.holds
        return self.holds and other.holds


@dataclass(frozen=True, slots=True)
class _Element:
    """An element of a patch that adds a value.

    Attributes:
        mutation: The number of its mutation.
        guards: The conditions under which it is there.
        path: The steps to what it adds.
        entries: The names of the entries of a map, or the items of a list, that it adds; None if
            these are unknown, or it adds something else.
    """

    mutation: int
    guards: frozenset[_Guard]
    path: tuple[str, ...]
    entries: tuple[str, ...] | None

    def overwritten(self, later: "_Element") -> str:
        """Return what of this element a later one overwrites; empty if nothing, or unknown."""
        if later.entries is None or self.path[: len(later.path)] != later.path:
            return ""
        if later.path[-1] == "-" or later.path[-1].isdecimal():  # items of a list are put between
            return ""
        if self.mutation != later.mutation and later.guards:  # they are asked of what this one left
            return ""
        if any(one.excludes(other) for one, other in product(self.guards, later.guards)):
            return ""
        below = self.path[len(later.path) :]
        added = (f"'{below[0]}'",) if below else self.entries or ()
        return next((entry for entry in added if entry not in later.entries), "")


def overwritten(policy: CompiledPolicy) -> Iterator[LintWarning]:
    """Yield the first element of a policy that overwrites what another one has added."""
    elements: list[_Element] = []
    for later in islice(_elements(policy), _MOST):
        for earlier in elements:
            entry = earlier.overwritten(later)
            if entry:
                yield _warning(policy.mutations[later.mutation].place, later.path, entry)
                return
        elements.append(later)


def _warning(place: str, path: tuple[str, ...], entry: str) -> LintWarning:
    shown = "/".join(path)
    message = f"`{place}` adds `{shown}` more than once: the last one overwrites `{entry}`"
    hint = (
        f"add `{shown}` empty, once, where it is missing, and then each entry at its own path"
        f" below `{shown}/`; an ApplyConfiguration merges maps without this"
    )
    return LintWarning(message, hint, "conflict")


def _elements(policy: CompiledPolicy) -> Iterator[_Element]:
    environment = environments_of(policy).mutations
    for number, mutation in enumerate(policy.mutations):
        if mutation.patch_type == "JSONPatch":
            try:
                tree = parse(mutation.program.source, macros=environment.macros)
            except CelCompileError:  # compiled more leniently
                continue
            yield from _Scope(number).elements(tree)


@dataclass(frozen=True, slots=True)
class _Scope:
    """What holds where a part of an expression stands.

    Attributes:
        mutation: The number of the mutation.
        guards: The conditions that hold.
        items: Variables of loops.
        turn: Which of two turns of these loops this is: in each, all of them are something else.
    """

    mutation: int
    guards: frozenset[_Guard] = frozenset()
    items: frozenset[str] = frozenset()
    turn: int = 0

    def elements(self, node: ast.ExpressionNode) -> Iterator[_Element]:
        """Yield the elements that an expression may return, in their order."""
        match node:
            case ast.Conditional():
                for scope, branch in self.alternatives(node):
                    yield from scope.elements(branch)
            case ast.ListLiteral() | ast.Call(function="_+_" | "flatten"):
                for part in ast.children(node):
                    yield from self.elements(part)
            case ast.Comprehension(kind="map" | "transformList"):
                items = self.items | {*node.variables}
                for turn in (self.turn,) if self.items else (0, 1):
                    inner = replace(self, items=items, turn=turn)
                    scope = inner.where(node.condition, holds=True) if node.condition else inner
                    yield from scope.elements(node.result)
            case ast.StructLiteral(name="JSONPatch"):
                yield from self._of_patch(node)
            case _:
                pass

    def _of_patch(self, node: ast.StructLiteral) -> Iterator[_Element]:
        fields = {field.name: field.value for field in node.fields}
        if not {"op", "path", "value"} <= fields.keys():
            return
        for of_op, op in self.alternatives(fields["op"]):
            if isinstance(op, ast.Literal) and op.value in ("add", "replace"):
                for of_path, path in of_op.alternatives(fields["path"]):
                    for scope, value in of_path.alternatives(fields["value"]):
                        steps, entries = self._steps(path), self._entries(value)
                        yield _Element(self.mutation, scope.guards, steps, entries)

    def _steps(self, path: ast.ExpressionNode) -> tuple[str, ...]:
        if isinstance(path, ast.Literal) and isinstance(path.value, str):
            return tuple(path.value.split("/"))
        return (self._text(path),)

    def _entries(self, value: ast.ExpressionNode) -> tuple[str, ...] | None:
        match value:
            case ast.Call(function="dyn", target=None, arguments=(inner,)):
                return self._entries(inner)
            case ast.MapLiteral():
                return tuple(self._text(entry.key) for entry in value.entries)
            case ast.StructLiteral():
                return tuple(f"'{field.name}'" for field in value.fields)
            case ast.ListLiteral():
                return tuple(self._text(item) for item in value.elements)
            case _:
                return None

    def alternatives(
        self, node: ast.ExpressionNode
    ) -> Iterator[tuple["_Scope", ast.ExpressionNode]]:
        """Yield what a part of an expression may be, and where."""
        if not isinstance(node, ast.Conditional):
            yield self, node
            return
        yield from self.where(node.condition, holds=True).alternatives(node.then)
        yield from self.where(node.condition, holds=False).alternatives(node.otherwise)

    def where(self, condition: ast.ExpressionNode, *, holds: bool) -> "_Scope":
        """Return the scope where a condition holds, too, or where it does not."""
        match condition:
            case ast.Call(function="!_", arguments=(inner,)):
                return self.where(inner, holds=not holds)
            case ast.Logic() if condition.conjunction is holds:
                return reduce(lambda s, o: s.where(o, holds=holds), condition.operands, self)
            case ast.Call(function="_==_" | "_!=_", arguments=(subject, ast.Literal() as literal)):
                equal = holds is (condition.function == "_==_")
                guard = _Guard(self._text(subject), unparse(literal), equal)
            case _:
                guard = _Guard(self._text(condition), "true", holds)
        return replace(self, guards=self.guards | {guard})

    def _text(self, node: ast.ExpressionNode) -> str:
        """Return a part of an expression as a text, which differs for what a loop changes."""
        return f"{unparse(node)} of {self.turn}" if self._is_changed(node) else unparse(node)

    def _is_changed(self, node: ast.ExpressionNode) -> bool:
        if isinstance(node, ast.Identifier):
            return node.name in self.items
        return any(self._is_changed(part) for part in ast.children(node))
