"""Check macros and the variables they bind."""

from policyd.cel import types
from policyd.cel.check.names import Checker, unwrapped
from policyd.cel.syntax import ast
from policyd.cel.types import BOOL, DYN, ERROR, Type, is_dyn, list_of, map_of, optional_of


def check_comprehension(checker: Checker, node: ast.Comprehension) -> Type:
    """Return the type of what a macro makes."""
    first, second = _range_of(checker, node.range)
    bound = (second,) if len(node.variables) == 1 else (first, second)
    if len(node.variables) == 1 and _is_map(checker, node.range):
        bound = (first,)
    scope = list(zip(node.variables, bound, strict=True))
    checker.scopes.extend(scope)
    if node.condition is not None:
        checker.expect(node.condition, BOOL)
    result = _comprehended(checker, node, first, second)
    del checker.scopes[-len(scope) :]
    return result


def _comprehended(checker: Checker, node: ast.Comprehension, first: Type, second: Type) -> Type:
    if node.kind in ("all", "exists", "exists_one", "filter"):
        checker.expect(node.result, BOOL)
        element = first if _is_map(checker, node.range) else second
        return list_of(element) if node.kind == "filter" else BOOL
    result = checker.check(node.result)
    if node.kind == "transformMap":
        return map_of(first, result)
    if node.kind == "transformMapEntry":
        entry = map_of(checker.found.fresh(), checker.found.fresh())
        if not checker.found.assignable(result, entry):
            checker.no_overload(node, "cel.@mapInsert", None, (entry, result))
        return checker.found.resolve(entry)
    return list_of(result)


def _is_map(checker: Checker, node: ast.ExpressionNode) -> bool:
    return checker.found.resolve(checker.checked.types[node]).name == "map"


def _range_of(checker: Checker, node: ast.ExpressionNode) -> tuple[Type, Type]:
    """Return the types of key and value, or of index and element, of what is looped over."""
    kind = checker.found.resolve(checker.check(node))
    if kind.name == "map":
        return kind.parameters[0], kind.parameters[1]
    if kind.name == "list":
        return types.INT, kind.parameters[0]
    if is_dyn(kind) or kind.variable:
        checker.found.assignable(kind, DYN)
        return DYN, DYN
    wanted = "(must be list, map, or dynamic)"
    message = f"expression of type '{checker.shown(kind)}' cannot be range of a comprehension"
    checker.issue(node, f"{message} {wanted}")
    return ERROR, ERROR


def _scoped(checker: Checker, name: str, kind: Type, body: ast.ExpressionNode) -> Type:
    checker.scopes.append((name, kind))
    result = checker.check(body)
    checker.scopes.pop()
    return result


def check_bind(checker: Checker, node: ast.Bind) -> Type:
    """Return the type of the body."""
    return _scoped(checker, node.name, checker.check(node.value), node.body)


def check_optional_map(checker: Checker, node: ast.OptionalMap) -> Type:
    """Return an optional of the type of the body."""
    operand = checker.found.resolve(checker.check(node.operand))
    if operand.name != "optional_type" and not is_dyn(operand):
        macro = "optFlatMap" if node.flat else "optMap"
        checker.no_overload(node, macro, (operand,), (DYN, DYN))
    result = checker.found.resolve(_scoped(checker, node.name, unwrapped(operand), node.body))
    if not node.flat:
        return optional_of(result)
    inner = checker.found.fresh()
    if not checker.found.assignable(result, optional_of(inner)):
        found = f"found '{checker.shown(result)}'"
        return checker.issue(node.body, f"expected type 'optional_type' but {found}")
    return checker.found.resolve(optional_of(inner))


def check_sort_by(checker: Checker, node: ast.SortBy) -> Type:
    """Return the type of the list."""
    _, element = _range_of(checker, node.operand)
    _scoped(checker, node.name, element, node.key)
    return list_of(element)
