"""How long ago, in the few letters that kubectl has room for."""

from datetime import datetime
from functools import lru_cache

UNKNOWN = "<unknown>"


@lru_cache(maxsize=1024)  # tables have the same moments in many rows
def seconds_of(timestamp: str) -> float:
    """Read a timestamp of the API as seconds since the epoch."""
    return datetime.fromisoformat(timestamp).timestamp()


def age(timestamp: str | None, now: float) -> str:
    """Write how long ago a timestamp is."""
    return duration(now - seconds_of(timestamp)) if timestamp else UNKNOWN


def duration(seconds: float) -> str:
    """Write a duration: `7s`, `3m12s`, `5h`, `2d3h`, as kubectl does."""
    whole = int(seconds)
    if whole < 0:
        return "0s" if whole >= -1 else "<invalid>"
    if whole < 120:
        return f"{whole}s"
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    for limit, count, unit, rest, small in (
        (600, minutes, "m", whole % 60, "s"),
        (180 * 60, minutes, "m", 0, ""),
        (8 * 3600, hours, "h", minutes % 60, "m"),
        (48 * 3600, hours, "h", 0, ""),
        (8 * 86400, days, "d", hours % 24, "h"),
        (730 * 86400, days, "d", 0, ""),
        (8 * 365 * 86400, days // 365, "y", days % 365, "d"),
    ):
        if whole < limit:
            return f"{count}{unit}{rest}{small}" if rest else f"{count}{unit}"
    return f"{days // 365}y"
