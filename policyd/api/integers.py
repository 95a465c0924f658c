"""Whole numbers that people write into labels and annotations."""

import re
from typing import Final

_WRITTEN: Final = re.compile(r"[+-]?0{0,99}[0-9]{1,19}", re.ASCII)


def whole_number(text: str, *, bits: int = 64) -> int | None:
    """Return the whole number that a text is, in decimal digits and with a sign, as Kueue reads it.

    Args:
        text: The text as written.
        bits: How many bits the number may have, its sign included.

    Returns:
        None if it is not such a number.
    """
    if not _WRITTEN.fullmatch(text):
        return None
    number, beyond = int(text), 1 << (bits - 1)
    return number if -beyond <= number < beyond else None
