"""`make advisories`: add what the package registry knows of the pinned versions to the file."""

import importlib
import json
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from packaging.version import Version

from tests.audit.advisories import (
    CONSTRAINTS,
    ECOSYSTEM,
    FILE,
    Package,
    UnreadableError,
    pinned,
    read_advisories,
)

SECONDS = 20.0
"""How long an answer may take."""


def main(
    file: Path = FILE, constraints: Path = CONSTRAINTS, ask: Callable[[Package], Any] | None = None
) -> int:
    """Ask for each pinned version; leave the file as it is if that cannot be done for all."""
    ask = ask or asked
    try:
        recorded = read_advisories(file)
        found = [new for each in sorted(pinned(constraints)) for new in advisories(each, ask(each))]
    except (UnreadableError, OSError, ValueError, KeyError) as error:
        print(f"advisories: could not look: {error}")
        return 0
    known = {each["id"]: each for each in recorded["advisories"]}
    added = [each["id"] for each in found if each["id"] not in known]
    known = {each["id"]: each for each in found} | known
    renewed = time.strftime("%Y-%m-%d", time.gmtime())
    kept = {"renewed": renewed, "advisories": [known[key] for key in sorted(known)]}
    file.write_text(json.dumps(kept, indent=2) + "\n")
    print(f"advisories: {len(known)} are known, {', '.join(added) or 'none'} added")
    return 0


def asked(package: Package) -> Any:
    """Return what the registry that pip takes packages from says of a version."""
    registry = importlib.import_module("pip._internal.models.index").PyPI.pypi_url
    address = f"{registry}/{package.name}/{package.version}/json"
    with urllib.request.urlopen(address, timeout=SECONDS) as answer:
        return json.load(answer)


def advisories(package: Package, answer: Any) -> list[dict[str, Any]]:
    """Return what concerns a version, in the shape of OSV: from it to the next that is well."""
    return [
        {
            "id": each["id"],
            **({"aliases": sorted(each["aliases"])} if each.get("aliases") else {}),
            "summary": (each.get("summary") or each.get("details") or "").partition("\n")[0],
            "affected": [_affected(package, each.get("fixed_in") or ())],
        }
        for each in answer["vulnerabilities"]
        if not each.get("withdrawn")
    ]


def _affected(package: Package, fixed_in: Any) -> dict[str, Any]:
    later = sorted(v for v in map(Version, fixed_in) if v > package.version)
    events = [{"introduced": str(package.version)}, *({"fixed": str(v)} for v in later[:1])]
    return {
        "package": {"ecosystem": ECOSYSTEM, "name": package.name},
        "ranges": [{"type": "ECOSYSTEM", "events": events}],
    }


if __name__ == "__main__":
    sys.exit(main())
