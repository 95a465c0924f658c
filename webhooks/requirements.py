"""Label selectors as sets of requirements, which can be compared and taken together."""

from collections.abc import Iterable

from policyd.api.selectors import LabelSelector, Operator, Requirement

Requirements = frozenset[Requirement]
"""A label selector: all of it must hold. More requirements select less."""


def requirements_of(selector: LabelSelector) -> Requirements:
    """Write a selector in one way only, so that equal ones are equal."""
    labels = {_requirement(k, "In", {v}) for k, v in selector.match_labels.items()}
    return frozenset(labels) | {
        _requirement(r.key, r.operator, r.values) for r in selector.match_expressions
    }


def in_order(requirements: Requirements) -> list[Requirement]:
    """Return requirements in a fixed order."""
    return sorted(requirements, key=lambda r: (r.key, r.operator, r.values))


def text_of(requirements: Requirements) -> str:
    """Write requirements out, in a fixed order."""
    return "".join(map(repr, in_order(requirements)))


def common(selectors: Iterable[Requirements]) -> Requirements:
    """Return what all selectors ask for, the values of one label taken together.

    Whatever one of them selects, this selects as well. There must be at least one.
    """
    selectors = tuple(selectors)
    kept = set()
    for requirement in selectors[0]:
        found = [_agreeing(requirement, other) for other in selectors]
        if all(found):
            values = {value for other in found if other for value in other.values}
            kept.add(_requirement(requirement.key, requirement.operator, values))
    return frozenset(kept)


def _agreeing(requirement: Requirement, selector: Requirements) -> Requirement | None:
    """Return the requirement of a selector that asks the same, or for other values of the label."""
    if requirement.operator != "In":
        return requirement if requirement in selector else None
    return next((r for r in selector if (r.key, r.operator) == (requirement.key, "In")), None)


def taken_together(selectors: Iterable[Requirements]) -> dict[Requirements, Requirements]:
    """Widen selectors until any two of them are the same, or select nothing in common."""
    apart: dict[Requirements, tuple[Requirements, ...]] = {}
    for selector in sorted(set(selectors), key=text_of):
        union = selector
        members: tuple[Requirements, ...] = (selector,)
        while touched := [other for other in apart if not disjoint(other, union)]:
            union = common([union, *touched])
            members += tuple(member for other in touched for member in apart.pop(other))
        apart[union] = members
    return {member: union for union, members in apart.items() for member in members}


def disjoint(one: Requirements, other: Requirements) -> bool:
    """Tell whether nothing can be selected by both, as far as one label at a time says."""
    return any(a.key == b.key and (_excludes(a, b) or _excludes(b, a)) for a in one for b in other)


def _excludes(one: Requirement, other: Requirement) -> bool:
    match one.operator, other.operator:
        case ("In", "In"):
            return not set(one.values) & set(other.values)
        case ("In", "NotIn"):
            return set(one.values) <= set(other.values)
        case ("In" | "Exists", "DoesNotExist"):
            return True
        case _:
            return False


def _requirement(key: str, operator: Operator, values: Iterable[str]) -> Requirement:
    return Requirement(key=key, operator=operator, values=tuple(sorted(set(values))))
