"""Check calls, logic and conditions."""

from policyd.cel.check.checked import FunctionReference
from policyd.cel.check.names import Checker
from policyd.cel.check.validators import invalid_literal
from policyd.cel.functions import Overload
from policyd.cel.syntax import ast
from policyd.cel.syntax.macros import USAGES, has_two_variables
from policyd.cel.types import BOOL, DYN, Type


def check_call(checker: Checker, node: ast.Call) -> Type:
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


def check_logic(checker: Checker, node: ast.Logic) -> Type:
    """Return bool; all operands must be."""
    function = "_&&_" if node.conjunction else "_||_"
    kinds = tuple(checker.check(operand) for operand in node.operands)
    for kind in kinds:
        if not checker.found.assignable(kind, BOOL):
            return checker.no_overload(node, function, None, kinds)
    return BOOL


def check_conditional(checker: Checker, node: ast.Conditional) -> Type:
    """Return the type both branches have."""
    kinds = (checker.check(node.condition), checker.check(node.then), checker.check(node.otherwise))
    result = checker.found.fresh()
    if not checker.found.unify(kinds, (BOOL, result, result)):
        return checker.no_overload(node, "_?_:_", None, kinds)
    return checker.found.resolve(result)
