"""Outcomes of evaluations, in a form that compares strictly."""

import math

from policyd.cel import CelError, CelInternalError
from policyd.cel.values import CelMap, Optional


def outcome(evaluate):
    """Return the value in a form that compares strictly, or the error."""
    try:
        return strict(evaluate())
    except CelInternalError:
        raise
    except CelError as error:
        return ("error", error.message)


def strict(value):
    if isinstance(value, Optional):
        return ("optional", value.present, strict(value.value))
    if isinstance(value, list):
        return ("list", tuple(map(strict, value)))
    if isinstance(value, dict):
        items = value.items() if isinstance(value, CelMap) else list(value.items())
        return ("map", tuple((strict(key), strict(part)) for key, part in items))
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    return (type(value).__name__, value)
