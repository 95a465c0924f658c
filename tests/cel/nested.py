"""Loops in loops, and objects for them: mostly in order, so that both ways of evaluation are taken.

What fails, costs or is absorbed must not depend on the way.
"""

from policyd.cel import Budget, CelError
from policyd.cel.compile.program import compile_expression, compile_unchecked
from policyd.cel.environments import extended_environment
from policyd.cel.types import DYN
from tests.cel.outcomes import outcome

ENVIRONMENT = extended_environment().extend(variables={"a": DYN, "b": DYN})
_DEPTH = 4
_ORDERLY = [2, 3, 5, "x", "y", "a-longer-text", "another-longer-text", "a-longer-text-that-ends"]
_ODD = [0, 1, -1, True, False, None, "", 2.0, 1.5, "é" * 12, [], {}, [2], 10**20]
_FIELDS = ["name", "number", "part.name", "part['number']", "name", "number"]
_LISTS = ["list", "texts", "part.list"]
_SIGNS = {"and": "&&", "or": "||"}
_OFTEN = [*range(200)]


def objects(choose):
    """Make up what the variables hold."""
    oddness = choose([0, 0, 0, 1, 3])
    return {name: _thing(choose, oddness, 3) for name in "ab"}


def _thing(choose, oddness, depth):
    thing = {
        "name": _scalar(choose, oddness),
        "number": _scalar(choose, oddness),
        "part": {"name": _scalar(choose, oddness), "number": _scalar(choose, oddness)},
        "texts": [_scalar(choose, oddness) for _ in range(choose([0, 1, 2, 3]))],
        "list": _things(choose, oddness, depth),
    }
    thing["part"]["list"] = _things(choose, oddness, depth)
    if choose(_OFTEN) < oddness:
        del thing[choose(sorted(thing))]
    return thing


def _things(choose, oddness, depth):
    if choose(_OFTEN) < oddness:
        return choose(_ODD)
    return [_thing(choose, oddness, depth - 1) for _ in range(choose([0, 1, 2, 3]) if depth else 0)]


def _scalar(choose, oddness):
    return choose(_ODD if choose(_OFTEN) < oddness else _ORDERLY)


def expression(choose, variables=(), depth=_DEPTH):
    """Make up a test; `variables` are those of the loops around it."""
    forms = ["equal", "equal", "and", "or", "all", "all", "exists", "one", "one", "any one"]
    form = choose(forms if variables else ["all", "all", "all", "exists", "one", "and"])
    if depth == 0 or form == "equal":
        sides = [_selected(choose, variables)]
        sides.insert(choose([0, 1]), _value(choose, variables))
        return choose([" == ", " != ", " != "]).join(sides)
    if form in ("and", "or"):
        operands = [expression(choose, variables, depth - 1) for _ in range(choose([2, 2, 3]))]
        return f"({f' {_SIGNS[form]} '.join(operands)})"
    name = choose("vwxyz")
    inner = (*variables, name)
    macro = {"one": "exists_one", "any one": "exists_one"}.get(form, form)
    if form == "one":
        sides = [choose([name, *(f"{name}.{field}" for field in _FIELDS)])]
        sides.insert(choose([0, 1]), _value(choose, variables))
        return f"{_range(choose, variables)}.{macro}({name}, {' == '.join(sides)})"
    return f"{_range(choose, variables)}.{macro}({name}, {expression(choose, inner, depth - 1)})"


def _range(choose, variables):
    return f"{choose([*variables, 'a', 'b', *variables])}.{choose(_LISTS)}"


def _selected(choose, variables):
    return choose([f"{name}.{field}" for name in (*variables, "a") for field in _FIELDS])


def _value(choose, variables):
    literals = ["2", "'x'", "'a-longer-text'"]
    return choose([*[_selected(choose, variables)] * 12, *variables, *literals])


def results(program, variables):
    """Return what an evaluation shows: the outcome, where an error is, and what it cost."""
    budget, place = Budget(), None

    def evaluate():
        nonlocal place
        try:
            return program.evaluate(variables, budget)
        except CelError as error:
            place = error.line, error.column
            raise

    return outcome(evaluate), place, budget.spent


def both_ways(source):
    """Compile an expression as it is, and in full only."""
    return compile_expression(source, ENVIRONMENT), compile_unchecked(source, ENVIRONMENT)
