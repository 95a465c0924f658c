"""Advisories in the shape of OSV, and which of them concern the versions that are pinned."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

FILE = Path(__file__).parent / "advisories.json"
CONSTRAINTS = Path(__file__).parents[2] / "constraints.txt"
ECOSYSTEM = "PyPI"


class UnreadableError(Exception):
    """What is to be compared cannot be read."""


@dataclass(frozen=True, slots=True, order=True)
class Package:
    """One version of a package, by its canonical name."""

    name: str
    version: Version


@dataclass(frozen=True, slots=True)
class Match:
    """An advisory that concerns a package."""

    package: Package
    id: str
    summary: str
    fixed: str

    def __str__(self) -> str:
        remedy = f"; fixed in {self.fixed}" if self.fixed else "; there is no fix yet"
        return f"{self.package.name} {self.package.version}: {self.id}: {self.summary}{remedy}"


def read_advisories(file: Path = FILE) -> dict[str, Any]:
    """Return what a file of advisories says.

    Raises:
        UnreadableError: If it is not there, or is something else.
    """
    try:
        document = json.loads(file.read_text())
        kinds = type(document["advisories"]), type(document["renewed"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UnreadableError(f"`{file.name}` cannot be read: {error}") from error
    if kinds != (list, str):
        raise UnreadableError(f"`{file.name}` cannot be read: it has no list, or no date")
    return dict(document)


def pinned(file: Path = CONSTRAINTS) -> set[Package]:
    """Return the versions that a file of constraints names.

    Raises:
        UnreadableError: If it is not there, or names something else than versions.
    """
    try:
        lines = [line.partition("#")[0].strip() for line in file.read_text().splitlines()]
        asked = [Requirement(line) for line in lines if line]
        return {_package(each.name, str(each.specifier).removeprefix("==")) for each in asked}
    except (OSError, InvalidRequirement, InvalidVersion) as error:
        raise UnreadableError(f"`{file.name}` cannot be read: {error}") from error


def installed() -> set[Package]:
    """Return the versions that are installed beside this program."""
    return {_package(each.metadata["Name"], each.version) for each in distributions()}


def matches(advisories: Iterable[Mapping[str, Any]], packages: Iterable[Package]) -> list[Match]:
    """Return the advisories that concern one of the packages; withdrawn ones concern none."""
    by_name: dict[str, list[Package]] = {}
    for package in packages:
        by_name.setdefault(package.name, []).append(package)
    found = (
        Match(package, advisory["id"], advisory.get("summary", ""), _fixed(part, package.version))
        for advisory in advisories
        if not advisory.get("withdrawn")
        for part in _parts(advisory)
        for package in by_name.get(canonicalize_name(part["package"]["name"]), ())
        if concerns(part, package.version)
    )
    return sorted(set(found), key=str)


def concerns(part: Mapping[str, Any], version: Version) -> bool:
    """Tell whether a version is listed, or lies in a range, of what an advisory says of a package.

    A range that has no beginning begins with the first version, as OSV has it.
    """
    listed = any(Version(each) == version for each in part.get("versions", ()))
    return listed or any(_within(each, version) for each in _ranges(part))


def _within(events: list[tuple[Version, str]], version: Version) -> bool:
    """Go through the events of a range, in the order of versions; the last one that counts wins."""
    inside = False
    for at, kind in events:
        if kind == "introduced" and version >= at:
            inside = True
        elif (kind == "fixed" and version >= at) or (kind == "last_affected" and version > at):
            inside = False
    return inside


def _fixed(part: Mapping[str, Any], version: Version) -> str:
    """Return the first version after another in which all is well; empty if there is none."""
    fixes = [at for each in _ranges(part) for at, kind in each if kind == "fixed" and at > version]
    return str(min(fixes, default=""))


def _ranges(part: Mapping[str, Any]) -> Iterator[list[tuple[Version, str]]]:
    for each in part.get("ranges", ()):
        if each.get("type") == "ECOSYSTEM":
            events = ((Version(at), kind) for e in each["events"] for kind, at in e.items())
            yield sorted(events, key=lambda event: (event[0], event[1] != "introduced"))


def _parts(advisory: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for part in advisory.get("affected", ()):
        if part["package"]["ecosystem"] == ECOSYSTEM:
            yield part


def _package(name: str, version: str) -> Package:
    return Package(canonicalize_name(name), Version(version))
