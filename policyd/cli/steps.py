"""The parts of an expression and their values: a line each for people, or JSON."""

import json
from typing import Any, Final

from policyd.cel.explain import Outcome, Step
from policyd.cel.values_as_json import as_json

_SHOWN: Final = 100
"""Characters of a value that are shown beside its expression."""


def outcome_as_json(outcome: Outcome) -> dict[str, Any]:
    """Return a value, or the error that came instead and where."""
    if outcome.error is None:
        return {"value": as_json(outcome.value)}
    place = {"line": outcome.error.line, "column": outcome.error.column}
    return {"error": outcome.error.message, **place}


def step_as_json(step: Step) -> dict[str, Any]:
    """Return a part for machines."""
    evaluated = {"evaluated": False} if step.outcome is None else outcome_as_json(step.outcome)
    place = {"line": step.line, "column": step.column, "depth": step.depth}
    return {"expression": step.text, **place, **evaluated}


def line_of(step: Step) -> str:
    """Write a part and its value on one line, indented by how deep it is."""
    indent = "  " * step.depth
    text = step.text if len(step.text) <= _SHOWN else f"{step.text[: _SHOWN - 1]}…"
    if step.is_round:
        return f"{indent}{text} = {brief(step.outcome)}"
    return f"{indent}{text}  →  {brief(step.outcome)}"


def brief(outcome: Outcome | None) -> str:
    """Write a value so that it fits beside its expression."""
    if outcome is None:
        return "not evaluated"
    if outcome.error is not None:
        return f"error: {outcome.error.message}"
    text = json.dumps(as_json(outcome.value))
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
