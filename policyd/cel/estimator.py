"""The static cost of an expression: the least and the most it may cost, as the API server counts.

Walks a checked tree by the rules of cel-go's own estimator. Macros stand in the tree as they were
written; they are charged as what cel-go expands them to.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from operator import add, or_
from typing import Any, Final

from policyd.cel import ast, cost
from policyd.cel.checked import Checked, FunctionReference, VariableReference
from policyd.cel.checker import check
from policyd.cel.environment import Environment
from policyd.cel.errors import Issue, issue_at
from policyd.cel.estimates import Charge, Sized, fixed
from policyd.cel.functions import Overload
from policyd.cel.operator_estimates import operator_charge
from policyd.cel.parser import parse
from policyd.cel.recursion import deep_recursion
from policyd.cel.spans import ANY, NOTHING, ONE, Span, exactly
from policyd.cel.types import DYN, Type, list_of

Path = tuple[str, ...]
"""How a value is reached: a variable, then fields, `@items`, `@keys` or `@values`."""
SizeOf = Callable[[Path, Type], Span | None]
"""Tells the size of a string, list or map by its path; None if it does not know."""


def unknown_sizes(_path: Path, _kind: Type) -> Span | None:
    """Know no size."""
    return None


_SCALARS: Final = frozenset(
    ("bool", "double", "int", "uint", "google.protobuf.Duration", "google.protobuf.Timestamp")
)
_LIST: Final = exactly(cost.LIST)
_MAP: Final = exactly(cost.MAP)
_UNSELECTED: Final = frozenset(("dyn", "optional_type", "*error*"))
# Testing whether to go on: `@not_strictly_false(x)`, and of `!x`.
_TESTS: Final = {"all": exactly(2), "exists": exactly(3)}


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a value: how it is reached, its size, and that of its elements."""

    path: Path = ()
    size: Span | None = None
    key: Span | None = None
    element: Span | None = None


NOTHING_KNOWN: Final = Known()


class Estimator:
    """Walks one tree, and keeps what is known of its values."""

    def __init__(self, checked: Checked, environment: Environment, sizes: SizeOf) -> None:
        self.checked = checked
        self.environment = environment
        self.sizes = sizes
        self.known: dict[ast.Node, Known] = {}
        self.scope: dict[str, Known] = {}

    def cost(self, node: ast.Node) -> Span:
        """Return what evaluating a node may cost; remember what is known of its value."""
        return _COSTS[type(node)](self, node)

    def kind(self, node: ast.Node) -> Type:
        """Return the type of a node."""
        return self.checked.types.get(node, DYN)

    def known_of(self, node: ast.Node) -> Known:
        """Return what is known of a node's value."""
        return self.known.get(node, NOTHING_KNOWN)

    def learn(self, node: ast.Node, known: Known) -> None:
        """Remember what is known, by the type and the path besides."""
        kind = self.kind(node)
        size = known.size or self.sizes(known.path, kind)
        if size is None and _is_scalar(kind):
            size = ONE
        self.known[node] = Known(known.path, size, known.key, known.element)

    def size(self, node: ast.Node) -> Span:
        """Return the size of a node's value."""
        return self.known_of(node).size or ANY

    def sized(self, node: ast.Node) -> Sized:
        """Describe a node as an argument."""
        kind, known = self.kind(node), self.known_of(node)
        element = None
        if kind.parameters:
            element = self.sizes((*known.path, "@items"), kind.parameters[0])
        literal = (node.value,) if isinstance(node, ast.Literal) else ()
        return Sized(kind, known.size or ANY, element or ANY, literal)

    # --- names

    def variable(self, name: str, fields: tuple[str, ...]) -> tuple[Span, Path]:
        """Return the cost of selecting fields from a variable, and the path to the last."""
        price, kind = ONE, self.environment.variables.get(name, DYN)
        for field in fields:
            price += _selection(kind)
            kind = self.field(kind, field)
        return price, (name, *fields)

    def field(self, kind: Type, name: str) -> Type:
        """Return the type of a field."""
        if kind.name == "map":
            return kind.parameters[1]
        return self.environment.field_type(kind.name, name) or DYN

    @contextmanager
    def bound(self, variables: dict[str, Known]) -> Iterator[None]:
        """Let names stand for local variables for a while."""
        before = self.scope
        self.scope = {**before, **variables}
        yield
        self.scope = before

    # --- calls

    def call(self, node: ast.Call) -> Span:
        """Charge a call by all overloads that may be meant."""
        reference = self.checked.references.get(node)
        receiver = isinstance(reference, FunctionReference) and reference.has_receiver
        parts = ((node.target,) if node.target and receiver else ()) + node.arguments
        price = reduce(add, map(self.cost, parts), NOTHING)
        if not isinstance(reference, FunctionReference):
            return price
        if node.function == "dyn":
            self.known[node] = self.known_of(parts[0])
            return price + ONE
        arguments = tuple(map(self.sized, parts))
        charges = [_charge(node.function, each, arguments) for each in reference.overloads]
        found = [charge.size for charge in charges if charge.size is not None]
        size = reduce(or_, found) if found else None
        element = self._joined(parts) if node.function == "_+_" else None
        self.learn(node, Known(size=size, element=element))
        return price + reduce(or_, (charge.cost for charge in charges))

    def _joined(self, parts: tuple[ast.Node, ...]) -> Span | None:
        elements = [self.known_of(part).element for part in parts]
        return None if None in elements else reduce(or_, (e for e in elements if e is not None))


def _charge(name: str, overload: Overload, arguments: tuple[Sized, ...]) -> Charge:
    return operator_charge(name, overload, arguments) or overload.charge(arguments)


def _is_scalar(kind: Type) -> bool:
    if kind.name == "optional_type":
        return _is_scalar(kind.parameters[0])
    return kind.name in _SCALARS


def _selection(kind: Type) -> Span:
    return NOTHING if kind.name in _UNSELECTED else ONE


def _literal(estimator: Estimator, node: ast.Literal) -> Span:
    value = node.value
    size = len(value) if isinstance(value, str | bytes) else 1
    estimator.known[node] = Known(size=exactly(size))
    return NOTHING


def _identifier(estimator: Estimator, node: ast.Identifier) -> Span:
    local = None if node.absolute else estimator.scope.get(node.name)
    estimator.learn(node, local or Known(path=(node.name,)))
    return ONE


def _select(estimator: Estimator, node: ast.Select) -> Span:
    reference = estimator.checked.references.get(node)
    if isinstance(reference, VariableReference):
        price, path = estimator.variable(reference.name, reference.fields)
        estimator.learn(node, Known(path=path))
        return price
    if reference is not None:
        return ONE
    price = estimator.cost(node.operand)
    estimator.learn(node, Known(path=(*estimator.known_of(node.operand).path, node.field)))
    return price + (ONE if node.optional else _selection(estimator.kind(node.operand)))


def _has(estimator: Estimator, node: ast.Has) -> Span:
    reference = estimator.checked.references.get(node)
    estimator.learn(node, NOTHING_KNOWN)
    if isinstance(reference, VariableReference):
        return estimator.variable(reference.name, reference.fields[:-1])[0]
    return estimator.cost(node.operand)


def _index(estimator: Estimator, node: ast.Index) -> Span:
    price = estimator.cost(node.operand) + estimator.cost(node.index) + ONE
    operand = estimator.known_of(node.operand)
    step = "@values" if estimator.kind(node.operand).name == "map" else "@items"
    path = (*operand.path, step) if operand.path else ()
    estimator.learn(node, Known(path=path, size=operand.element))
    return price


def _call(estimator: Estimator, node: ast.Call) -> Span:
    return estimator.call(node)


def _logic(estimator: Estimator, node: ast.Logic) -> Span:
    prices = [estimator.cost(operand) for operand in node.operands]
    estimator.learn(node, NOTHING_KNOWN)
    return Span(prices[0].least, reduce(add, prices).most)


def _conditional(estimator: Estimator, node: ast.Conditional) -> Span:
    condition = estimator.cost(node.condition)
    branches = estimator.cost(node.then) | estimator.cost(node.otherwise)
    size = estimator.size(node.then) | estimator.size(node.otherwise)
    element = estimator._joined((node.then, node.otherwise))  # noqa: SLF001 - this module's own
    estimator.learn(node, Known(size=size, element=element))
    return condition + branches


def _list(estimator: Estimator, node: ast.ListLiteral) -> Span:
    price = reduce(add, map(estimator.cost, node.elements), _LIST)
    element = _union(estimator, node.elements)
    size = exactly(len(node.elements))
    estimator.learn(node, Known(size=size, key=ONE, element=element))
    return price


def _map(estimator: Estimator, node: ast.MapLiteral) -> Span:
    price = reduce(add, map(estimator.cost, ast.children(node)), _MAP)
    key = _union(estimator, tuple(entry.key for entry in node.entries))
    element = _union(estimator, tuple(entry.value for entry in node.entries))
    estimator.learn(node, Known(size=exactly(len(node.entries)), key=key, element=element))
    return price


def _union(estimator: Estimator, nodes: tuple[ast.Node, ...]) -> Span:
    return reduce(or_, map(estimator.size, nodes)) if nodes else NOTHING


def _struct(estimator: Estimator, node: ast.StructLiteral) -> Span:
    price = reduce(add, map(estimator.cost, ast.children(node)), exactly(cost.STRUCT))
    estimator.learn(node, NOTHING_KNOWN)
    return price


def _comprehension(estimator: Estimator, node: ast.Comprehension) -> Span:
    price = estimator.cost(node.range)
    with estimator.bound(_loop_variables(estimator, node)):
        step, made = _step(estimator, node)
    rounds = estimator.size(node.range)
    begin, end = _frame(node)
    known = Known(size=rounds, element=made) if begin != NOTHING else Known(size=ONE)
    estimator.learn(node, known)
    return price + begin + end + rounds * (step + _TESTS.get(node.kind, NOTHING))


def _frame(node: ast.Comprehension) -> tuple[Span, Span]:
    """Return what a loop costs before its first round, and after its last."""
    if node.kind in ("transformMap", "transformMapEntry"):
        return _MAP, ONE
    if node.kind in ("filter", "map", "transformList"):
        return _LIST, ONE
    return NOTHING, exactly(2) if node.kind == "exists_one" else ONE


def _step(estimator: Estimator, node: ast.Comprehension) -> tuple[Span, Span | None]:
    """Return the cost of a round, and the size of what it adds to a list."""
    condition = estimator.cost(node.condition) if node.condition else None
    result = estimator.cost(node.result)
    if node.kind in ("all", "exists"):
        return Span(1, (ONE + result).most), None
    if node.kind == "exists_one":
        return result + Span(1, 2), None
    if node.kind == "filter":
        variable = estimator.scope[node.variables[0]]
        return result + Span(1, cost.LIST + 3), variable.size
    more = {"transformMap": 3, "transformMapEntry": 2}.get(node.kind, cost.LIST + 2)
    made = result + exactly(more)
    step = made if condition is None else condition + (made | ONE)
    return step, estimator.size(node.result)


def _loop_variables(estimator: Estimator, node: ast.Comprehension) -> dict[str, Known]:
    known = estimator.known_of(node.range)
    is_list = estimator.kind(node.range).name == "list"
    first = Known(_inner(known, "@indices" if is_list else "@keys"), known.key)
    second = Known(_inner(known, "@items" if is_list else "@values"), known.element)
    if len(node.variables) == 1:
        return {node.variables[0]: second if is_list else first}
    return dict(zip(node.variables, (first, second), strict=True))


def _inner(known: Known, step: str) -> Path:
    return (*known.path, step) if known.path else ()


def _bind(estimator: Estimator, node: ast.Bind) -> Span:
    # cel-go binds with a loop over nothing.
    price = _LIST + estimator.cost(node.value)
    with estimator.bound({node.name: estimator.known_of(node.value)}):
        price += estimator.cost(node.body)
    estimator.learn(node, estimator.known_of(node.body))
    return price


def _optional_map(estimator: Estimator, node: ast.OptionalMap) -> Span:
    """Charge `x.hasValue() ? optional.of(bind(name, x.value(), body)) : optional.none()`."""
    operand = estimator.cost(node.operand)
    with estimator.bound({node.name: NOTHING_KNOWN}):
        body = estimator.cost(node.body)
    present = _LIST + operand + ONE + body + (NOTHING if node.flat else ONE)
    estimator.learn(node, NOTHING_KNOWN)
    return operand + ONE + (present | ONE)


def _sort_by(estimator: Estimator, node: ast.SortBy) -> Span:
    """Charge `bind(list, list.sortByKeys(list.map(name, key)))`."""
    price = _LIST + estimator.cost(node.operand)
    known = estimator.known_of(node.operand)
    with estimator.bound({node.name: Known(_inner(known, "@items"), known.element)}):
        round_ = estimator.cost(node.key) + exactly(cost.LIST + 2)
    rounds = known.size or ANY
    keys = Sized(list_of(estimator.kind(node.key)), rounds)
    sorting = next(iter(estimator.environment.functions.get("sort", ())), None)
    sorted_ = sorting.charge((keys,)) if sorting else fixed(1)
    estimator.learn(node, Known(size=rounds, element=known.element))
    return price + exactly(2) + _LIST + ONE + rounds * round_ + sorted_.cost


_COSTS: Final[dict[type[ast.Node], Callable[[Estimator, Any], Span]]] = {
    ast.Literal: _literal,
    ast.Identifier: _identifier,
    ast.Select: _select,
    ast.Has: _has,
    ast.Index: _index,
    ast.Call: _call,
    ast.Logic: _logic,
    ast.Conditional: _conditional,
    ast.ListLiteral: _list,
    ast.MapLiteral: _map,
    ast.StructLiteral: _struct,
    ast.Comprehension: _comprehension,
    ast.Bind: _bind,
    ast.OptionalMap: _optional_map,
    ast.SortBy: _sort_by,
}


def estimate_cost(source: str, environment: Environment, *, sizes: SizeOf = unknown_sizes) -> Span:
    """Return what an expression may cost, at least and at most.

    Args:
        source: The text.
        environment: What the expression may use.
        sizes: What is known of the sizes of its inputs.

    Raises:
        CelCompileError: If the expression cannot be used.
    """
    tree = parse(source, macros=environment.macros)
    with deep_recursion():
        checked = check(tree, source, environment)
        return Estimator(checked, environment, sizes).cost(tree)


def cost_issue(
    source: str,
    environment: Environment,
    *,
    limit: int = cost.EXPRESSION_LIMIT,
    sizes: SizeOf = unknown_sizes,
) -> Issue | None:
    """Return what is wrong with an expression that is over its limit whatever it is given.

    The API server takes such an expression, and fails each time it evaluates it.

    Args:
        source: The text.
        environment: What the expression may use.
        limit: What it may cost.
        sizes: What is known of the sizes of its inputs.

    Raises:
        CelCompileError: If the expression cannot be used.
    """
    span = estimate_cost(source, environment, sizes=sizes)
    if span.least <= limit:
        return None
    message = f"the expression costs at least {span.least:,}, and may cost {limit:,}"
    return issue_at(source, 0, message)
