"""Moments on the command line: a time, or how long ago."""

from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

import click

from policyd.cli.formats.durations import read_duration
from policyd.clock import SystemClock
from policyd.errors import PolicydError


class Moment(click.ParamType[float]):
    """Seconds since the epoch, given as `2026-11-26T08:00:00Z`, `2026-11-26`, `90m` or `1d12h`."""

    name = "moment"

    def convert(
        self, value: str | float, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Read a moment."""
        if isinstance(value, float):
            return value
        with suppress(PolicydError):
            return SystemClock().now() - read_duration(value)
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
