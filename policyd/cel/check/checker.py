"""Check an expression against its environment: names, types, overloads.

The result says, for every node, its type and the reference of its name. All errors are reported,
not only the first; a node that cannot be typed counts as dyn from there on.
"""

from typing import Final

from policyd.cel import types
from policyd.cel.check.checked import CheckedExpression, FunctionReference
from policyd.cel.check.literals import (
    check_list_literal,
    check_map_literal,
    check_struct_literal,
    invalid_literal,
    report_mixed_literals,
)
from policyd.cel.check.names import Check, Checker, unwrapped
from policyd.cel.environment import Environment
from policyd.cel.errors import CelCompileError
from policyd.cel.functions import Overload
from policyd.cel.syntax import ast
from policyd.cel.syntax.macros import USAGES, has_two_variables
from policyd.cel.types import BOOL, DYN, ERROR, Type, is_dyn, list_of, map_of, optional_of


def _check_comprehension(checker: Checker, node: ast.Comprehension) -> Type:
    """Return the type of a comprehension's result."""
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
    """Return the types of key and value, or of index and element, of a range."""
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


def _check_bind(checker: Checker, node: ast.Bind) -> Type:
    """Return the type of the body."""
    return _scoped(checker, node.name, checker.check(node.value), node.body)


def _check_optional_map(checker: Checker, node: ast.OptionalMap) -> Type:
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


def _check_sort_by(checker: Checker, node: ast.SortBy) -> Type:
    """Return the type of the list."""
    _, element = _range_of(checker, node.operand)
    _scoped(checker, node.name, element, node.key)
    return list_of(element)


def _check_call(checker: Checker, node: ast.Call) -> Type:
    """Return the type of a call, and note its overloads."""
    name, has_receiver = _function_name(checker, node)
    overloads = checker.environment.functions.get(name or node.function)
    if overloads is None and node.function in checker.environment.macros:
        return _misused_macro(checker, node)
    if name is None or overloads is None:
        for part in (*((node.target,) if node.target else ()), *node.arguments):
            checker.check(part)
        return checker.undeclared(node, node.function)
    target = node.target if has_receiver else None
    receiver = (checker.check(target),) if target else ()
    arguments = tuple(checker.check(argument) for argument in node.arguments)
    invalid = invalid_literal(node) if checker.environment.validates_literals else None
    if invalid is not None:
        checker.issue(*invalid)
    return _overload(checker, node, overloads, receiver, arguments)


def _misused_macro(checker: Checker, node: ast.Call) -> Type:
    """Report a macro with other arguments than it takes; its variables are not looked for."""
    message = f"undeclared reference to '{node.function}' "
    message += f"(in container '{checker.environment.container}')"
    checker.checked.unknown[node] = message
    hint = f"it is written `{USAGES[node.function]}`"
    since = checker.environment.unavailable.get("transformList")
    if since is not None and has_two_variables(node):
        hint = f"`{node.function}` with two variables needs Kubernetes {since[0]}.{since[1]}"
    return checker.issue(node, message, hint)


def _function_name(checker: Checker, node: ast.Call) -> tuple[str | None, bool]:
    """Return the declared name of a function, and whether the target is its receiver."""
    functions = checker.environment.functions
    parts = ast.qualified_name(node.target) if node.target else ()
    if parts is not None and not (parts and checker.local(parts[0]) is not None):
        qualified = ".".join((*parts, node.function))
        for candidate in checker.environment.candidates(qualified):
            if candidate in functions:
                return candidate, False
    if node.target is not None and node.function in functions:
        return node.function, True
    return None, False


def _overload(
    checker: Checker,
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
        wanted = checker.found.instantiate((*overload.parameters, overload.result))
        if not checker.found.unify(actual, wanted[:-1]):
            continue
        fitting.append(overload)
        returned = checker.found.resolve(wanted[-1])
        result = returned if result in (None, returned) else DYN
    checker.checked.references[node] = FunctionReference(tuple(fitting), bool(receiver))
    if result is None:
        checker.checked.references[node] = FunctionReference(overloads, bool(receiver))
        return checker.no_overload(node, overloads[0].name, receiver, arguments)
    return result


def _check_logic(checker: Checker, node: ast.Logic) -> Type:
    """Return bool; all operands must be."""
    function = "_&&_" if node.conjunction else "_||_"
    kinds = tuple(checker.check(operand) for operand in node.operands)
    for kind in kinds:
        if not checker.found.assignable(kind, BOOL):
            return checker.no_overload(node, function, None, kinds)
    return BOOL


def _check_conditional(checker: Checker, node: ast.Conditional) -> Type:
    """Return the type both branches have."""
    kinds = (checker.check(node.condition), checker.check(node.then), checker.check(node.otherwise))
    result = checker.found.fresh()
    if not checker.found.unify(kinds, (BOOL, result, result)):
        return checker.no_overload(node, "_?_:_", None, kinds)
    return checker.found.resolve(result)


_CHECKS: Final[dict[type[ast.ExpressionNode], Check]] = {
    ast.Literal: Checker.literal,
    ast.Identifier: Checker.identifier,
    ast.Select: Checker.select,
    ast.Has: Checker.has,
    ast.Index: Checker.index,
    ast.Call: _check_call,
    ast.Logic: _check_logic,
    ast.Conditional: _check_conditional,
    ast.ListLiteral: check_list_literal,
    ast.MapLiteral: check_map_literal,
    ast.StructLiteral: check_struct_literal,
    ast.Comprehension: _check_comprehension,
    ast.Bind: _check_bind,
    ast.OptionalMap: _check_optional_map,
    ast.SortBy: _check_sort_by,
}


def check(tree: ast.ExpressionNode, source: str, environment: Environment) -> CheckedExpression:
    """Check a tree.

    Raises:
        CelCompileError: If anything is wrong with it.
    """
    checked = check_leniently(tree, source, environment)
    if checked.issues:
        raise CelCompileError(checked.issues)
    return checked


def check_leniently(
    tree: ast.ExpressionNode, source: str, environment: Environment
) -> CheckedExpression:
    """Check a tree, and leave the decision about its issues to the caller."""
    checker = Checker(source, environment, CheckedExpression(tree), checks=_CHECKS)
    checker.check(tree)
    checked = checker.finish()
    if environment.same_type_literals and not checked.issues:
        report_mixed_literals(checker)
    return checked
