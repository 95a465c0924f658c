"""`make audit`, a part of `make check`: compare what we depend on with the advisories kept here."""

import sys
from pathlib import Path

from packaging.version import InvalidVersion

from tests.audit.advisories import (
    CONSTRAINTS,
    FILE,
    UnreadableError,
    installed,
    matches,
    pinned,
    read_advisories,
)


def main(file: Path = FILE, constraints: Path = CONSTRAINTS) -> int:
    """Print what concerns us; return 1 if something does, 0 if nothing does or nobody can tell."""
    try:
        recorded, packages = read_advisories(file), pinned(constraints) | installed()
        found = matches(recorded["advisories"], packages)
    except (UnreadableError, InvalidVersion, KeyError, TypeError) as error:
        print(f"audit: could not look: {error}")
        return 0
    for match in found:
        print(f"audit: {match}", file=sys.stderr)
    known = f"{len(recorded['advisories'])} advisories, as of {recorded['renewed']}"
    if not found:
        print(f"audit: {len(packages)} packages, {known}: none of them is concerned")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
