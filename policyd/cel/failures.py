"""Turn what a generated line raises into an error of CEL that says where."""

from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Final

from policyd.cel.cost import Budget
from policyd.cel.errors import CelCostError, CelError, CelInternalError
from policyd.cel.generator import Line
from policyd.cel.values import unselectable

FILE: Final = "<cel>"
"""The name of generated code in tracebacks."""
# An error that is absorbed takes as long as comparing so many elements.
_ERROR_WORK: Final = 10


def translate(error: BaseException) -> CelError:
    """Return an error of generated code as one of CEL, with the position of its line.

    A KeyError or TypeError of the generated line itself is a failed selection. Anything else that
    is no CelError is a bug, and must not pass for an error of the expression.
    """
    line, names = _failed_line(error.__traceback__)
    if isinstance(error, CelError):
        if error.position is None and line is not None:
            error.position = line.position if line.position != -1 else None
        return _bare(error)
    if line is None or line.probe is None or not isinstance(error, KeyError | TypeError):
        wrong = CelInternalError(f"internal error: {type(error).__name__}: {error}")
        wrong.__cause__ = error
        wrong.position = line.position if line else None
        return wrong
    container, key = names[line.probe.container], line.probe.key
    failed = unselectable(container, names[key] if line.probe.key_is_variable else key)
    failed.position = line.position
    return failed


def _failed_line(
    traceback: TracebackType | None,
) -> tuple[Line | None, Mapping[str, Any]]:
    """Return the line of generated code that failed, and the values of the names in it.

    The line has no probe if it failed in something it called.
    """
    found: Line | None = None
    names: Mapping[str, Any] = {}
    for part in _frames(traceback):
        if part.tb_frame.f_code.co_filename == FILE:
            lines: list[Line] = part.tb_frame.f_globals["_lines"]
            found = lines[part.tb_lineno - 1]
            names = {**part.tb_frame.f_globals, **part.tb_frame.f_locals}
        elif found is not None:
            found = Line(0, "", found.position)
    return found, names


def _frames(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def _bare(error: CelError) -> CelError:
    """Drop the traceback: an error that is kept would keep the whole evaluation alive."""
    error.__context__ = None
    return error.with_traceback(None)


def absorb(error: BaseException, first: CelError | None, budget: Budget) -> CelError:
    """Return the error a guarded operand is remembered by: the first one.

    Raises:
        CelCostError: If that is what happened; nothing absorbs it.
        CelInternalError: If that is what happened; nothing absorbs it.
    """
    failed = translate(error)
    if isinstance(failed, CelCostError | CelInternalError):
        raise failed
    budget.charge_work(_ERROR_WORK)
    return first or failed
