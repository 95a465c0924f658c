"""Optional values: `object.?spec.orValue({})`."""

from policyd.cel.containers import need_optional
from policyd.cel.cost import elements
from policyd.cel.errors import CelError
from policyd.cel.estimate.estimates import fixed
from policyd.cel.functions import Overload, Size, function, method
from policyd.cel.types import BOOL, A, list_of, optional_of
from policyd.cel.values import NONE, Duration, Optional, Timestamp

_ZEROS = frozenset((int, float, bool, str, bytes))


def _of(value: object) -> Optional:
    return Optional(value)


def _none() -> Optional:
    return NONE


def _is_zero(value: object) -> bool:
    if type(value) is Duration or type(value) is Timestamp:
        return value.nanoseconds == 0
    if type(value) is Optional:
        return not value.present
    scalar = type(value) in _ZEROS or isinstance(value, int | list | dict)
    return value is None or (scalar and not value)


def _of_non_zero(value: object) -> Optional:
    return NONE if _is_zero(value) else Optional(value)


def _has_value(optional: Optional) -> bool:
    return optional.present


def _value(optional: Optional) -> object:
    if optional.present:
        return optional.value
    raise CelError("optional.none() dereference")


def _or(optional: Optional, other: Optional) -> Optional:
    return optional if optional.present else other


def _or_value(optional: Optional, other: object) -> object:
    return optional.value if optional.present else other


def _unwrap(optionals: list[object]) -> list[object]:
    return [item.value for item in map(need_optional, optionals) if item.present]


_EACH = Size(work=elements)
# The API server's estimate counts a call that costs nothing when it is evaluated.
_ELSE = Size(cost=0, estimate=lambda _arguments: fixed(1))

OPTIONALS: tuple[Overload, ...] = (
    function("optional.of", A, returns=optional_of(A), run=_of),
    function("optional.none", returns=optional_of(A), run=_none),
    function("optional.ofNonZeroValue", A, returns=optional_of(A), run=_of_non_zero),
    function(
        "optional.unwrap", list_of(optional_of(A)), returns=list_of(A), run=_unwrap, size=_EACH
    ),
    method("unwrapOpt", list_of(optional_of(A)), returns=list_of(A), run=_unwrap, size=_EACH),
    method("hasValue", optional_of(A), returns=BOOL, run=_has_value),
    method("value", optional_of(A), returns=A, run=_value),
    method("or", optional_of(A), optional_of(A), returns=optional_of(A), run=_or, size=_ELSE),
    method("orValue", optional_of(A), A, returns=A, run=_or_value, size=_ELSE),
)
