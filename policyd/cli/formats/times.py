"""Times on the command line: durations (`90m`, `7d`, `1d12h`, `2w`), and moments."""

from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

import click

from policyd.cel import CelError
from policyd.cel.lib.time import parse_duration
from policyd.clock import SystemClock
from policyd.errors import PolicydError


def read_duration(text: str) -> float:
    """Read a duration as Go writes it, after weeks and days if there are any.

    Args:
        text: Such as `7d`, `1d12h` or `90m`; without a sign.

    Returns:
        Seconds.

    Raises:
        PolicydError: If it cannot be read.
    """
    seconds, rest = 0.0, text
    for unit, length in (("w", 604_800), ("d", 86_400)):
        count, found, after = rest.partition(unit)
        if found and count.isdecimal() and len(count) <= 6:
            seconds, rest = seconds + int(count) * length, after
    if not rest and text:
        return seconds
    unsigned = "" if rest.startswith(("+", "-")) else rest
    try:
        return seconds + parse_duration(unsigned).nanoseconds / 1e9
    except CelError as error:
        hint = "such as 90m, 7d or 1d12h"
        raise PolicydError(f"`{text}` is not a duration", hint=hint) from error


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
