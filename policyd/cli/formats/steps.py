"""The parts of an expression and their values: a line each for people, or JSON."""

import json
from typing import Any, Final

from policyd.cel.errors import CelError
from policyd.cel.explain import EvaluationOutcome, ExpressionStep
from policyd.cel.values_as_json import as_json

_SHOWN: Final = 100
"""Characters of a value that are shown beside its expression."""


def written(outcome: EvaluationOutcome) -> tuple[Any, CelError | None]:
    """Return a value as JSON, or the error that came instead of it, or of its JSON."""
    if outcome.error is not None:
        return None, outcome.error
    try:
        return as_json(outcome.value), None
    except CelError as error:
        return None, error


def outcome_as_json(outcome: EvaluationOutcome) -> dict[str, Any]:
    """Return a value, or the error that came instead and where."""
    value, error = written(outcome)
    if error is None:
        return {"value": value}
    return {"error": error.message, "line": error.line, "column": error.column}


def step_as_json(step: ExpressionStep) -> dict[str, Any]:
    """Return a part for machines."""
    evaluated = {"evaluated": False} if step.outcome is None else outcome_as_json(step.outcome)
    place = {"line": step.line, "column": step.column, "depth": step.depth}
    return {"expression": step.text, **place, **evaluated}


def line_of(step: ExpressionStep) -> str:
    """Write a part and its value on one line, indented by how deep it is."""
    indent = "  " * step.depth
    text = step.text if len(step.text) <= _SHOWN else f"{step.text[: _SHOWN - 1]}…"
    if step.is_round:
        return f"{indent}{text} = {brief(step.outcome)}"
    return f"{indent}{text}  →  {brief(step.outcome)}"


def brief(outcome: EvaluationOutcome | None) -> str:
    """Write a value so that it fits beside its expression."""
    if outcome is None:
        return "not evaluated"
    value, error = written(outcome)
    if error is not None:
        return f"error: {error.message}"
    text = json.dumps(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
