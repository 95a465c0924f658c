"""Which kinds the server has: the built-in ones, and those that CustomResourceDefinitions add."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from policyd.local.apiserver.custom.version import CustomVersion

_VERSION = re.compile(r"v(\d+)(?:(alpha|beta)(\d+))?")
STAGES = (None, "beta", "alpha")

VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """One kind in one version, as discovery shows it."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    verbs: tuple[str, ...] = VERBS
    list_kind: str = ""
    type_name: str = ""
    """The name of the kind's type in the table of built-in kinds; empty for a custom kind."""
    kept_as: str = ""
    """The resource that the objects are kept under, if it is another one."""
    stored_as: str = ""
    """The apiVersion that the objects are stored in, if it is another one."""
    custom: CustomVersion | None = None

    @property
    def api_version(self) -> str:
        """`group/version`, or the version alone in the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def stored_api_version(self) -> str:
        """The apiVersion that the kind's objects are stored in."""
        return self.stored_as or self.api_version

    @property
    def resource(self) -> str:
        """`plural.group`, or the plural alone in the core group."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def storage(self) -> str:
        """The resource that the store keeps the objects under."""
        return self.kept_as or self.resource

    @property
    def qualified_kind(self) -> str:
        """`Kind.group`, or the kind alone in the core group: how errors name it."""
        return f"{self.kind}.{self.group}" if self.group else self.kind

    def has(self, subresource: str) -> bool:
        """Tell whether the kind has such a subresource."""
        return subresource in self.subresources


class Registry:
    """The kinds that are served, by where they are found."""

    def __init__(self, builtin: Iterable[Served]) -> None:
        self._served = {(s.group, s.version, s.plural): s for s in builtin}
        self._builtin = frozenset(self._served)
        self._versions: tuple[int, dict[str, tuple[Served, ...]]] = (-1, {})
        self.revision = 0

    def find(self, group: str, version: str, plural: str) -> Served | None:
        """Return the kind that a path is about."""
        return self._served.get((group, version, plural))

    def versions(self, resource: str) -> tuple[Served, ...]:
        """Return all versions of a resource, such as `jobs.batch`."""
        if self._versions[0] != self.revision:
            found: dict[str, tuple[Served, ...]] = {}
            for served in self:
                found[served.resource] = (*found.get(served.resource, ()), served)
            self._versions = (self.revision, found)
        return self._versions[1].get(resource, ())

    def add(self, kinds: Iterable[Served]) -> None:
        """Serve more kinds, or others in the place of those at the same path."""
        for served in kinds:
            self._served[served.group, served.version, served.plural] = served
        self.revision += 1

    def remove(self, group: str, plural: str) -> None:
        """Stop serving a custom kind in all its versions."""
        gone = [k for k in self._served if (k[0], k[2]) == (group, plural)]
        for key in gone:
            if key not in self._builtin:
                del self._served[key]
        self.revision += 1

    def groups(self) -> dict[str, dict[str, list[Served]]]:
        """Return the kinds by group and version, the core group first."""
        found: dict[str, dict[str, list[Served]]] = {}
        for served in sorted(self, key=lambda s: (s.group, *version_rank(s.version), s.plural)):
            found.setdefault(served.group, {}).setdefault(served.version, []).append(served)
        return found

    def __iter__(self) -> Iterator[Served]:
        return iter(self._served.values())


def version_rank(version: str) -> tuple[int, int, int, str]:
    """Order versions as discovery does: stable before beta before alpha, newer before older."""
    found = _VERSION.fullmatch(version)
    if not found:
        return (3, 0, 0, version)
    major, stage, minor = found.groups()
    return (STAGES.index(stage), -int(major), -int(minor or 0), version)
