"""Estimate names, constants, calls, operators, conditions and logic."""

from functools import reduce
from operator import add, or_
from typing import Final

from policyd.cel import cost
from policyd.cel.check.checked import FunctionReference, VariableReference
from policyd.cel.estimate.estimates import Charge, Sized, fixed
from policyd.cel.estimate.estimation import NOTHING_KNOWN, Estimation, KnownValue, selection
from policyd.cel.estimate.spans import NOTHING, ONE, Span, exactly
from policyd.cel.functions import Overload
from policyd.cel.syntax import ast

_TEXTS: Final = frozenset(("string", "bytes"))
_COMPARISONS: Final = frozenset(("_<_", "_<=_", "_>_", "_>=_"))
_LONGEST_FORMAT: Final = 64
# Types of the API server that are equal or not at the price of one.
_AT_ONCE: Final = frozenset(
    (
        "net.IP",
        "net.CIDR",
        "kubernetes.Quantity",
        "kubernetes.Semver",
        "kubernetes.authorization.Authorizer",
        "kubernetes.authorization.PathCheck",
        "kubernetes.authorization.GroupCheck",
        "kubernetes.authorization.ResourceCheck",
        "kubernetes.authorization.Decision",
    )
)


def _operator_charge(name: str, overload: Overload, arguments: tuple[Sized, ...]) -> Charge | None:
    """Return the charge of an operator that depends on its operands; None for other operators."""
    if name == "_==_":
        return _equality(arguments)
    if name == "_!=_":
        return _comparison(arguments)
    if name in _COMPARISONS:
        text = overload.parameters[0].name in _TEXTS
        return _comparison(arguments) if text else fixed(1)
    if name == "_+_":
        return _sum(overload, arguments)
    if name == "@in":
        is_list = overload.parameters[1].name == "list"
        return Charge(arguments[1].size) if is_list else fixed(1)
    return None


def _equality(arguments: tuple[Sized, ...]) -> Charge:
    left, right = arguments
    if left.kind == right.kind:
        if left.kind.name in _AT_ONCE:
            return fixed(1)
        if left.kind.name == "kubernetes.NamedFormat":
            return Charge(Span(1, _LONGEST_FORMAT).over(10))
        if left.kind.name == "kubernetes.URL":
            return Charge(Span(1, max(1, right.size.most)).over(10))
    return _comparison(arguments)


def _comparison(arguments: tuple[Sized, ...]) -> Charge:
    """Charge the shorter of two operands: at least its first character."""
    shortest = min(argument.size.most for argument in arguments)
    return Charge(Span(1 if shortest else 0, shortest).over(10))


def _sum(overload: Overload, arguments: tuple[Sized, ...]) -> Charge:
    kind = overload.parameters[0].name
    size = arguments[0].size + arguments[1].size
    if kind in _TEXTS:
        return Charge(size.over(10), size)
    return Charge(ONE, size) if kind == "list" else fixed(1)


_LIST: Final = exactly(cost.LIST)
_MAP: Final = exactly(cost.MAP)


def estimate_literal(estimation: Estimation, node: ast.Literal) -> Span:
    """Charge nothing for a constant; its size is known."""
    value = node.value
    size = len(value) if isinstance(value, str | bytes) else 1
    estimation.known[node] = KnownValue(size=exactly(size))
    return NOTHING


def estimate_identifier(estimation: Estimation, node: ast.Identifier) -> Span:
    """Charge a name."""
    local = None if node.absolute else estimation.scope.get(node.name)
    estimation.learn(node, local or KnownValue(path=(node.name,)))
    return ONE


def estimate_select(estimation: Estimation, node: ast.Select) -> Span:
    """Charge a selection, or a qualified name."""
    reference = estimation.checked.references.get(node)
    if isinstance(reference, VariableReference):
        price, path = estimation.variable(reference.name, reference.fields)
        estimation.learn(node, KnownValue(path=path))
        return price
    if reference is not None:
        return ONE
    price = estimation.cost(node.operand)
    estimation.learn(node, KnownValue(path=(*estimation.known_of(node.operand).path, node.field)))
    return price + (ONE if node.optional else selection(estimation.kind(node.operand)))


def estimate_has(estimation: Estimation, node: ast.Has) -> Span:
    """Charge the operand; the test for the field itself is free."""
    reference = estimation.checked.references.get(node)
    estimation.learn(node, NOTHING_KNOWN)
    if isinstance(reference, VariableReference):
        return estimation.variable(reference.name, reference.fields[:-1])[0]
    return estimation.cost(node.operand)


def estimate_index(estimation: Estimation, node: ast.Index) -> Span:
    """Charge the access to an element."""
    price = estimation.cost(node.operand) + estimation.cost(node.index) + ONE
    operand = estimation.known_of(node.operand)
    step = "@values" if estimation.kind(node.operand).name == "map" else "@items"
    path = (*operand.path, step) if operand.path else ()
    estimation.learn(node, KnownValue(path=path, size=operand.element))
    return price


def estimate_call(estimation: Estimation, node: ast.Call) -> Span:
    """Charge a call by all overloads that may be meant."""
    reference = estimation.checked.references.get(node)
    receiver = isinstance(reference, FunctionReference) and reference.has_receiver
    parts = ((node.target,) if node.target and receiver else ()) + node.arguments
    price = reduce(add, map(estimation.cost, parts), NOTHING)
    if not isinstance(reference, FunctionReference):
        return price
    if node.function == "dyn":
        estimation.known[node] = estimation.known_of(parts[0])
        return price + ONE
    arguments = tuple(map(estimation.sized, parts))
    charges = [_charge(node.function, each, arguments) for each in reference.overloads]
    found = [charge.size for charge in charges if charge.size is not None]
    size = reduce(or_, found) if found else None
    element = estimation.joined(parts) if node.function == "_+_" else None
    estimation.learn(node, KnownValue(size=size, element=element))
    return price + reduce(or_, (charge.cost for charge in charges))


def _charge(name: str, overload: Overload, arguments: tuple[Sized, ...]) -> Charge:
    return _operator_charge(name, overload, arguments) or overload.charge(arguments)


def estimate_logic(estimation: Estimation, node: ast.Logic) -> Span:
    """Charge a chain: the first operand at least, all of them at most."""
    prices = [estimation.cost(operand) for operand in node.operands]
    estimation.learn(node, NOTHING_KNOWN)
    return Span(prices[0].least, reduce(add, prices).most)


def estimate_conditional(estimation: Estimation, node: ast.Conditional) -> Span:
    """Charge the condition and one of the branches."""
    condition = estimation.cost(node.condition)
    branches = estimation.cost(node.then) | estimation.cost(node.otherwise)
    size = estimation.size(node.then) | estimation.size(node.otherwise)
    element = estimation.joined((node.then, node.otherwise))
    estimation.learn(node, KnownValue(size=size, element=element))
    return condition + branches


def estimate_list(estimation: Estimation, node: ast.ListLiteral) -> Span:
    """Charge a list and its elements."""
    price = reduce(add, map(estimation.cost, node.elements), _LIST)
    element = _union(estimation, node.elements)
    size = exactly(len(node.elements))
    estimation.learn(node, KnownValue(size=size, key=ONE, element=element))
    return price


def estimate_map(estimation: Estimation, node: ast.MapLiteral) -> Span:
    """Charge a map and its entries."""
    price = reduce(add, map(estimation.cost, ast.children(node)), _MAP)
    key = _union(estimation, tuple(entry.key for entry in node.entries))
    element = _union(estimation, tuple(entry.value for entry in node.entries))
    estimation.learn(node, KnownValue(size=exactly(len(node.entries)), key=key, element=element))
    return price


def _union(estimation: Estimation, nodes: tuple[ast.ExpressionNode, ...]) -> Span:
    return reduce(or_, map(estimation.size, nodes)) if nodes else NOTHING


def estimate_struct(estimation: Estimation, node: ast.StructLiteral) -> Span:
    """Charge a struct and its fields."""
    price = reduce(add, map(estimation.cost, ast.children(node)), exactly(cost.STRUCT))
    estimation.learn(node, NOTHING_KNOWN)
    return price
