"""Compile expressions, and evaluate the compiled programs."""

from collections.abc import Callable, Mapping
from types import CodeType, FunctionType
from typing import Any, Final

from policyd.cel.check.checked import CheckedExpression, VariableReference
from policyd.cel.check.checker import check, check_leniently
from policyd.cel.compile.allowance import Allowance, current
from policyd.cel.compile.emit_calls import emit_call
from policyd.cel.compile.emit_macros import (
    emit_bind,
    emit_comprehension,
    emit_optional_map,
    emit_sort_by,
)
from policyd.cel.compile.emit_nested import write_nested
from policyd.cel.compile.emit_values import (
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
from policyd.cel.compile.failures import FILE, PLACES, translate
from policyd.cel.compile.generator import Emit, Generator
from policyd.cel.compile.globals import GLOBALS
from policyd.cel.compile.lines import Generated
from policyd.cel.cost import Budget
from policyd.cel.environment import Environment
from policyd.cel.errors import (
    CelCompileError,
    CelCostError,
    CelError,
    CelInternalError,
    TooMuchError,
    issue_at,
    locate,
)
from policyd.cel.recursion import deep_recursion
from policyd.cel.syntax import ast
from policyd.cel.syntax.parser import parse
from policyd.cel.types import BOOL, BYTES, DOUBLE, DYN, INT, NULL, STRING, Type, list_of
from policyd.cel.values import Value

_EMITTERS: Final[dict[type[ast.ExpressionNode], Emit]] = {
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


MAX_LINES: Final = 60_000
"""Lines of Python one expression may become: Python takes 3 KB each to compile them."""


# The place of all lines that cannot fail.
_NOWHERE: Final = None, None

Run = Callable[[Mapping[str, object], Budget], Value]
"""The function an expression becomes."""


class Program:
    """A compiled expression; it keeps nothing between evaluations, so threads may share it.

    Attributes:
        run: The function that evaluates it, without the position of an error.
        source: The text of the expression.
        result_type: The type of its result, as far as the checker knows.
        variables_used: The variables it reads; `variables.x` by that name.
    """

    __slots__ = ("result_type", "run", "source", "variables_used")

    def __init__(self, source: str, checked: CheckedExpression, run: Run) -> None:
        self.source = source
        self.result_type = checked.result
        self.variables_used = _variables_used(checked)
        self.run = run

    def evaluate(self, variables: Mapping[str, object], budget: Budget) -> Value:
        """Evaluate the expression on decoded JSON.

        Args:
            variables: A value for each variable the expression uses. They are not changed; the
                result may share parts of them.
            budget: The remaining budget of the policy's expressions; it is charged.

        Raises:
            CelError: If the evaluation fails; it says where in the expression.
            CelCostError: If the expression, the policy, or the request costs too much.
            CelTimeError: If the caller's timeout is about to expire.
        """
        outer, budget.work = budget.work, 0
        if budget.weights:
            budget.begin_weighing()
        try:
            return self.run(variables, budget)
        except Exception as error:  # noqa: BLE001 - fail closed for any object
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
        environment: The variables and functions of the expression.
        wants: The type of its result: a type, or a name of WANTED, several with `|` between
            them, or `any`.

    Raises:
        CelCompileError: If the expression cannot be used; its issues say where and why.
    """
    allowance = current()
    if allowance is None:
        return _compiled(source, environment, wants)
    allowance.take(source)
    _check_allowance(allowance, source)
    program = _compiled(source, environment, wants)
    _check_allowance(allowance, source)
    return program


def _compiled(source: str, environment: Environment, wants: str | Type) -> Program:
    tree = parse(source, macros=environment.macros)
    with deep_recursion():
        checked = check(tree, source, environment)
        _check_result(checked, source, wants)
        nested = write_nested(checked)
        if nested is None:
            return compile_checked(source, checked, environment)
        # Errors are located in the function in full: the lines of this one have no places.
        names = {"R_whole": _Whole(source, environment)}
        return Program(source, checked, _define(nested, "<nested>", names))


def _check_allowance(allowance: Allowance, source: str) -> None:
    exceeded = allowance.exceeded
    if exceeded is not None:
        raise TooMuchError([issue_at(source, 0, *exceeded)])


def compile_unchecked(source: str, environment: Environment) -> Program:
    """Compile an expression regardless of types: errors occur when it is evaluated.

    Raises:
        CelCompileError: If the expression cannot be parsed.
    """
    tree = parse(source, macros=environment.macros)
    with deep_recursion():
        return compile_checked(source, check_leniently(tree, source, environment), environment)


def _check_result(checked: CheckedExpression, source: str, wants: str | Type) -> None:
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


def compile_checked(source: str, checked: CheckedExpression, environment: Environment) -> Program:
    """Compile a tree that was checked, or a part of one: `checked.tree` says which."""
    generated = Generator(source, checked, environment, _EMITTERS).generate()
    if len(generated.lines) > MAX_LINES:
        wrong = f"expression too large: {len(generated.lines)} operations, limit: {MAX_LINES}"
        raise CelCompileError([issue_at(source, checked.tree.position, wrong)])
    return Program(source, checked, _load(generated))


class _Whole:
    """The function in full of an expression, compiled when it is first needed."""

    __slots__ = ("_environment", "_run", "_source")

    def __init__(self, source: str, environment: Environment) -> None:
        self._source = source
        self._environment = environment
        self._run: Run | None = None

    def __call__(self, variables: Mapping[str, object], budget: Budget) -> Value:
        """Evaluate the expression."""
        if self._run is None:
            tree = parse(self._source, macros=self._environment.macros)
            with deep_recursion():
                checked = check(tree, self._source, self._environment)
                self._run = compile_checked(self._source, checked, self._environment).run
        return self._run(variables, budget)


def _load(generated: Generated) -> FunctionType:
    places = tuple(
        _NOWHERE if line.position is None else (line.position, line.probe)
        for line in generated.lines
    )
    return _define(generated.source, FILE, {**generated.constants, PLACES: places})


def _define(source: str, file: str, names: Mapping[str, object]) -> FunctionType:
    namespace: dict[str, object] = {"__builtins__": GLOBALS, **names}
    code: CodeType = compile(source, file, "exec")
    exec(code, namespace)  # noqa: S102 - INVARIANT: the source holds no text of the expression
    function = namespace["cel"]
    assert isinstance(function, FunctionType), "the generated source defines `cel`"
    return function


def _variables_used(checked: CheckedExpression) -> frozenset[str]:
    used = {
        (reference.name, reference.fields[:1] if reference.name == "variables" else ())
        for reference in checked.references.values()
        if isinstance(reference, VariableReference)
    }
    # The operand of has(variables.x) is noted besides the whole.
    names = {".".join((name, *field)) for name, field in used}
    dotted = any(field for _, field in used)
    return frozenset(names - {"variables"} if dotted else names)


class LazyVariables(dict[str, Any]):
    """Values of variables by name; errors are remembered like values.

    Put it into the variables of an evaluation under the name `variables`. A variable may use those
    declared before it: a policy's types make sure that there are no cycles.
    """

    __slots__ = ("_activation", "_budget", "_failed", "_programs")

    def __init__(
        self, programs: Mapping[str, Program], activation: Mapping[str, object], budget: Budget
    ) -> None:
        """Prepare the variables of one request.

        Args:
            programs: The expression of each variable.
            activation: The variables of the expressions, without `variables`.
            budget: The remaining budget of the policy's expressions.
        """
        super().__init__()
        self._programs = programs
        self._activation = dict(activation)
        self._budget = budget
        self._failed: dict[str, str] = {}

    def __missing__(self, name: str) -> object:
        program = self._programs.get(name)
        if program is None:
            raise CelError(f"no such key: {name}")
        if name in self._failed:
            raise CelError(self._failed[name])
        seen = self._activation
        outermost = seen.get("variables") is not self
        if outermost:
            seen["variables"] = self
        try:
            value = self[name] = program.evaluate(seen, self._budget)
        except (CelCostError, CelInternalError):
            raise
        except CelError as error:
            message = f'composited variable "{name}" fails to evaluate: {error.message}'
            self._failed[name] = message
            raise CelError(message) from error
        finally:
            if outermost:  # a cycle would keep the object until the garbage is collected
                del seen["variables"]
        return value

    def __contains__(self, name: object) -> bool:
        """Tell whether there is a variable; in the API server, one that fails is none to ask for.

        Raises:
            CelError: If it cannot be evaluated.
        """
        if not isinstance(name, str) or name not in self._programs:
            return False
        _ = self[name]
        return True
