"""Generate operators, as plain Python where the types allow it."""

from collections.abc import Callable
from typing import Final

from policyd.cel.compile.generator import Atom, Generator
from policyd.cel.cost import traversal
from policyd.cel.syntax import ast

_COMPARISONS: Final = {"_<_": "<", "_<=_": "<=", "_>_": ">", "_>=_": ">="}
_RUNTIME: Final = {
    "_<_": "R_less",
    "_<=_": "R_less_or_equal",
    "_>_": "R_greater",
    "_>=_": "R_greater_or_equal",
    "_+_": "R_add",
    "_-_": "R_subtract",
    "_*_": "R_multiply",
    "_/_": "R_divide",
    "_%_": "R_modulo",
}
_PLAIN: Final = frozenset(("int", "double", "string"))
_NUMERIC: Final = frozenset(("int", "uint", "double"))
_SIZELESS: Final = _NUMERIC | {"bool", "null_type"}
_SHORT: Final = 10


def _operands(generator: Generator, node: ast.Call) -> tuple[Atom, Atom]:
    left = generator.emit(node.arguments[0])
    return left, generator.emit(node.arguments[1])


def _emit_not(generator: Generator, node: ast.Call) -> Atom:
    generator.charge(1)
    operand = generator.emit_bool(node.arguments[0])
    return generator.assign(f"not {operand.code}", "bool")


def _emit_negation(generator: Generator, node: ast.Call) -> Atom:
    generator.charge(1)
    operand = generator.emit(node.arguments[0])
    kind = operand.kind if operand.kind in ("int", "double") else "dyn"
    return generator.assign(f"R_negate({operand.code})", kind, node.position)


def _emit_arithmetic(generator: Generator, node: ast.Call) -> Atom:
    left, right = _operands(generator, node)
    generator.charge(1)
    if node.function == "_+_" and left.kind not in _NUMERIC and right.kind not in _NUMERIC:
        return _emit_sum(generator, node, (left, right))
    # Where one side is sure, an overload for anything else than the same type does not exist.
    code = f"{_RUNTIME[node.function]}({left.code}, {right.code})"
    return generator.assign(code, _kind_of_both(left, right), node.position)


def _kind_of_both(left: Atom, right: Atom) -> str:
    """Return the one kind a sum has; where a side is sure, no other goes with it."""
    sure = {left.kind, right.kind} & {"int", "uint", "double", "string", "bytes", "list"}
    return sure.pop() if len(sure) == 1 else "dyn"


def _emit_sum(generator: Generator, node: ast.Call, atoms: tuple[Atom, Atom]) -> Atom:
    """Generate a sum of values that may have a size; texts and lists are joined without a call."""
    left, right = generator.named(atoms[0]), generator.named(atoms[1])
    both = f"{left.code}, {right.code}"
    result = Atom(generator.temporary(), _kind_of_both(*atoms))
    sizes = f"len({left.code}) + len({right.code})"
    keyword = "if"
    for kind, name in (("string", "str"), ("list", "list")):
        if not {left.kind, right.kind} <= {kind, "dyn"}:
            continue
        unsure = [atom.code for atom in (left, right) if atom.kind != kind]
        test = " and ".join(f"type({code}) is {name}" for code in unsure)
        with generator.block(f"{keyword} {test or True}:"):
            if kind == "string":
                generator.charge_counted(f"({sizes} + 9) // 10 - 1")
            else:
                generator.charge_work(sizes, node.position)
            generator.line(f"{result.code} = {left.code} + {right.code}")
        if not test:
            return result
        keyword = "elif"
    with generator.block("else:" if keyword == "elif" else "if True:"):
        sized = f"type({left.code}) in SIZED"
        generator.charge_counted(f"R_cost_of_sum({both}, B)", node.position, condition=sized)
        generator.line(f"{result.code} = R_add({both})", node.position)
    return result


def _emit_comparison(generator: Generator, node: ast.Call) -> Atom:
    left, right = _operands(generator, node)
    if left.kind in _SIZELESS or right.kind in _SIZELESS:
        generator.charge(1)
    else:
        generator.charge_counted(f"R_traverse_least({left.code}, {right.code})", check=False)
    plain = f"{left.code} {_COMPARISONS[node.function]} {right.code}"
    slow = f"{_RUNTIME[node.function]}({left.code}, {right.code})"
    if left.kind == right.kind and left.kind in _PLAIN:
        return generator.assign(plain, "bool")
    if right.value is not None and right.kind == "int":
        left = generator.named(left)
        plain = f"{left.code} {_COMPARISONS[node.function]} {right.code}"
        slow = f"{plain} if type({left.code}) is int else {slow}"
    return generator.assign(slow, "bool", node.position)


def _emit_equality(generator: Generator, node: ast.Call) -> Atom:
    left, right = _operands(generator, node)
    if left.value is not None and right.value is None:
        left, right = right, left
    negated = node.function == "_!=_"
    if right.value is not None and left.value is None and right.kind in _BY_LITERAL:
        _charge_literal(generator, left, right)
        return generator.assign(_BY_LITERAL[right.kind](left, right, negated=negated), "bool")
    if left.kind == right.kind and left.kind in ("int", "uint", "double", "bool"):
        generator.charge(1)
        return generator.assign(f"{left.code} {'!=' if negated else '=='} {right.code}", "bool")
    return _emit_deep_equality(generator, node, (left, right), negated=negated)


def _emit_deep_equality(
    generator: Generator, node: ast.Call, atoms: tuple[Atom, Atom], *, negated: bool
) -> Atom:
    left, right = generator.named(atoms[0]), atoms[1]
    both = f"{left.code}, {right.code}"
    no = "not " if negated else ""
    if left.kind in _SIZELESS or right.kind in _SIZELESS:
        generator.charge(1)
        return generator.assign(f"{no}R_equal({both})", "bool", node.position)
    result = Atom(generator.temporary(), "bool")
    a, b, code = left.code, right.code, result.code
    # Nearly everything costs 1; others are charged the difference.
    generator.charge(1)
    plain = f"{code} = {a} {'!=' if negated else '=='} {b}"
    kind = generator.assign(f"type({a})").code
    with generator.block(f"if {kind} is int and type({b}) is int:"):
        generator.line(plain)
    with generator.block(f"elif {kind} is str and type({b}) is str:"):
        shorter = f"{a} if len({a}) < len({b}) else {b}"
        unusual = f"len({a}) > 10 or not {a} or not {b}"
        price = f"(len({shorter}) - 1) // 10"
        generator.charge_counted(price, condition=unusual, check=False)
        generator.line(plain)
    with generator.block("else:"):
        sized = f"{kind} in SIZED or type({b}) in SIZED"
        generator.charge_counted(f"R_traverse_least({both}) - 1", condition=sized, check=False)
        generator.line(f"{code} = {no}R_equal_counted({both}, B)", node.position)
    return result


def _charge_literal(generator: Generator, left: Atom, right: Atom) -> None:
    """Charge for the comparison with a literal: by its length, if it is long."""
    size = len(right.value[0]) if right.kind == "string" and right.value else 1
    exact = f"R_traverse_least({left.code}, {right.code})"
    if size > _SHORT:
        least = f"len({left.code}) if len({left.code}) < {size} else {size}"
        price = f"(({least}) + 9) // 10 if type({left.code}) is str else {exact}"
        generator.charge_bounded(price, traversal(size))
    elif left.kind in _SIZELESS:
        generator.charge(traversal(size))
    elif size:
        # Only empty values cost less.
        full = f"{left.code} is None or {left.code}" if right.kind == "null_type" else left.code
        generator.charge_bounded(f"1 if {full} else {exact}", 1)


def _is_string(left: Atom, right: Atom, *, negated: bool) -> str:
    return f"{left.code} {'!=' if negated else '=='} {right.code}"


def _is_singleton(left: Atom, right: Atom, *, negated: bool) -> str:
    return f"{left.code} {'is not' if negated else 'is'} {right.code}"


def _is_number(left: Atom, right: Atom, *, negated: bool) -> str:
    if left.kind in _NUMERIC:
        return _is_string(left, right, negated=negated)
    if negated:
        return f"{left.code} != {right.code} or type({left.code}) not in NUMBERS"
    return f"{left.code} == {right.code} and type({left.code}) in NUMBERS"


_BY_LITERAL: Final[dict[str, Callable[..., str]]] = {
    "string": _is_string,
    "bool": _is_singleton,
    "null_type": _is_singleton,
    "int": _is_number,
}


def _emit_in(generator: Generator, node: ast.Call) -> Atom:
    element = generator.emit(node.arguments[0])
    literal = node.arguments[1]
    if isinstance(literal, ast.ListLiteral) and not literal.optionals:
        texts = [part.value for part in literal.elements if isinstance(part, ast.Literal)]
        if len(texts) == len(literal.elements) and all(type(text) is str for text in texts):
            return _emit_in_literal(generator, element, texts)
    container = generator.emit_named(literal)
    both = f"{element.code}, {container.code}"
    price = f"R_cost_of_in({both}, B) if type({container.code}) is list else 1"
    generator.charge_counted(price, node.position)
    code = f"R_contains({both}, B)"
    if element.kind == "string":
        code = f"({element.code} in {container.code}) if type({container.code}) is dict else {code}"
    return generator.assign(code, "bool", node.position)


def _emit_in_literal(generator: Generator, element: Atom, texts: list[object]) -> Atom:
    """Write `x in ['a', 'b']`; the API server makes a set of the list and charges nothing."""
    if not generator.environment.free_constants:
        generator.charge(10 + len(texts))
    element = generator.named(element)
    known = "" if element.kind == "string" else f"type({element.code}) is str and "
    among = generator.constant(frozenset(texts))
    return generator.assign(f"{known}{element.code} in {among}", "bool")


OPERATORS: Final[dict[str, Callable[[Generator, ast.Call], Atom]]] = {
    "!_": _emit_not,
    "-_": _emit_negation,
    "_==_": _emit_equality,
    "_!=_": _emit_equality,
    "@in": _emit_in,
    **dict.fromkeys(_COMPARISONS, _emit_comparison),
    **dict.fromkeys(("_+_", "_-_", "_*_", "_/_", "_%_"), _emit_arithmetic),
}
