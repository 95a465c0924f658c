"""Timestamps and durations: parsing, formatting, and their parts."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Final

from policyd.cel.caches import cache_short
from policyd.cel.errors import CelError
from policyd.cel.functions import Overload, Size, method
from policyd.cel.syntax.patterns import lazy_pattern
from policyd.cel.types import DURATION, INT, STRING, TIMESTAMP
from policyd.cel.values import Duration, Timestamp

_SECOND: Final = 10**9
_UNITS: Final = {
    "h": 3_600 * _SECOND,
    "m": 60 * _SECOND,
    "s": _SECOND,
    "ms": 10**6,
    "us": 10**3,
    "\u00b5s": 10**3,
    "\u03bcs": 10**3,
    "ns": 1,
}
_DURATION_PART = lazy_pattern(
    r"([0-9]{0,20})(?:\.([0-9]{0,20}))?(ns|us|\u00b5s|\u03bcs|ms|h|m|s)", re.ASCII
)
_TIMESTAMP = lazy_pattern(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt]([0-9]{2}):([0-9]{2}):([0-9]{2})"
    r"(?:\.([0-9]{1,9})[0-9]{0,20})?(Z|z|[+-][0-9]{2}:[0-9]{2})",
    re.ASCII,
)
_OFFSET = lazy_pattern(r"([+-]?)([0-9]{1,2}):([0-9]{1,2})", re.ASCII)
_LONGEST_ZONE: Final = 64
# The work of a zone, in elements compared: to be found, and to be converted to.
_ZONE_WORK: Final = 1_000
_CONVERSION_WORK: Final = 8
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@cache_short(4_096)
def parse_duration(text: str) -> Duration:
    """Read a duration such as `1h30m`.

    Raises:
        CelError: If `text` is none.
    """
    unsigned = text[1:] if text[:1] in ("+", "-") else text
    if unsigned == "0":
        return Duration(0)
    total, position = 0, 0
    while position < len(unsigned) or not unsigned:
        part = _DURATION_PART.match(unsigned, position)
        if part is None or not (part[1] or part[2]):
            raise CelError(f"time: invalid duration {text[:64]!r}")
        unit = _UNITS[part[3]]
        total += int(part[1] or 0) * unit
        total += int(part[2] or 0) * unit // 10 ** len(part[2] or "")
        position = part.end()
    return Duration(-total if text[0] == "-" else total)


@cache_short(4_096)
def parse_timestamp(text: str) -> Timestamp:
    """Read a timestamp of RFC 3339.

    Raises:
        CelError: If `text` is none.
    """
    found = _TIMESTAMP.fullmatch(text)
    wrong = CelError(f"invalid timestamp {text[:64]!r}")
    if found is None:
        raise wrong
    year, month, day, hour, minute, second = map(int, found.group(1, 2, 3, 4, 5, 6))
    try:
        moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        raise wrong from None
    zone = found[8]
    offset = 0
    if zone not in ("Z", "z"):
        offset = (int(zone[1:3]) * 60 + int(zone[4:6])) * (-60 if zone[0] == "-" else 60)
    since = moment - _EPOCH
    seconds = since.days * 86_400 + since.seconds - offset
    return Timestamp(seconds * _SECOND + int((found[7] or "0").ljust(9, "0")))


def _fraction(nanoseconds: int) -> str:
    return f".{nanoseconds:09}".rstrip("0") if nanoseconds else ""


def timestamp_text(moment: Timestamp) -> str:
    """Write a timestamp as RFC 3339 in UTC."""
    seconds, nanoseconds = divmod(moment.nanoseconds, _SECOND)
    text = (_EPOCH + timedelta(seconds=seconds)).isoformat()[: len("2026-01-02T03:04:05")]
    return f"{text}{_fraction(nanoseconds)}Z"


def duration_text(length: Duration) -> str:
    """Write a duration in seconds."""
    seconds, nanoseconds = divmod(abs(length.nanoseconds), _SECOND)
    sign = "-" if length.nanoseconds < 0 else ""
    return f"{sign}{seconds}{_fraction(nanoseconds)}s"


class _Zone:
    """A time zone by its name; `work` is the work of finding it, until it is charged.

    That a name is none is remembered too: it takes longest to find out.
    """

    __slots__ = ("work", "zone")

    def __init__(self, name: str) -> None:
        self.work = _ZONE_WORK
        self.zone = _find_zone(name)


_zone = lru_cache(maxsize=1_024)(_Zone)


def _find_zone(name: str) -> tzinfo | None:
    found = _OFFSET.fullmatch(name)
    if found:
        offset = timedelta(hours=int(found[2]), minutes=int(found[3]))
        if offset >= timedelta(days=1):
            return None
        return timezone(-offset if found[1] == "-" else offset)
    from zoneinfo import ZoneInfo  # noqa: PLC0415 - few policies look at zones

    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        return None


def duration_work(text: str) -> int:
    """Return the work of reading a duration part by part."""
    return 10 + 2 * len(text)


def _zone_work(_moment: Timestamp, name: str) -> int:
    entry = _zone(name[:_LONGEST_ZONE])
    work, entry.work = entry.work, _CONVERSION_WORK
    return work


def _local(moment: Timestamp, zone: str) -> datetime:
    utc = _EPOCH + timedelta(microseconds=moment.nanoseconds // 1_000)
    if zone in ("", "UTC"):
        return utc
    found = _zone(zone[:_LONGEST_ZONE]).zone
    if found is None:
        raise CelError(f"unknown time zone {zone[:_LONGEST_ZONE]}")
    try:
        return utc.astimezone(found)
    except OverflowError:
        raise CelError("timestamp overflow") from None


def _part_of_time(read: Callable[[datetime], int]) -> Callable[..., int]:
    def part(moment: Timestamp, zone: str = "UTC") -> int:
        return read(_local(moment, zone))

    return part


def _part_of_duration(unit: int, modulus: int | None = None) -> Callable[[Duration], int]:
    def part(length: Duration) -> int:
        whole = abs(length.nanoseconds) // unit
        whole = whole % modulus if modulus else whole
        return -whole if length.nanoseconds < 0 else whole

    return part


_PARTS: Final[dict[str, Callable[[datetime], int]]] = {
    "getFullYear": lambda moment: moment.year,
    "getMonth": lambda moment: moment.month - 1,
    "getDate": lambda moment: moment.day,
    "getDayOfMonth": lambda moment: moment.day - 1,
    "getDayOfWeek": lambda moment: moment.isoweekday() % 7,
    "getDayOfYear": lambda moment: moment.timetuple().tm_yday - 1,
    "getHours": lambda moment: moment.hour,
    "getMinutes": lambda moment: moment.minute,
    "getSeconds": lambda moment: moment.second,
    "getMilliseconds": lambda moment: moment.microsecond // 1_000,
}


def cron_of(moment: Timestamp) -> str:
    """Write the minute of a moment, in UTC, as an entry of a crontab."""
    utc = _local(moment, "UTC")
    return f"{utc.minute} {utc.hour} {utc.day} {utc.month} {utc.isoweekday() % 7}"


_PART: Final = Size(work=_CONVERSION_WORK)
_CONVERSION: Final = Size(work=_zone_work)
_LENGTHS: Final = {
    "getHours": _part_of_duration(3_600 * _SECOND),
    "getMinutes": _part_of_duration(60 * _SECOND),
    "getSeconds": _part_of_duration(_SECOND),
    "getMilliseconds": _part_of_duration(10**6, 1_000),
}
TIME: tuple[Overload, ...] = tuple(
    overload
    for name, read in _PARTS.items()
    for overload in (
        method(name, TIMESTAMP, returns=INT, run=_part_of_time(read), size=_PART),
        method(name, TIMESTAMP, STRING, returns=INT, run=_part_of_time(read), size=_CONVERSION),
    )
) + tuple(method(name, DURATION, returns=INT, run=run) for name, run in _LENGTHS.items())
