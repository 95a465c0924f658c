"""The controller with a clock that can be set: FILE holds the seconds by which it is wrong.

Run as: FILE and the arguments of `policyd`.
"""

import sys
import time
from contextlib import suppress
from pathlib import Path

from policyd.cli import main
from policyd.clock import SystemClock


def skew(file: Path) -> None:
    """Have the time of day be wrong by what a file says, as of each look."""

    def now(_clock: SystemClock) -> float:
        wrong = 0.0
        with suppress(OSError, ValueError):
            wrong = float(file.read_text())
        return time.time() + wrong

    SystemClock.now = now  # type: ignore[method-assign]


if __name__ == "__main__":
    skew(Path(sys.argv[1]))
    sys.argv = ["policyd", *sys.argv[2:]]
    main()
