"""Make up expressions, and see that what is compiled means what the reference evaluator says.

    python -m tests.cel.fuzz 100000 [SEED]
    python -m tests.cel.fuzz --cost 3000 [SEED]

Every eighth is loops in loops, which are compiled in two ways: of these errors have to be in the
same place, and costs have to be the same. Prints each expression with different outcomes, made as
small as it gets; ends with 1 if there is one.

With `--cost` expressions are made up over the largest objects, and measured: those that take most
CPU are printed, and those that take most for what they are charged; ends with 1 if one takes longer
than it may.
"""

import gc
import multiprocessing
import os
import random
import sys
import time
from typing import NamedTuple

from policyd.cel import Budget, CelCompileError, CelError, CelInternalError
from policyd.cel.compile.program import compile_unchecked
from policyd.cel.syntax import ast
from policyd.cel.syntax.parser import parse
from policyd.cel.syntax.unparse import unparse
from tests.cel import costly, nested, reference
from tests.cel.expressions import ENVIRONMENT, TYPED, VARIABLES, expression
from tests.cel.outcomes import outcome

_SHOWN = 20
_PORTION = 250
_BAR = 40
# What takes less is not judged by what it is charged.
_WORTH_SECONDS = 0.02
_OBJECTS = 4
# The reference evaluator has no limits.
_TOO_COSTLY = ("error", "operation cancelled: actual cost limit exceeded")


class FuzzCase(NamedTuple):
    """An expression, and what to evaluate it with, one after the other.

    Without an environment it is evaluated in two ways.
    """

    source: str
    environment: object
    variables: tuple


def made_up(seed, number):
    """Make up one of the expressions of a seed."""
    choose = random.Random(f"{seed} {number}").choice
    if number % 8 == 0:
        several = tuple(nested.objects(choose) for _ in range(_OBJECTS))
        return FuzzCase(nested.expression(choose), None, several)
    return FuzzCase(expression(choose), TYPED if number % 2 else ENVIRONMENT, (VARIABLES,))


def difference(made):
    """Return what is wrong with an expression; empty if nothing is."""
    source, environment, (variables, *_) = made
    try:
        if environment is None:
            return _difference_of_nested(source, made.variables)
        program = compile_unchecked(source, environment)
        compiled = outcome(lambda: program.evaluate(variables, Budget(10**12)))
    except (CelInternalError, CelError, RecursionError) as error:
        return f"{type(error).__name__}: {error}"
    walked = outcome(lambda: reference.evaluate(source, environment, variables))
    if compiled in (walked, _TOO_COSTLY):
        return ""
    return f"compiled:  {compiled}\n  reference: {walked}"


def _difference_of_nested(source, several):
    try:
        programs = nested.both_ways(source)
    except CelCompileError:
        return ""
    for variables in several:
        ordinary, whole = (nested.results(program, variables) for program in programs)
        walked = outcome(lambda: reference.evaluate(source, nested.ENVIRONMENT, variables))  # noqa: B023 - at once
        if ordinary != whole or whole[0] != walked:
            ways = f"ordinary:  {ordinary}\n  in full:   {whole}\n  reference: {walked}"
            return f"{ways}\n  of: {variables}"
    return ""


def smallest(made):
    """Return the smallest part of an expression in which the same kind of thing is wrong."""
    kind = difference(made).split()[0]
    parts = [parse(made.source, macros=(made.environment or nested.ENVIRONMENT).macros)]
    for part in parts:
        parts += ast.children(part)
    for part in sorted(map(unparse, parts), key=len):
        smaller = made._replace(source=part)
        if len(part) < len(made.source) and difference(smaller).startswith(kind):
            return smaller
    return made


def found_among(portion):
    """Return what is wrong with the expressions of a seed that have these numbers."""
    seed, numbers = portion
    tries = [made_up(seed, number) for number in numbers]
    return len(tries), [smallest(made) for made in tries if difference(made)]


def main(arguments):
    if arguments[0] == "--cost":
        return measured(int(arguments[1]), *map(int, arguments[2:]))
    wanted = int(arguments[0])
    seed = int(arguments[1]) if len(arguments) > 1 else random.randrange(10**6)
    print(f"seed {seed}", flush=True)
    starts = range(0, wanted, _PORTION)
    portions = [(seed, range(start, min(start + _PORTION, wanted))) for start in starts]
    started, done, wrong = time.monotonic(), 0, 0
    with multiprocessing.Pool(os.cpu_count()) as pool:
        for count, found in pool.imap_unordered(found_among, portions):
            done += count
            for made in found[: _SHOWN - wrong]:
                print(f"\r{made.source}\n  {difference(made)}", flush=True)
            wrong += len(found)
            show(done, wanted)
    seconds = time.monotonic() - started
    print(f"{wanted} expressions, seed {seed}, {seconds:.0f} s: {wrong} with different outcomes")
    return 1 if wrong else 0


def measured(wanted, seed=None):
    """Measure expressions, one after the other, and print those that take most."""
    seed = random.randrange(10**6) if seed is None else seed
    print(f"seed {seed}", flush=True)
    costly.variables()
    gc.collect()
    gc.freeze()  # else looking for garbage among all that takes longer than any expression
    found = []
    for number in range(wanted):
        one = costly.measure(costly.expression(seed, number))
        if one is not None:
            found.append(one)
        show(number + 1, wanted)
    print("Most CPU:")
    slow = [costly.measured_again(one) for one in sorted(found, reverse=True)[:_SHOWN]]
    for one in sorted(slow, reverse=True):
        print(f"  {costly.shown(one)}")
    print("Most CPU for what is charged:")
    worth = [one for one in found if one.seconds > _WORTH_SECONDS]
    for one in sorted(worth, key=lambda one: one.nanoseconds_per_unit, reverse=True)[:_SHOWN]:
        print(f"  {one.nanoseconds_per_unit:,.0f} ns a unit: {costly.shown(one)}")
    over = sum(one.seconds > costly.BOUND_SECONDS for one in slow)
    print(f"{wanted} expressions, seed {seed}: {over} take more than {costly.BOUND_SECONDS} s")
    return 1 if over else 0


def show(done, wanted):
    """Draw how far it is, where somebody watches."""
    if sys.stderr.isatty():
        filled = _BAR * done // wanted
        bar = "█" * filled + "·" * (_BAR - filled)
        print(f"\r{bar} {done:,} of {wanted:,}", end="\n" * (done == wanted), file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
