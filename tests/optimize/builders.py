"""States that decide what goes beyond Kueue's rules."""

from policyd.optimize.optimizer import Optimizer
from tests.alloc import builders


def state(*things, **others):
    return builders.state(*things, extend=Optimizer, **others)
