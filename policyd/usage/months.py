"""Calendar months of time zones, and a division of time by which all of them can be summed up.

A *bucket* is a stretch of time. Around the begin of each month of UTC, where some time zone changes
its month, it is a quarter of an hour; all the rest of the month is one. All time zones in use
differ from UTC by quarters of an hour, by 14 hours at most: so a month of any of them has whole
buckets, whether it has a change of summer time in it or not.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from typing import Final, NamedTuple

from policyd.errors import PolicydError

QUARTER: Final = 900
EARLIEST, LATEST = 14 * 3_600, 12 * 3_600
"""From when before the begin of a month of UTC to when after it some time zone begins one; in
seconds."""


class TimeZoneError(PolicydError):
    """A time zone has months that cannot be counted."""


class Month(NamedTuple):
    """A calendar month."""

    year: int
    month: int

    def __str__(self) -> str:
        """Write it as `2026-11`."""
        return f"{self.year:04}-{self.month:02}"

    @property
    def next(self) -> "Month":
        """The month after it."""
        return Month(self.year + self.month // 12, self.month % 12 + 1)

    @property
    def number(self) -> int:
        """How many months there were before it."""
        return self.year * 12 + self.month - 1


def month_of(moment: float, zone: tzinfo) -> Month:
    """Return the month of a time zone in which a moment is, in seconds since the epoch."""
    local = datetime.fromtimestamp(moment, zone)
    return Month(local.year, local.month)


def begin_of(month: Month, zone: tzinfo) -> int:
    """Return the begin of a month in a time zone, in seconds since the epoch.

    If clocks are put forward at midnight, it begins with the first second after that.

    Raises:
        TimeZoneError: If buckets do not divide time there.
    """
    begin = datetime(month.year, month.month, 1, tzinfo=zone).timestamp()
    utc = _utc(month)
    if begin % QUARTER or not utc - EARLIEST <= begin <= utc + LATEST:
        raise TimeZoneError(
            f"months of time zone `{zone}` cannot be counted: it differs from UTC by an odd time"
        )
    return int(begin)


def buckets(begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the buckets of a time, and for how many seconds of it each is.

    Args:
        begin: Seconds since the epoch.
        end: The same; before `begin`, nothing is yielded.
    """
    while begin < end:
        month = month_of(begin + EARLIEST, UTC)
        if begin < _utc(month) + LATEST:
            bucket = begin // QUARTER
            until = (bucket + 1) * QUARTER
        else:
            bucket, until = -month.number, _utc(month.next) - EARLIEST
        yield bucket, min(until, end) - begin
        begin = until


def bucket_in(bucket: int, month: Month, begin: int, end: int) -> bool:
    """Tell whether a bucket is in a month.

    Args:
        bucket: One that `buckets` yielded.
        month: The month.
        begin: Its begin in a time zone.
        end: Its end there.
    """
    if bucket < 0:
        return bucket == -month.number
    return begin <= bucket * QUARTER < end


def ended_before(bucket: int, month: Month) -> bool:
    """Tell whether a bucket is in no time zone in a month or after it."""
    if bucket < 0:
        return -bucket < month.number
    return bucket * QUARTER < _utc(month) - EARLIEST


def _utc(month: Month) -> int:
    return int(datetime(month.year, month.month, 1, tzinfo=UTC).timestamp())
