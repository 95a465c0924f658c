"""Read schedules in cron's format, and find when they are next due, in UTC.

Five fields (minute, hour, day of the month, month, day of the week), or a name such as `@daily`.
A time is found by sets of numbers, so that a schedule that is never due costs no more than others.
"""

import calendar
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from policyd.errors import PolicydError

MOST_YEARS: Final = 8
"""Years that are searched: 29 February comes again after 8 years at most, over a century."""

_LONGEST: Final = 300
"""Letters of a schedule."""

_MACROS: Final[Mapping[str, str]] = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

_MONTHS: Final = {name.lower(): i for i, name in enumerate(calendar.month_abbr) if name}
_DAYS: Final = {"sun": 0, "mon": 1, "tue": 2, "wed": 3, "thu": 4, "fri": 5, "sat": 6}
_FIELDS: Final[tuple[tuple[str, int, int, Mapping[str, int]], ...]] = (
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day of the month", 1, 31, {}),
    ("month", 1, 12, _MONTHS),
    ("day of the week", 0, 7, _DAYS),
)
_PART: Final = re.compile(r"(?:(\*|\?)|(\w+)(?:-(\w+))?)(?:/(\d{1,4}))?")


class ScheduleError(PolicydError):
    """A text is not a schedule."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """The times at which something is due.

    Attributes:
        text: The schedule as it was written.
        minutes: From 0 to 59.
        hours: From 0 to 23.
        days: Days of the month.
        months: From 1 to 12.
        weekdays: Days of the week; Sunday is 0.
        either: Whether a day of the month or of the week suffices, as both are restricted.
    """

    text: str
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either: bool

    def after(self, time: float) -> float | None:
        """Return the first time after `time`, both in seconds since the epoch.

        Returns:
            None if it is not due in the next years, such as on 30 February.
        """
        moment = datetime.fromtimestamp(time, UTC).replace(second=0, microsecond=0)
        moment += timedelta(minutes=1)
        last = moment.year + MOST_YEARS
        while moment.year <= last:
            if moment.month not in self.months:
                moment = _midnight(moment.replace(day=1) + timedelta(days=32)).replace(day=1)
                continue
            if not self._is_on(moment):
                moment = _midnight(moment + timedelta(days=1))
                continue
            found = self._within_day(moment)
            if found is not None:
                return found.timestamp()
            moment = _midnight(moment + timedelta(days=1))
        return None

    def _is_on(self, day: datetime) -> bool:
        on_day, on_weekday = day.day in self.days, (day.weekday() + 1) % 7 in self.weekdays
        return (on_day or on_weekday) if self.either else (on_day and on_weekday)

    def _within_day(self, moment: datetime) -> datetime | None:
        for hour in self.hours:
            for minute in self.minutes if hour >= moment.hour else ():
                found = moment.replace(hour=hour, minute=minute)
                if found >= moment:
                    return found
        return None


def _midnight(moment: datetime) -> datetime:
    return moment.replace(hour=0, minute=0)


def parse_schedule(text: str) -> Schedule:
    """Read a schedule.

    Raises:
        ScheduleError: If it is none, or uses what policyd does not support.
    """
    if len(text) > _LONGEST:
        raise ScheduleError(f"the schedule has more than {_LONGEST} letters")
    given = _MACROS.get(text.strip().lower(), text).split()
    if len(given) != len(_FIELDS):
        raise ScheduleError(
            f"`{text}` is not a schedule: it has {len(given)} fields, not {len(_FIELDS)}",
            hint="write minute, hour, day of the month, month, day of the week: `0 3 * * *`",
        )
    found = [_numbers(part, *field) for part, field in zip(given, _FIELDS, strict=True)]
    minutes, hours, days, months, weekdays = found
    either = not any(given[index].startswith(("*", "?")) for index in (2, 4))
    return Schedule(
        text=text,
        minutes=tuple(sorted(minutes)),
        hours=tuple(sorted(hours)),
        days=frozenset(days),
        months=frozenset(months),
        weekdays=frozenset(day % 7 for day in weekdays),
        either=either,
    )


def _numbers(text: str, name: str, low: int, high: int, names: Mapping[str, int]) -> set[int]:
    found: set[int] = set()
    for part in text.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise ScheduleError(f"`{part}` is not a {name} of a schedule")
        every, first, last, step = match.groups()
        start, end = (low, high) if every else (_number(first, name, low, high, names),) * 2
        if last is not None:
            end = _number(last, name, low, high, names)
        elif step is not None:
            end = high
        if end < start or step == "0":
            raise ScheduleError(f"`{part}` is not a {name} of a schedule: it stands for no time")
        found.update(range(start, end + 1, int(step or 1)))
    return found


def _number(text: str, name: str, low: int, high: int, names: Mapping[str, int]) -> int:
    value = names.get(text.lower())
    if value is None and text.isascii() and text.isdigit() and len(text) <= 4:
        value = int(text)
    if value is None or not low <= value <= high:
        known = f", or {', '.join(names)}" if names else ""
        raise ScheduleError(
            f"`{text}` is not a {name} of a schedule", hint=f"write {low} to {high}{known}"
        )
    return value
