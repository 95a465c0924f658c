"""Select parts of the data of a GlobalContextEntry, by JMESPath."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import jmespath
import jmespath.exceptions
from jmespath.visitor import TreeInterpreter

from policyd.api.meta import Json
from policyd.cel.cost import deep_size
from policyd.errors import PolicydError, did_you_mean

LONGEST: Final = 20_000
"""Characters of an expression, at most."""

Charge = Callable[[int], None]
"""Charges for elements that are looked at. Raises an error if they are too many."""

_NESTING: Final = frozenset({"literal", "multi_select_dict", "multi_select_list"})
"""Kinds of nodes whose values may have a part many times, deep down."""
_CHARACTERS: Final = 100
_STEP: Final = 2
"""The work of a node besides its value."""


class _Interpreter(TreeInterpreter):
    """Evaluates JMESPath, and charges for each step: an expression may double a list each time."""

    def __init__(self, charge: Charge) -> None:
        super().__init__()
        self._charge = charge

    def visit(self, node: Any, *given: Any, **named: Any) -> Any:  # noqa: ANN401
        value = super().visit(node, *given, **named)
        work = _STEP
        if node["type"] in _NESTING:
            work += deep_size(value)
        elif isinstance(value, str):
            work += len(value) // _CHARACTERS
        elif isinstance(value, list | dict) and node["type"] not in {"field", "current"}:
            work += len(value)
        self._charge(work)
        return value


def fault_of(expression: str) -> str:
    """Return what is wrong with the syntax of an expression; empty if nothing is found."""
    try:
        jmespath.compile(expression)
    except jmespath.exceptions.JMESPathError as error:
        return str(error).partition("\n")[0]
    except RecursionError:
        pass  # an evaluation reports it
    return ""


class ProjectionError(PolicydError):
    """A part cannot be selected."""


def selected(  # noqa: PLR0913 - what a call of globalContext.Get has
    data: Json,
    projections: Mapping[str, str],
    entry: str,
    projection: str = "",
    expression: str = "",
    *,
    charge: Charge,
) -> Json:
    """Return a part of the data of an entry.

    Args:
        data: All of the data.
        projections: The JMESPath of the entry's projections, by name.
        entry: The name of the entry, for errors.
        projection: The name of the projection to return; empty for all of the data.
        expression: JMESPath to evaluate on that; empty for none.
        charge: Is called with the work of each step.

    Raises:
        ProjectionError: If there is no such projection, or an expression fails.
    """
    if projection:
        if projection not in projections:
            near = did_you_mean(projection, projections)
            hint = f": {near}" if near else ""
            raise ProjectionError(f"entry `{entry}` has no projection `{projection}`{hint}")
        data = _searched(data, projections[projection], entry, charge)
    return _searched(data, expression, entry, charge) if expression else data


def _searched(data: Json, expression: str, entry: str, charge: Charge) -> Json:
    if len(expression) > LONGEST:
        raise ProjectionError(
            f"an expression of {len(expression)} characters is too long: write {LONGEST} at most"
        )
    try:
        return _Interpreter(charge).visit(jmespath.compile(expression).parsed, data)
    except jmespath.exceptions.JMESPathError as error:
        reason = str(error).partition("\n")[0]
        raise ProjectionError(f"`{expression}` fails on entry `{entry}`: {reason}") from error
    except RecursionError as error:
        shown = f"an expression of {len(expression)} characters of entry `{entry}`"
        raise ProjectionError(f"{shown} is nested too deep") from error
