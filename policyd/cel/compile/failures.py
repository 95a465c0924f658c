"""Turn an exception of generated code into a CEL error with its position."""

from types import FrameType, TracebackType
from typing import Final

from policyd.cel.compile.lines import Probe
from policyd.cel.cost import Budget
from policyd.cel.errors import CelCostError, CelError, CelInternalError
from policyd.cel.values import unselectable

FILE: Final = "<cel>"
"""The name of generated code in tracebacks."""
PLACES: Final = "_places"
"""The global of generated code that has position and probe of each of its lines."""
# An error that is absorbed takes as long as comparing so many elements. Besides, Python looks for
# the number of its line from the function's first line on, and copies all local names: so many take
# as long as an element.
_ERROR_WORK: Final = 20
_PASSED: Final = 4


def translate(error: BaseException) -> CelError:
    """Return an error of generated code as one of CEL, with the position of its line.

    A KeyError or TypeError of the generated line itself is a failed selection. Anything else that
    is not a CelError is a bug, and must not pass for an error of the expression.
    """
    frame, position, probe = _failed_line(error.__traceback__)
    if isinstance(error, CelError):
        if error.position is None:
            error.position = position
        return _bare(error)
    if isinstance(error, RecursionError):
        return CelCostError("operation cancelled: values nest too deep", position=position)
    if frame is None or probe is None or not isinstance(error, KeyError | TypeError):
        wrong = CelInternalError(f"internal error: {type(error).__name__}: {error}")
        wrong.__cause__ = error
        wrong.position = position
        return wrong
    key = _value_of(probe.key, frame) if probe.key_is_variable else probe.key
    failed = unselectable(_value_of(probe.container, frame), key)
    failed.position = position
    return failed


def _value_of(name: str, frame: FrameType) -> object:
    """Return the value a variable or constant of generated code had."""
    names = frame.f_locals
    return names[name] if name in names else frame.f_globals[name]


def _failed_line(
    traceback: TracebackType | None,
) -> tuple[FrameType | None, int | None, Probe | None]:
    """Return the frame of generated code that failed, and the purpose of its line.

    There is no probe if the line failed in a function that it called.
    """
    frame, position, probe = None, None, None
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if code.co_filename == FILE:
            frame = traceback.tb_frame
            position, probe = frame.f_globals[PLACES][traceback.tb_lineno - 1]
        else:
            probe = None
        traceback = traceback.tb_next
    return frame, position, probe


def _bare(error: CelError) -> CelError:
    """Drop the traceback: an error that is kept would keep the whole evaluation alive."""
    error.__context__ = None
    return error.with_traceback(None)


def absorb(error: BaseException, first: CelError | None, budget: Budget) -> CelError:
    """Return the error a guarded operand is remembered by: the first one.

    Raises:
        CelCostError: If `error` is one; nothing absorbs it.
        CelInternalError: If `error` is one; nothing absorbs it.
    """
    budget.charge_work(_ERROR_WORK + _passed(error.__traceback__) // _PASSED)
    failed = translate(error)
    if isinstance(failed, CelCostError | CelInternalError):
        raise failed
    return first or failed


def _passed(traceback: TracebackType | None) -> int:
    """Return how many lines Python passes in looking for those of an error, and how many names."""
    passed = 0
    while traceback is not None:
        code = traceback.tb_frame.f_code
        passed += traceback.tb_lineno - code.co_firstlineno + code.co_nlocals
        traceback = traceback.tb_next
    return passed
