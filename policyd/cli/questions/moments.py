"""Moments on the command line: a time, or how long ago."""

import re
from datetime import UTC, datetime
from typing import Final

import click

from policyd.clock import SystemClock

_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_PART: Final = re.compile(r"(\d+)([smhdw])")


class Moment(click.ParamType[float]):
    """Seconds since the epoch, given as `2026-11-26T08:00:00Z`, `2026-11-26`, `90m` or `1d12h`."""

    name = "moment"

    def convert(
        self, value: str | float, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Read a moment."""
        if isinstance(value, float):
            return value
        parts = _PART.findall(value)
        if parts and "".join(map("".join, parts)) == value:
            ago = sum(int(count) * _SECONDS[unit] for count, unit in parts)
            return SystemClock().now() - ago
        try:
            found = datetime.fromisoformat(value)
        except ValueError:
            self.fail(
                f"`{value}` is not a moment: write a time such as 2026-11-26T08:00:00Z, or how"
                " long ago, such as 90m or 7d",
                param,
                ctx,
            )
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


MOMENT: Final = Moment()
