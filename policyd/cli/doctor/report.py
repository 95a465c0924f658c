"""What the checks find, and how they read a cluster: page by page, and nothing is stored."""

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final, Literal, TypeVar, Unpack

import msgspec

from policyd.kube.client import Client, PartialObject, Selection
from policyd.kube.pages import pages
from policyd.kube.resources import Resource

T = TypeVar("T")

Severity = Literal["error", "warning"]

GRACE_SECONDS: Final = 60.0
"""How long something may last that a running controller ends within seconds."""


class InstallationProblem(msgspec.Struct, frozen=True, rename="camel"):
    """Something that is wrong.

    Attributes:
        check: The check that found it.
        severity: An error keeps something from working; a warning may be intended.
        object: What it is about, as `Kind namespace/name`.
        message: What is wrong with it.
        fix: The command that fixes it, or shows more.
    """

    check: str
    severity: Severity
    object: str
    message: str
    fix: str


class Unchecked(msgspec.Struct, frozen=True, rename="camel"):
    """Something that could not be looked at.

    Attributes:
        check: The check.
        why: Why not.
    """

    check: str
    why: str


class InstallationReport(msgspec.Struct, frozen=True, rename="camel"):
    """What a cluster was found to be like.

    Attributes:
        findings: What is wrong, check by check.
        checked: The checks that were made, also those in part.
        unchecked: What could not be looked at.
    """

    findings: tuple[InstallationProblem, ...]
    checked: tuple[str, ...]
    unchecked: tuple[Unchecked, ...]


class SkippedCheckError(Exception):
    """A check, or the rest of it, cannot be made; the message says why."""


class CheckedCluster:
    """The cluster as the checks see it.

    Args of the constructor:
        client: The API server. Only dry runs are written.
        now: The moment, in seconds since the epoch.
    """

    def __init__(self, client: Client, *, now: float) -> None:
        self.client = client
        self.now = now

    async def all(
        self, resource: Resource, into: type[T], **selection: Unpack[Selection]
    ) -> AsyncIterator[T]:
        """Yield the objects of a collection."""
        async for page in pages(self.client, resource, into=into, **selection):
            for each in page.items:
                yield each

    async def names(self, resource: Resource) -> set[str]:
        """Return the names of cluster objects."""
        return {each.metadata.name async for each in self.all(resource, PartialObject)}


Check = Callable[[CheckedCluster], AsyncIterator[InstallationProblem]]
"""Yields what it finds; raises a LeftOutError or an ApiError if it cannot look."""
Checks = Mapping[str, Check]
