"""Prices of GPU-hours by flavor, from a file."""

import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final, Literal, NamedTuple

from policyd.errors import PolicydError, did_you_mean

MOST_PRICE: Final = Decimal(1_000_000)
_CURRENCY: Final = re.compile(r"[A-Z]{3}")
_FIELDS: Final = ("currency", "flavors")


Capacity = Literal["on-demand", "spot"]
_KINDS: Final[Mapping[str, Capacity]] = {"onDemand": "on-demand", "spot": "spot"}


class PricesError(PolicydError):
    """A file of prices cannot be meant."""


class Price(NamedTuple):
    """The price of one GPU for an hour.

    Attributes:
        amount: In the currency of all.
        capacity: How the nodes of the flavor are bought.
    """

    amount: Decimal
    capacity: Capacity


class Prices(NamedTuple):
    """Prices by flavor.

    Attributes:
        currency: Three capital letters.
        flavors: By name.
    """

    currency: str
    flavors: Mapping[str, Price]


def prices_of(document: Any) -> Prices:  # noqa: ANN401 - as YAML has it
    """Read prices.

    Args:
        document: A mapping with `currency`, and `flavors`: of each the price of a GPU-hour, as
            `onDemand: 2.10` or `spot: 0.70`.

    Raises:
        PricesError: If something in it cannot be meant.
    """
    if not isinstance(document, dict):
        raise PricesError("prices are a mapping", hint="write `currency` and `flavors`")
    for name in document:
        if name not in _FIELDS:
            near = did_you_mean(str(name), _FIELDS)
            raise PricesError(f"prices have no field `{_cut(name)}`", hint=near)
    currency, flavors = document.get("currency"), document.get("flavors")
    if not isinstance(currency, str) or not _CURRENCY.fullmatch(currency):
        raise PricesError(
            f"`{_cut(currency)}` is not a currency", hint="write its three letters, such as EUR"
        )
    if not isinstance(flavors, dict) or not flavors:
        raise PricesError(
            "prices have no flavors", hint="such as `flavors: {a100: {onDemand: 2.1}}`"
        )
    return Prices(currency, {str(name): _price(str(name), each) for name, each in flavors.items()})


def _price(flavor: str, given: Any) -> Price:  # noqa: ANN401
    if not isinstance(given, dict) or len(given) != 1 or next(iter(given)) not in _KINDS:
        raise PricesError(
            f"the price of flavor `{_cut(flavor)}` is neither `onDemand` nor `spot`",
            hint="write one of them: `{onDemand: 2.10}`; nodes of both kinds are of two flavors",
        )
    ((kind, text),) = given.items()
    try:
        amount = Decimal(str(text)) if not isinstance(text, bool) else Decimal("NaN")
    except InvalidOperation:
        amount = Decimal("NaN")
    if not amount.is_finite() or not 0 <= amount <= MOST_PRICE:
        raise PricesError(
            f"the price `{_cut(text)}` of flavor `{_cut(flavor)}` is not one",
            hint="write a number that is not negative, without the currency",
        )
    return Price(amount, _KINDS[kind])


def _cut(value: object) -> str:
    text = "".join(each for each in str(value) if each.isprintable())
    return text if len(text) <= 64 else f"{text[:64]}…"
