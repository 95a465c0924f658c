"""Generate loops and bindings.

The cost of an iteration is that of cel-go's expansion: reading the accumulator, testing whether to
go on, and the step itself.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from policyd.cel import cost
from policyd.cel.compile.generator import Atom, Generator, Local, local
from policyd.cel.lib.lists import self_compare_cost
from policyd.cel.syntax import ast

_ACCUMULATOR = cost.IDENTIFIER


def emit_comprehension(generator: Generator, node: ast.Comprehension) -> Atom:
    """Write a macro that loops."""
    if node.kind in ("all", "exists"):
        return _emit_quantifier(generator, node)
    if node.kind == "exists_one":
        return _emit_exists_one(generator, node)
    if node.kind in ("transformMap", "transformMapEntry"):
        return _emit_transform_map(generator, node)
    return _emit_transform_list(generator, node)


class _Range:
    """The range of a macro: the header of its loop, and the values of its variables."""

    def __init__(
        self, generator: Generator, node: ast.ExpressionNode, variables: tuple[str, ...]
    ) -> None:
        container = generator.emit_named(node)
        if len(variables) == 2:
            items = generator.assign(f"R_pairs({container.code})", position=node.position)
        elif container.kind == "list":
            items = container
        else:
            code = f"type({container.code}) is list else R_elements({container.code})"
            items = generator.assign(f"{container.code} if {code}", position=node.position)
        self.names = [generator.temporary() for _ in variables]
        self.header = f"for {', '.join(self.names)} in {items.code}:"
        self.variables = {
            variable: local(Atom(name))
            for variable, name in zip(variables, self.names, strict=True)
        }


def _emit_quantifier(generator: Generator, node: ast.Comprehension) -> Atom:
    """Write `all` or `exists`: an element that decides absorbs errors of the others."""
    every = node.kind == "all"
    neutral, undecided = ("True", "{}") if every else ("False", "not {}")
    over = _Range(generator, node.range, node.variables)
    result, error = generator.temporary(), generator.temporary()
    generator.line(f"{result} = {neutral}")
    generator.line(f"{error} = None")
    generator.charge(_ACCUMULATOR)
    test = 2 if every else 3
    before, generator.raising = generator.raising, False
    with generator.loop(over.header), generator.bound(over.variables):
        generator.charge(test + _ACCUMULATOR)
        with generator.guard(result, error, neutral):
            atom = generator.emit_bool(node.result)
            generator.line(f"{result} = {atom.code}")
        decided = f"not {result}" if every else result
        with generator.block(f"if {decided}:"):
            generator.charge(test)
            generator.line("break")
    if generator.raising:
        generator.line(f"if {error} is not None and {undecided.format(result)}: raise {error}")
    generator.raising = generator.raising or before
    return Atom(result, "bool")


class _Steps:
    """The steps of a loop that goes on after errors, as its expansion in cel-go does.

    A step is `condition ? accumulator + value : accumulator`: a condition that fails replaces the
    accumulator, be it an error or not, and one that is an error stays what it is in the sum. So the
    last error of a condition counts, and if there is none, the first of a value.
    """

    def __init__(self, generator: Generator) -> None:
        self._generator = generator
        self._error = generator.temporary()
        generator.line(f"{self._error} = None")

    @contextmanager
    def loop(self, over: _Range) -> Iterator[None]:
        """Write the loop, and raise the error that counts behind it."""
        generator = self._generator
        before, generator.raising = generator.raising, False
        with generator.loop(over.header), generator.bound(over.variables):
            yield
        if generator.raising:
            generator.line(f"if {self._error} is not None: raise {self._error}")
        generator.raising = generator.raising or before

    @contextmanager
    def where(self, condition: ast.ExpressionNode) -> Iterator[None]:
        """Write what is done for elements of which a condition is true."""
        generator, test = self._generator, self._generator.temporary()
        with generator.guard(test, self._error, "False", latest=True):
            atom = generator.emit_bool(condition)
            generator.line(f"{test} = {atom.code}")
        with (
            generator.block(f"if {test}:"),
            generator.guard(generator.temporary(), self._error, "None"),
        ):
            yield


def _emit_exists_one(generator: Generator, node: ast.Comprehension) -> Atom:
    over = _Range(generator, node.range, node.variables)
    counter = generator.assign("0", "int")
    generator.charge(_ACCUMULATOR + 1)
    steps = _Steps(generator)
    with steps.loop(over), steps.where(node.result):
        generator.charge(_ACCUMULATOR + 1)
        generator.line(f"{counter.code} += 1")
    return generator.assign(f"{counter.code} == 1", "bool")


def _emit_transform_list(generator: Generator, node: ast.Comprehension) -> Atom:
    """Write `map`, `filter` or `transformList`."""
    over = _Range(generator, node.range, node.variables)
    made = generator.assign("[]", "list")
    generator.charge(_ACCUMULATOR + _empty(generator, cost.LIST))
    _emit_steps(generator, node, over, partial(_append, generator, node, made))
    return made


def _emit_steps(
    generator: Generator, node: ast.Comprehension, over: _Range, step: Callable[[], None]
) -> None:
    """Write a loop with a step for each element, or for those of which a condition is true."""
    condition = node.result if node.kind == "filter" else node.condition
    if condition is None:
        with generator.loop(over.header), generator.bound(over.variables):
            step()
        return
    steps = _Steps(generator)
    with steps.loop(over), steps.where(condition):
        step()


def _empty(generator: Generator, price: int) -> int:
    """Return the cost of the empty list or map that a loop begins with."""
    return 0 if generator.environment.free_constants else price


def _append(generator: Generator, node: ast.Comprehension, made: Atom) -> None:
    generator.charge(_ACCUMULATOR + cost.LIST + 1)
    if node.kind == "filter":
        generator.charge(cost.IDENTIFIER)
        atom = generator.read(node.variables[0])
    else:
        atom = generator.emit(node.result)
    generator.line(f"{made.code}.append({atom.code})")


def _emit_transform_map(generator: Generator, node: ast.Comprehension) -> Atom:
    over = _Range(generator, node.range, node.variables)
    made = generator.assign("{}", "map")
    generator.charge(_ACCUMULATOR + _empty(generator, cost.MAP))
    _emit_steps(generator, node, over, partial(_insert, generator, node, made))
    return generator.assign(f"R_finish_map({made.code})", "map")


def _insert(generator: Generator, node: ast.Comprehension, made: Atom) -> None:
    atom = generator.emit(node.result)
    if node.kind == "transformMapEntry":
        generator.charge(_ACCUMULATOR + 1)
        # The map that is merged may be as large as any; its entries are copied.
        generator.line(f"B.charge_work(R_size_of({atom.code}))", node.position)
        generator.line(f"R_merge({made.code}, {atom.code})", node.position)
        return
    generator.charge(_ACCUMULATOR + cost.IDENTIFIER + 1, work=1)
    key = generator.read(node.variables[0])
    # Keys of a map and indexes of a list come once each; most need no other form.
    with generator.block(f"if type({key.code}) is str or type({key.code}) is int:"):
        generator.line(f"{made.code}[{key.code}] = {atom.code}")
    with generator.block("else:"):
        generator.line(f"R_insert({made.code}, {key.code}, {atom.code})", node.position)


def emit_bind(generator: Generator, node: ast.Bind) -> Atom:
    """Write `cel.bind`: an error of the value shows only where the variable is used."""
    value, error = generator.temporary(), generator.temporary()
    before, generator.raising = generator.raising, False
    generator.line(f"{error} = None")
    with generator.guard(value, error, "None"):
        atom = generator.emit(node.value)
        generator.line(f"{value} = {atom.code}")
    failing = generator.raising
    generator.raising = before

    def read() -> Atom:
        if failing:
            generator.line(f"if {error} is not None: raise {error}", node.position)
        return Atom(value, atom.kind)

    with generator.bound({node.name: Local(read, (value, error))}):
        return generator.emit(node.body)


def emit_optional_map(generator: Generator, node: ast.OptionalMap) -> Atom:
    """Write `optMap` or `optFlatMap`.

    cel-go asks the operand whether it has a value, and evaluates it again to get it: where there is
    one, the operand's cost counts twice.
    """
    again, result = generator.temporary(), generator.temporary()
    generator.line(f"{again} = c")
    with generator.block("if True:"):
        operand = generator.emit_named(node.operand)
    generator.line(f"{again} = c - {again}")
    generator.charge(1)
    value = Atom(generator.temporary())
    generator.line(f"R_need_optional({operand.code})", node.position)
    with generator.block(f"if {operand.code}.present:"), generator.bound({node.name: local(value)}):
        generator.charge(_empty(generator, cost.LIST) + (1 if node.flat else 2))
        generator.charge_counted(again, check=False)
        generator.line(f"{value.code} = {operand.code}.value")
        body = generator.emit(node.body)
        wrap = "R_need_optional" if node.flat else "R_Optional"
        generator.line(f"{result} = {wrap}({body.code})", node.position)
    with generator.block("else:"):
        generator.charge(1)
        generator.line(f"{result} = R_NONE")
    return Atom(result, "optional_type")


def emit_sort_by(generator: Generator, node: ast.SortBy) -> Atom:
    """Write `sortBy`: cel-go binds the list, maps it to its keys, and sorts it by them."""
    generator.charge(2 + _ACCUMULATOR + 2 * _empty(generator, cost.LIST))
    over = _Range(generator, node.operand, (node.name,))
    keyed = generator.assign("[]", "list")
    with generator.loop(over.header), generator.bound(over.variables):
        generator.charge(_ACCUMULATOR + cost.LIST + 1)
        key = generator.emit(node.key)
        generator.line(f"{keyed.code}.append(({key.code}, {over.names[0]}))")
    # Sorting compares each element with some ten others.
    keys = f"[key for key, _ in {keyed.code}]"
    generator.charge_counted(f"{generator.constant(self_compare_cost)}({keys})")
    generator.line(f"B.charge_work(R_deep_size({keys}, times=10))", node.position)
    return generator.assign(f"R_sort_pairs({keyed.code})", "list", node.position)
