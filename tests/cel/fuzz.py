"""Make up expressions, and see that what is compiled means what the reference evaluator says.

    python -m tests.cel.fuzz 100000 [SEED]

Prints each expression with different outcomes; ends with 1 if there is one.
"""

import random
import sys
import time

from policyd.cel import Budget, CelError, CelInternalError
from policyd.cel.program import compile_unchecked
from tests.cel import reference
from tests.cel.expressions import ENVIRONMENT, TYPED, VARIABLES, expression
from tests.cel.outcomes import outcome

_SHOWN = 20
# The reference evaluator has no limits.
_TOO_COSTLY = ("error", "operation cancelled: actual cost limit exceeded")


def difference(source, environment):
    """Return what is wrong with an expression; empty if nothing is."""
    try:
        program = compile_unchecked(source, environment)
        compiled = outcome(lambda: program.evaluate(VARIABLES, Budget(10**12)))
    except (CelInternalError, CelError, RecursionError) as error:
        return f"{source}\n  {type(error).__name__}: {error}"
    walked = outcome(lambda: reference.evaluate(source, environment, VARIABLES))
    if compiled in (walked, _TOO_COSTLY):
        return ""
    return f"{source}\n  compiled:  {compiled}\n  reference: {walked}"


def main(arguments):
    wanted = int(arguments[0])
    seed = int(arguments[1]) if len(arguments) > 1 else random.randrange(10**6)
    choose = random.Random(seed).choice
    started = time.monotonic()
    wrong = 0
    for number in range(wanted):
        source = expression(choose)
        found = difference(source, TYPED if number % 2 else ENVIRONMENT)
        if found:
            wrong += 1
            if wrong <= _SHOWN:
                print(found, flush=True)
    seconds = time.monotonic() - started
    print(f"{wanted} expressions, seed {seed}, {seconds:.0f} s: {wrong} with different outcomes")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
