"""Select parts of the data of a GlobalContextEntry, by JMESPath."""

from collections.abc import Mapping
from typing import Final

import jmespath
import jmespath.exceptions

from policyd.api.meta import Json
from policyd.errors import PolicydError, did_you_mean

LONGEST: Final = 20_000
"""Characters of an expression, at most."""


class ProjectionError(PolicydError):
    """A part cannot be selected."""


def selected(
    data: Json,
    projections: Mapping[str, str],
    entry: str,
    projection: str = "",
    expression: str = "",
) -> Json:
    """Return a part of the data of an entry.

    Args:
        data: All of the data.
        projections: The JMESPath of the entry's projections, by name.
        entry: The name of the entry, for errors.
        projection: The name of the projection to return; empty for all of the data.
        expression: JMESPath to evaluate on that; empty for none.

    Raises:
        ProjectionError: If there is no such projection, or an expression fails.
    """
    if projection:
        if projection not in projections:
            near = did_you_mean(projection, projections)
            hint = f": {near}" if near else ""
            raise ProjectionError(f"entry `{entry}` has no projection `{projection}`{hint}")
        data = _searched(data, projections[projection], entry)
    return _searched(data, expression, entry) if expression else data


def _searched(data: Json, expression: str, entry: str) -> Json:
    if len(expression) > LONGEST:
        raise ProjectionError(
            f"an expression of {len(expression)} characters is too long: write {LONGEST} at most"
        )
    try:
        return jmespath.search(expression, data)
    except jmespath.exceptions.JMESPathError as error:
        reason = str(error).partition("\n")[0]
        raise ProjectionError(f"`{expression}` fails on entry `{entry}`: {reason}") from error
    except RecursionError as error:
        shown = f"an expression of {len(expression)} characters of entry `{entry}`"
        raise ProjectionError(f"{shown} is nested too deep") from error
