"""Moments: `time.now() - duration('24h')`."""

from collections.abc import Callable

from policyd.cel.errors import CelError
from policyd.cel.functions import Overload, function
from policyd.cel.lib.time import part_of_time
from policyd.cel.types import DURATION, STRING, TIMESTAMP
from policyd.cel.values import Duration, Timestamp

# Go counts from the first day of the year 1.
_FIRST_DAY = -62_135_596_800 * 10**9
_CRON = ("getMinutes", "getHours", "getDate", "getMonth", "getDayOfWeek")


def _truncate(moment: Timestamp, length: Duration) -> Timestamp:
    if length.nanoseconds <= 0:
        return moment
    since = moment.nanoseconds - _FIRST_DAY
    return Timestamp(moment.nanoseconds - since % length.nanoseconds)


def _to_cron(moment: Timestamp) -> str:
    minute, hour, day, month, weekday = (part_of_time(name, moment) for name in _CRON)
    return f"{minute} {hour} {day} {month + 1} {weekday}"


def moments(now: Callable[[], int] | None) -> tuple[Overload, ...]:
    """Return the functions, with a clock: nanoseconds since the epoch."""

    def read() -> Timestamp:
        if now is None:
            raise CelError("`time.now` is not available here: it needs a clock")
        return Timestamp(now())

    return (
        Overload(name="time.now", parameters=(), result=TIMESTAMP, run=read, constant=False),
        function("time.truncate", TIMESTAMP, DURATION, returns=TIMESTAMP, run=_truncate),
        function("time.toCron", TIMESTAMP, returns=STRING, run=_to_cron),
    )
