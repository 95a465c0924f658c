"""Amounts as people write and count them."""

import math
from collections.abc import Mapping
from functools import lru_cache

from policyd.alloc.amount import UNLIMITED

_KIBI = 1_024
_MILLI = 1_000
_BINARY_RESOURCES = frozenset({"memory", "ephemeral-storage"})
_DECIMAL_SUFFIXES = ("m", "", "k", "M", "G", "T", "P", "E")
_BINARY_SUFFIXES = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


@lru_cache(maxsize=1024)  # tables have the same amounts in many rows
def format_amount(resource: str, amount: int) -> str:
    """Write an amount as Kubernetes writes the quantity: `1500m`, `8`, `10Gi`.

    Bytes have binary suffixes if these leave no rest. So have resources that are not bytes by name,
    but count like one: devices do not come by the million.
    """
    if resource == "cpu":
        return _scaled(amount, 1_000, _DECIMAL_SUFFIXES)
    least = _KIBI if _is_binary(resource) else _KIBI * _KIBI
    if amount and amount % least == 0:
        return _scaled(amount, _KIBI, _BINARY_SUFFIXES)
    return _scaled(amount, 1_000, _DECIMAL_SUFFIXES[1:])


def in_units(resource: str, amount: int) -> float:
    """Return an amount in the units people count it in, cores or bytes; infinite without limit."""
    if amount >= UNLIMITED:
        return math.inf
    return amount / _MILLI if resource == "cpu" else float(amount)


def _is_binary(resource: str) -> bool:
    return resource in _BINARY_RESOURCES or resource.startswith("hugepages-")


def _scaled(amount: int, base: int, suffixes: tuple[str, ...]) -> str:
    if amount == 0:
        return "0"
    power = 0
    while amount % base == 0 and power < len(suffixes) - 1:
        amount //= base
        power += 1
    return f"{amount}{suffixes[power]}"


def rounded_text(resource: str, units: float) -> str:
    """Write about how much an amount is: whole mebibytes from one on, four digits of others."""
    mebibytes = round(units / _KIBI**2)
    if _is_binary(resource) and mebibytes:
        return format_amount(resource, mebibytes * _KIBI**2)
    return f"{units:.4g}"


def amounts_text(amounts: Mapping[str, int]) -> str:
    """Write amounts of resources in one line, devices first: `8 nvidia.com/gpu, 4 cpu`."""
    devices_first = sorted(amounts, key=lambda name: ("/" not in name, name))
    return ", ".join(f"{format_amount(n, amounts[n])} {n}" for n in devices_first) or "-"
