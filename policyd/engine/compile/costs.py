"""What a policy costs for objects of a size that is nothing special."""

from collections.abc import Iterator
from typing import Final

from policyd.cel import CelCompileError
from policyd.cel.cost import EXPRESSION_LIMIT
from policyd.cel.estimate.estimator import estimate_cost
from policyd.cel.estimate.spans import Span
from policyd.cel.types import Type
from policyd.engine.documents.findings import Doubt
from policyd.engine.model.compiled import CompiledPolicy
from policyd.engine.model.places import expressions_of

MANY: Final = 10
"""Elements of a list, or entries of an object, that are nothing special."""

_LONG: Final = 64
"""Letters of a text that are nothing special."""


def costs(policy: CompiledPolicy) -> Iterator[Doubt]:
    """Yield the expressions that may be over their limit for an object that is not even large."""
    for name, program, environment in expressions_of(policy):
        try:
            most = estimate_cost(program.source, environment, sizes=_ordinary).most
        except CelCompileError:  # compiled more leniently
            continue
        if most > EXPRESSION_LIMIT:
            message = (
                f"`{name}` may cost {most:,} where each list has {MANY} elements,"
                f" the limit is {EXPRESSION_LIMIT:,}"
            )
            yield Doubt(message, "let loops not stand in loops", "cost")


def _ordinary(_path: tuple[str, ...], kind: Type) -> Span:
    return Span(0, _LONG if kind.name in ("string", "bytes") else MANY)
