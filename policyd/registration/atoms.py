"""Rules taken apart into atoms, and put together again as few rules.

An atom names one group, version, scope, resource and operation, each of which may be a wildcard.
Atoms can be compared one by one, which lists in rules cannot.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, product
from math import prod
from typing import Final, NamedTuple

from msgspec.structs import replace

from policyd.api.admission import Rule, Scope
from policyd.api.kinds import resources

ALL_OPERATIONS = ("CONNECT", "CREATE", "DELETE", "UPDATE")
"""The operations that `*` stands for in a rule."""


class RuleAtom(NamedTuple):
    """One combination out of a rule's lists."""

    group: str
    version: str
    scope: Scope
    resource: str
    operation: str

    def covers(self, other: "RuleAtom") -> bool:
        """Tell whether every request of `other` is one of this atom."""
        return (
            self.group in {"*", other.group}
            and self.version in {"*", other.version}
            and self.scope in {"*", other.scope}
            and _resource_covers(self.resource, other.resource)
            and self.operation in {"*", other.operation}
        )

    @property
    def of_any_version(self) -> "RuleAtom":
        """The same for every version."""
        return self._replace(version="*")

    def overlaps(self, other: "RuleAtom") -> bool:
        """Tell whether a request may be of both."""
        return (
            _overlap(self.group, other.group)
            and _overlap(self.version, other.version)
            and _overlap(self.scope, other.scope)
            and _resources_overlap(self.resource, other.resource)
            and _overlap(self.operation, other.operation)
        )


def coarser(rules: Iterable[Rule], most: int) -> tuple[Rule, ...]:
    """Return rules with wildcards in the place of lists, so that they have few atoms.

    A few lists of names stand for more combinations than there is memory. The rules match a
    subset of the result. The rule with the most combinations is widened first, and others stay
    as they are if that suffices; it drops the version first, then the resource, then the group.

    Args:
        rules: The rules.
        most: How many atoms they may have, all together; if they do not with wildcards everywhere,
            these are returned.
    """
    kept = list(dict.fromkeys(map(_once, rules)))
    sizes = [_size(rule) for rule in kept]
    for place in sorted(range(len(kept)), key=lambda place: -sizes[place]):
        for widen in _WIDENINGS if sizes[place] > len(ALL_OPERATIONS) else ():
            if sum(sizes) <= most:
                break
            kept[place] = widen(kept[place])
            sizes[place] = _size(kept[place])
    # There are many rules: those that become equal count once.
    for widen in _WIDENINGS:
        if sum(map(_size, kept)) <= most:
            break
        kept = list(dict.fromkeys(map(widen, kept)))
    return tuple(kept)


def combinations(rules: Iterable[Rule]) -> int:
    """Count the combinations of groups, versions, resources and operations that rules name."""
    return sum(map(_size, dict.fromkeys(map(_once, rules))))


def _size(rule: Rule) -> int:
    lists = (rule.api_groups, rule.api_versions, rule.resources)
    operations = len(ALL_OPERATIONS) if "*" in rule.operations else len(rule.operations)
    return prod(map(len, lists)) * operations


def _once(rule: Rule) -> Rule:
    """Return a rule that names everything once, and nothing that the API server has no name for.

    It would refuse the whole configuration for an empty version or resource.
    """
    lists = ("api_groups", "api_versions", "resources", "operations")
    once = {name: tuple(dict.fromkeys(getattr(rule, name))) for name in lists}
    named = {name: tuple(filter(None, once[name])) for name in ("api_versions", "resources")}
    return replace(rule, **once | named)


def _of_any_version(rule: Rule) -> Rule:
    return replace(rule, api_versions=("*",))


def _of_any_resource(rule: Rule) -> Rule:
    parts = any("/" in resource for resource in rule.resources)
    return replace(rule, resources=("*/*" if parts else "*",))


def _of_any_group(rule: Rule) -> Rule:
    return replace(rule, api_groups=("*",))


_WIDENINGS: Final = (_of_any_version, _of_any_resource, _of_any_group)


def atoms_of(rule: Rule) -> Iterable[RuleAtom]:
    """Take a rule apart."""
    for group, version, resource, operation in product(
        rule.api_groups, rule.api_versions, rule.resources, rule.operations
    ):
        operations = ALL_OPERATIONS if operation == "*" else (operation,)
        for each in operations:
            yield RuleAtom(group, version, rule.scope, resource, each)


def uncovered(atoms: Iterable[RuleAtom], others: Iterable[RuleAtom]) -> set[RuleAtom]:
    """Return the atoms that none of `others` covers."""
    named = _by_names(others)
    return {atom for atom in atoms if not any(o.covers(atom) for o in _wider(atom, named))}


_Names = tuple[str, str, str]
"""The group, the resource without its subresource, and the operation of an atom."""


def _names_of(atom: RuleAtom) -> _Names:
    return atom.group, atom.resource.partition("/")[0], atom.operation


def _by_names(atoms: Iterable[RuleAtom]) -> dict[_Names, list[RuleAtom]]:
    """Sort atoms by names: without a wildcard, only those of equal names share a request."""
    named: dict[_Names, list[RuleAtom]] = {}
    for atom in atoms:
        named.setdefault(_names_of(atom), []).append(atom)
    return named


def _wider(atom: RuleAtom, named: Mapping[_Names, Iterable[RuleAtom]]) -> Iterator[RuleAtom]:
    """Yield the atoms that may cover an atom."""
    group, resource, operation = _names_of(atom)
    for names in product({"*", group}, {"*", resource}, {"*", operation}):
        yield from named.get(names, ())


def left_of(atoms: Iterable[RuleAtom], others: Iterable[RuleAtom]) -> frozenset[RuleAtom]:
    """Return the atoms without those that others cover, even if only for one scope.

    A webhook for one version of a resource is sent requests for all of them.
    """
    others = [other.of_any_version for other in others]
    left: set[RuleAtom] = set()
    for atom in atoms:
        parted = atom.scope == "*" and any(o.scope != "*" and o.overlaps(atom) for o in others)
        scopes = _scopes(atom.group, atom.resource) if parted else (atom.scope,)
        left |= uncovered((atom._replace(scope=scope) for scope in scopes), others)
    return frozenset(left)


def _scopes(group: str, resource: str) -> tuple[Scope, ...]:
    """Return the scopes that a resource may have: the API server's own have one."""
    known = next((k for k in resources() if (k.group, k.plural) == (group, resource)), None)
    if known is None:
        return "Namespaced", "Cluster"
    return ("Namespaced",) if known.namespaced else ("Cluster",)


def connected(atoms: Iterable[RuleAtom]) -> list[frozenset[RuleAtom]]:
    """Sort atoms into sets such that no request is of two sets."""
    named = _by_names(sorted(atoms))
    wide = sorted(chain.from_iterable(named.pop(names) for names in [*named] if "*" in names))
    found = [each for alike in named.values() for each in _joined((), alike)]
    return sorted(_joined(found, wide), key=max)


def _joined(
    sets: Iterable[frozenset[RuleAtom]], atoms: Iterable[RuleAtom]
) -> list[frozenset[RuleAtom]]:
    """Add atoms to sets, and join the sets that share a request with the same atom."""
    found = list(sets)
    for atom in atoms:
        touched = [other for other in found if any(atom.overlaps(c) for c in other)]
        rest = [other for other in found if other not in touched]
        found = [*rest, frozenset({atom}).union(*touched)]
    return found


def rules_of(atoms: Iterable[RuleAtom]) -> tuple[Rule, ...]:
    """Return few rules for some atoms, in a fixed order, without those that a wildcard covers."""
    atoms = set(atoms)
    named = _by_names(atoms)
    needed = [
        atom
        for atom in sorted(atoms)
        if not any(other != atom and other.covers(atom) for other in _wider(atom, named))
    ]
    operations: dict[tuple[str, str, Scope, str], list[str]] = {}
    for atom in needed:
        operations.setdefault(atom[:4], []).append(atom.operation)
    resources: dict[tuple[str, str, Scope, tuple[str, ...]], list[str]] = {}
    for (group, version, scope, resource), verbs in operations.items():
        resources.setdefault((group, version, scope, tuple(verbs)), []).append(resource)
    return tuple(
        Rule(
            api_groups=(group,),
            api_versions=(version,),
            scope=scope,
            operations=verbs,
            resources=tuple(names),
        )
        for (group, version, scope, verbs), names in resources.items()
    )


def _overlap(one: str, other: str) -> bool:
    return one == other or "*" in (one, other)


def _resource_covers(wide: str, narrow: str) -> bool:
    """Tell whether `pods/*`, `*/status`, `*` or `*/*` covers another resource of a rule.

    `*` names no subresource, `pods/*` not the pods themselves.
    """
    if wide in {narrow, "*/*"}:
        return True
    if "/" not in wide:
        return wide == "*" and "/" not in narrow
    resource, _, part = wide.partition("/")
    narrow_resource, _, narrow_part = narrow.partition("/")
    return bool(narrow_part) and resource in {"*", narrow_resource} and part in {"*", narrow_part}


def _resources_overlap(one: str, other: str) -> bool:
    """Tell whether two resources of rules share a request; `pods/*` may mean pods too."""
    resource, _, part = one.partition("/")
    other_resource, _, other_part = other.partition("/")
    return _overlap(resource, other_resource) and _overlap(part, other_part)
