"""How views write amounts, durations and forecasts."""

from collections.abc import Iterable, Mapping

from policyd.snapshot.starting import UNKNOWN, StartAnswer
from policyd.status.ages import seconds_of
from policyd.status.quantities import format_amount


def coarse(seconds: float) -> str:
    """Write a duration in its largest unit: a page that is sent when it changes, changes little."""
    whole = max(0, int(seconds))
    for limit, unit, name in ((60, 1, ""), (7_200, 60, "m"), (172_800, 3_600, "h")):
        if whole < limit:
            return f"{whole // unit}{name}" if name else "<1m"
    return f"{whole // 86_400}d"


def devices_first(resources: Iterable[str]) -> list[str]:
    """Return resources in order, devices before all others."""
    return sorted(resources, key=lambda name: ("/" not in name, name))


def amounts(given: Mapping[str, int]) -> str:
    """Write amounts of resources in one cell, devices first: `8 nvidia.com/gpu, 4 cpu`."""
    return ", ".join(f"{format_amount(n, given[n])} {n}" for n in devices_first(given)) or "-"


def devices_apart(given: Mapping[str, int]) -> tuple[str, str]:
    """Write devices, of which there are some, and all other amounts; "" for none."""
    devices = {name: amount for name, amount in given.items() if "/" in name and amount}
    others = {name: amount for name, amount in given.items() if "/" not in name}
    return (amounts(devices) if devices else "", amounts(others) if others else "")


def start(answer: StartAnswer | None, now: float) -> tuple[str, str]:
    """Write a forecast: the median, and the interval that holds nine starts of ten, or a reason."""
    if answer is None:
        return "-", "no forecast yet"
    if answer.median is None or answer.low is None or answer.high is None:
        return "unknown", UNKNOWN.get(answer.reason, answer.reason)
    median, low, high = (
        coarse(seconds_of(at) - now) for at in (answer.median, answer.low, answer.high)
    )
    if low == high:
        return f"in {median}", answer.label
    return f"in {median}", f"{low} to {high}, {answer.label}"
