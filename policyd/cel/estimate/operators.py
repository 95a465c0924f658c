"""What operators may cost, known from the sizes of their operands."""

from typing import Final

from policyd.cel.estimate.estimates import Charge, Sized, fixed
from policyd.cel.estimate.spans import ONE, Span
from policyd.cel.functions import Overload

_TEXTS: Final = frozenset(("string", "bytes"))
_COMPARISONS: Final = frozenset(("_<_", "_<=_", "_>_", "_>=_"))
_LONGEST_FORMAT: Final = 64
# Types of the API server that are equal or not at the price of one.
_AT_ONCE: Final = frozenset(
    (
        "net.IP",
        "net.CIDR",
        "kubernetes.Quantity",
        "kubernetes.Semver",
        "kubernetes.authorization.Authorizer",
        "kubernetes.authorization.PathCheck",
        "kubernetes.authorization.GroupCheck",
        "kubernetes.authorization.ResourceCheck",
        "kubernetes.authorization.Decision",
    )
)


def operator_charge(name: str, overload: Overload, arguments: tuple[Sized, ...]) -> Charge | None:
    """Return what an operator costs that looks at its operands; None if it is no such operator."""
    if name == "_==_":
        return _equality(arguments)
    if name == "_!=_":
        return _comparison(arguments)
    if name in _COMPARISONS:
        text = overload.parameters[0].name in _TEXTS
        return _comparison(arguments) if text else fixed(1)
    if name == "_+_":
        return _sum(overload, arguments)
    if name == "@in":
        is_list = overload.parameters[1].name == "list"
        return Charge(arguments[1].size) if is_list else fixed(1)
    return None


def _equality(arguments: tuple[Sized, ...]) -> Charge:
    left, right = arguments
    if left.kind == right.kind:
        if left.kind.name in _AT_ONCE:
            return fixed(1)
        if left.kind.name == "kubernetes.NamedFormat":
            return Charge(Span(1, _LONGEST_FORMAT).over(10))
        if left.kind.name == "kubernetes.URL":
            return Charge(Span(1, max(1, right.size.most)).over(10))
    return _comparison(arguments)


def _comparison(arguments: tuple[Sized, ...]) -> Charge:
    """Charge the shorter of two operands: at least its first character."""
    shortest = min(argument.size.most for argument in arguments)
    return Charge(Span(1 if shortest else 0, shortest).over(10))


def _sum(overload: Overload, arguments: tuple[Sized, ...]) -> Charge:
    kind = overload.parameters[0].name
    size = arguments[0].size + arguments[1].size
    if kind in _TEXTS:
        return Charge(size.over(10), size)
    return Charge(ONE, size) if kind == "list" else fixed(1)
