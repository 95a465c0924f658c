"""Compile expressions, and run what was compiled."""

from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType, TracebackType
from typing import Any, Final

from policyd.cel import arithmetic, ast, comparison, containers, cost, values
from policyd.cel.checker import Checked, VariableReference, check, check_leniently
from policyd.cel.cost import EXPRESSION_LIMIT, Budget
from policyd.cel.emit_calls import emit_call
from policyd.cel.emit_macros import (
    emit_bind,
    emit_comprehension,
    emit_optional_map,
    emit_sort_by,
)
from policyd.cel.emit_values import (
    emit_conditional,
    emit_has,
    emit_identifier,
    emit_index,
    emit_list,
    emit_literal,
    emit_logic,
    emit_map,
    emit_select,
    emit_struct,
)
from policyd.cel.environment import Environment
from policyd.cel.errors import (
    CelCompileError,
    CelCostError,
    CelError,
    CelInternalError,
    issue_at,
    locate,
)
from policyd.cel.generator import Emit, Generated, Generator, Line
from policyd.cel.parser import parse
from policyd.cel.recursion import deep_recursion
from policyd.cel.types import BOOL, BYTES, DOUBLE, DYN, INT, NULL, STRING, Type, list_of
from policyd.cel.values import NONE, CelMap, Optional, Struct, no_such_overload

_FILE: Final = "<cel>"
# An error that is absorbed takes as long as comparing so many elements.
_ERROR_WORK: Final = 10

_EMITTERS: Final[dict[type[ast.Node], Emit]] = {
    ast.Literal: emit_literal,
    ast.Identifier: emit_identifier,
    ast.Select: emit_select,
    ast.Has: emit_has,
    ast.Index: emit_index,
    ast.Call: emit_call,
    ast.Logic: emit_logic,
    ast.Conditional: emit_conditional,
    ast.ListLiteral: emit_list,
    ast.MapLiteral: emit_map,
    ast.StructLiteral: emit_struct,
    ast.Comprehension: emit_comprehension,
    ast.Bind: emit_bind,
    ast.OptionalMap: emit_optional_map,
    ast.SortBy: emit_sort_by,
}

WANTED: Final[dict[str, Type]] = {
    "bool": BOOL,
    "int": INT,
    "double": DOUBLE,
    "string": STRING,
    "bytes": BYTES,
    "null": NULL,
    "object": Type("Object"),
    "patches": list_of(Type("JSONPatch")),
}
"""Names of result types, as `wants` of compile_expression takes them."""


class Program:
    """A compiled expression; it keeps nothing between evaluations, so threads may share it.

    Attributes:
        source: The text of the expression.
        result_type: The type of what it evaluates to, as far as the checker knows.
        variables_used: The variables it reads; `variables.x` by that name.
    """

    __slots__ = ("_lines", "_run", "result_type", "source", "variables_used")

    def __init__(self, source: str, checked: Checked, generated: Generated) -> None:
        self.source = source
        self.result_type = checked.result
        self.variables_used = _variables_used(checked)
        self._lines = [line.position for line in generated.lines]
        self._run = _load(generated)

    def evaluate(self, variables: Mapping[str, object], budget: Budget) -> Any:  # noqa: ANN401
        """Evaluate the expression on decoded JSON.

        Args:
            variables: A value for each variable the expression uses. They are not changed; the
                result may share parts of them.
            budget: What the expressions of the policy may still cost; it is charged.

        Raises:
            CelError: If the evaluation fails; it says where in the expression.
            CelCostError: If the expression, or the policy, costs too much.
        """
        outer, budget.work = budget.work, 0
        try:
            return self._run(variables, budget)
        except Exception as error:  # noqa: BLE001 - whatever an object holds, the door stays closed
            raise self._located(translate(error)) from None
        finally:
            budget.work = outer

    def _located(self, error: CelError) -> CelError:
        if error.position is not None and not error.line:
            error.line, error.column = locate(self.source, error.position)
        return error


def compile_expression(
    source: str, environment: Environment, *, wants: str | Type = "any"
) -> Program:
    """Parse, check and compile an expression.

    Args:
        source: The text.
        environment: What the expression may use.
        wants: What it must evaluate to: a type, or a name of WANTED, several with `|` between
            them, or `any`.

    Raises:
        CelCompileError: If the expression cannot be used; its issues say where and why.
    """
    tree = parse(source, macros=environment.macros)
    with deep_recursion():
        checked = check(tree, source, environment)
        _check_result(checked, source, wants)
        return _build(source, checked, environment)


def compile_unchecked(source: str, environment: Environment) -> Program:
    """Compile an expression whatever its types: what cannot work fails when it is evaluated.

    Raises:
        CelCompileError: If the expression cannot be parsed.
    """
    tree = parse(source, macros=environment.macros)
    with deep_recursion():
        return _build(source, check_leniently(tree, source, environment), environment)


def _check_result(checked: Checked, source: str, wants: str | Type) -> None:
    if wants == "any":
        return
    wanted = [wants] if isinstance(wants, Type) else [WANTED[name] for name in wants.split("|")]
    if checked.result not in wanted:
        shown = " or ".join(map(str, wanted))
        hint = f"the expression evaluates to {checked.result}"
        if checked.result == DYN and BOOL in wanted:
            hint = "nothing is known of its type; compare it, as in `x == true`"
        message = f"must evaluate to {shown}"
        raise CelCompileError([issue_at(source, checked.tree.position, message, hint)])


def _build(source: str, checked: Checked, environment: Environment) -> Program:
    generated = Generator(source, checked, environment, _EMITTERS).generate()
    return Program(source, checked, generated)


def _load(generated: Generated) -> Any:  # noqa: ANN401 - a generated function
    namespace: dict[str, Any] = {**_GLOBALS, **generated.constants, "_lines": generated.lines}
    code: CodeType = compile(generated.source, _FILE, "exec")
    exec(code, namespace)  # noqa: S102 - INVARIANT: the source holds no text of the expression
    function = namespace["cel"]
    assert isinstance(function, FunctionType), "the generated source defines `cel`"
    return function


def _variables_used(checked: Checked) -> frozenset[str]:
    names = set()
    for reference in checked.references.values():
        if isinstance(reference, VariableReference):
            dotted = reference.name == "variables" and reference.fields
            names.add(f"variables.{reference.fields[0]}" if dotted else reference.name)
    return frozenset(names)


# --- errors


def translate(error: BaseException) -> CelError:
    """Return an error of generated code as one of CEL, with the position of its line.

    A KeyError or TypeError of the generated line itself is a failed selection. Anything else that
    is no CelError is a bug, and must not pass for an error of the expression.
    """
    line, names = _failed_line(error.__traceback__)
    if isinstance(error, CelError):
        if error.position is None and line is not None:
            error.position = line.position if line.position != -1 else None
        return _bare(error)
    if line is None or line.probe is None or not isinstance(error, KeyError | TypeError):
        wrong = CelInternalError(f"internal error: {type(error).__name__}: {error}")
        wrong.__cause__ = error
        wrong.position = line.position if line else None
        return wrong
    container, key = names[line.probe.container], line.probe.key
    failed = values.unselectable(container, names[key] if line.probe.key_is_variable else key)
    failed.position = line.position
    return failed


def _failed_line(
    traceback: TracebackType | None,
) -> tuple[Line | None, Mapping[str, Any]]:
    """Return the line of generated code that failed, and the values of the names in it.

    The line has no probe if it failed in something it called.
    """
    found: Line | None = None
    names: Mapping[str, Any] = {}
    for part in _frames(traceback):
        if part.tb_frame.f_code.co_filename == _FILE:
            lines: list[Line] = part.tb_frame.f_globals["_lines"]
            found = lines[part.tb_lineno - 1]
            names = {**part.tb_frame.f_globals, **part.tb_frame.f_locals}
        elif found is not None:
            found = Line(0, "", found.position)
    return found, names


def _frames(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def _bare(error: CelError) -> CelError:
    """Drop the traceback: an error that is kept would keep the whole evaluation alive."""
    error.__context__ = None
    return error.with_traceback(None)


def absorb(error: BaseException, first: CelError | None, budget: Budget) -> CelError:
    """Return the error a guarded operand is remembered by: the first one.

    Raises:
        CelCostError: If that is what happened; nothing absorbs it.
        CelInternalError: If that is what happened; nothing absorbs it.
    """
    failed = translate(error)
    if isinstance(failed, CelCostError | CelInternalError):
        raise failed
    budget.charge_work(_ERROR_WORK)
    return first or failed


# --- what generated code may use


def _fail(message: str) -> None:
    raise CelError(message)


def _no_overload(function: str, *arguments: object) -> None:
    raise no_such_overload(function, *arguments)


def _present(value: object) -> tuple[object, ...]:
    optional = containers.need_optional(value)
    return (optional.value,) if optional.present else ()


def _present_pair(key: object, value: object) -> tuple[tuple[object, object], ...]:
    optional = containers.need_optional(value)
    return ((key, optional.value),) if optional.present else ()


def _cost_of_sum(a: object, b: object, budget: Budget) -> int:
    if type(a) is list:
        budget.charge_work(cost.size_of(a) + cost.size_of(b))
        return 0
    return cost.traverse_both(a, b) - 1


def _cost_of_in(element: object, container: list[object], budget: Budget) -> int:
    if type(element) not in (int, bool, float):
        budget.charge_work(cost.search_list(container, element))
    return len(container)


_GLOBALS: Final[dict[str, Any]] = {
    "__builtins__": {"type": type, "len": len, "dict": dict, "list": list, "str": str, "int": int},
    "ERRORS": (CelError, KeyError, TypeError),
    "LIMIT": EXPRESSION_LIMIT,
    "NUMBERS": comparison.NUMBERS,
    "SIZED": frozenset((str, bytes, list, dict, CelMap)),
    "CONTAINERS": frozenset((list, dict)),
    "R_NONE": NONE,
    "R_Optional": Optional,
    "R_Struct": Struct,
    "R_absorb": absorb,
    "R_add": arithmetic.add,
    "R_contains": comparison.contains,
    "R_cost_of_in": _cost_of_in,
    "R_cost_of_sum": _cost_of_sum,
    "R_deep_size": cost.deep_size,
    "R_divide": arithmetic.divide,
    "R_elements": containers.elements,
    "R_equal": comparison.equal,
    "R_equal_counted": comparison.equal_counted,
    "R_exceed": cost.exceed,
    "R_fail": _fail,
    "R_finish_map": containers.finish_map,
    "R_greater": comparison.greater,
    "R_greater_or_equal": comparison.greater_or_equal,
    "R_has": containers.has,
    "R_index": containers.index,
    "R_insert": containers.insert,
    "R_less": comparison.less,
    "R_less_or_equal": comparison.less_or_equal,
    "R_make_map": containers.make_map,
    "R_merge": containers.merge,
    "R_modulo": arithmetic.modulo,
    "R_multiply": arithmetic.multiply,
    "R_need_bool": comparison.need_bool,
    "R_need_optional": containers.need_optional,
    "R_negate": arithmetic.negate,
    "R_no_overload": _no_overload,
    "R_optional_index": values.optional_index,
    "R_pairs": containers.pairs,
    "R_present": _present,
    "R_present_pair": _present_pair,
    "R_size_of": cost.size_of,
    "R_sort_pairs": comparison.sort_pairs,
    "R_subtract": arithmetic.subtract,
    "R_traverse_least": cost.traverse_least,
}
