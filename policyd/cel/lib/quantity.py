"""Quantities: `quantity('1Gi').isLessThan(quantity('2Gi'))`."""

from policyd.api.quantity import Quantity, QuantityError, parse_quantity
from policyd.cel.cost import LengthWork, traverse
from policyd.cel.errors import CelError
from policyd.cel.functions import Overload, Size, function, method
from policyd.cel.types import BOOL, DOUBLE, INT, STRING, Type

QUANTITY = Type("kubernetes.Quantity")


class CelQuantity:
    """A quantity as a value of CEL; equal quantities are equal however they are written."""

    __slots__ = ("quantity",)
    cel_type_name = QUANTITY.name

    def __init__(self, quantity: Quantity) -> None:
        self.quantity = quantity

    def __eq__(self, other: object) -> bool:
        return type(other) is CelQuantity and other.quantity == self.quantity

    def __hash__(self) -> int:
        return hash(self.quantity)

    def __repr__(self) -> str:
        return f"quantity('{self.quantity}')"


def _quantity(text: str) -> CelQuantity:
    try:
        return CelQuantity(parse_quantity(text))
    except QuantityError as error:
        raise CelError(str(error)) from None


def _is_quantity(text: str) -> bool:
    try:
        parse_quantity(text)
    except QuantityError:
        return False
    return True


def _compare(a: CelQuantity, b: CelQuantity) -> int:
    x, y = a.quantity.nano, b.quantity.nano
    return (x > y) - (x < y)


def _is_less(a: CelQuantity, b: CelQuantity) -> bool:
    return a.quantity.nano < b.quantity.nano


def _is_greater(a: CelQuantity, b: CelQuantity) -> bool:
    return a.quantity.nano > b.quantity.nano


def _whole(number: int) -> Quantity:
    return Quantity(number * 10**9, "DecimalExponent")


def _add(a: CelQuantity, b: CelQuantity) -> CelQuantity:
    return CelQuantity(a.quantity + b.quantity)


def _add_int(a: CelQuantity, b: int) -> CelQuantity:
    return CelQuantity(a.quantity + _whole(b))


def _subtract(a: CelQuantity, b: CelQuantity) -> CelQuantity:
    return CelQuantity(a.quantity - b.quantity)


def _subtract_int(a: CelQuantity, b: int) -> CelQuantity:
    return CelQuantity(a.quantity - _whole(b))


def _is_integer(a: CelQuantity) -> bool:
    return a.quantity.as_int64() is not None


def _as_integer(a: CelQuantity) -> int:
    whole = a.quantity.as_int64()
    if whole is None:
        raise CelError("cannot convert value to integer")
    return whole


def _as_float(a: CelQuantity) -> float:
    return float(a.quantity)


def _sign(a: CelQuantity) -> int:
    return a.quantity.sign()


def _digits_work(*quantities: CelQuantity | int) -> int:
    """Return the work of adding numbers that have more digits than any amount has."""
    digits = (q.quantity.nano.bit_length() >> 7 for q in quantities if type(q) is CelQuantity)
    return _SUM_WORK + sum(digits)


_SUM_WORK = 15
_READ = Size(cost=traverse, work=LengthWork(15, 20))
_SUM = Size(work=_digits_work)

QUANTITIES: tuple[Overload, ...] = (
    function("quantity", STRING, returns=QUANTITY, run=_quantity, size=_READ),
    function("isQuantity", STRING, returns=BOOL, run=_is_quantity, size=_READ),
    method("compareTo", QUANTITY, QUANTITY, returns=INT, run=_compare),
    method("isLessThan", QUANTITY, QUANTITY, returns=BOOL, run=_is_less),
    method("isGreaterThan", QUANTITY, QUANTITY, returns=BOOL, run=_is_greater),
    method("add", QUANTITY, QUANTITY, returns=QUANTITY, run=_add, size=_SUM),
    method("add", QUANTITY, INT, returns=QUANTITY, run=_add_int, size=_SUM),
    method("sub", QUANTITY, QUANTITY, returns=QUANTITY, run=_subtract, size=_SUM),
    method("sub", QUANTITY, INT, returns=QUANTITY, run=_subtract_int, size=_SUM),
    method("isInteger", QUANTITY, returns=BOOL, run=_is_integer),
    method("asInteger", QUANTITY, returns=INT, run=_as_integer),
    method("asApproximateFloat", QUANTITY, returns=DOUBLE, run=_as_float),
    method("sign", QUANTITY, returns=INT, run=_sign),
)
