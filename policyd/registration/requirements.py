"""Label selectors as sets of requirements, which can be compared and taken together."""

from collections.abc import Iterable, Mapping
from itertools import product
from typing import Final, TypeVar

from policyd.api.names import NAME_LABEL, is_label_key, is_label_value
from policyd.api.rollout import RolloutStep
from policyd.api.selectors import LabelSelector, Operator, Requirement

T = TypeVar("T")

MOST_SELECTORS: Final = 16
"""Selectors that are cut apart; each gets a webhook or more."""

MOST_PIECES: Final = 64
"""Pieces that namespaces are cut into, of which most have no policy."""

Requirements = frozenset[Requirement]
"""A label selector: all of it must hold. More requirements select less."""


MOST_REQUIREMENTS: Final = 32
MOST_VALUES: Final = 1000
"""Most values of one selector, and of one label: the API server compares them at each request."""


def requirements_of(selector: LabelSelector) -> Requirements:
    """Write a selector in one way only, so that equal ones are equal.

    Requirements that the API server rejects, or too many, are left out: it would refuse the whole
    configuration, those of all others with it. More is sent then, and decided by the policy.
    """
    asked = [_requirement(k, "In", {v}) for k, v in selector.match_labels.items()]
    asked += [_requirement(r.key, r.operator, r.values) for r in selector.match_expressions]
    kept = frozenset(requirement for requirement in asked if _is_valid(requirement))
    values = sum(len(requirement.values) for requirement in kept)
    return kept if len(kept) <= MOST_REQUIREMENTS and values <= MOST_VALUES else frozenset()


def _is_valid(requirement: Requirement) -> bool:
    values = requirement.values
    has_values = requirement.operator in {"In", "NotIn"}
    return (
        is_label_key(requirement.key)
        and bool(values) is has_values
        and all(map(is_label_value, values))
    )


def named(*namespaces: str) -> Requirements:
    """Return a selector of namespaces by name; of all if no name is given, or an empty one."""
    if not any(namespaces):
        return frozenset()
    return frozenset({_requirement(NAME_LABEL, "In", namespaces)})


def namespaces_of(step: RolloutStep) -> Requirements:
    """Return a selector of the namespaces that a step of a roll-out may concern."""
    return requirements_of(step.namespace_selector) | named(*step.namespaces)


def in_order(requirements: Requirements) -> list[Requirement]:
    """Return requirements in a fixed order."""
    return sorted(requirements, key=lambda r: (r.key, r.operator, r.values))


def text_of(requirements: Requirements) -> str:
    """Write requirements out, in a fixed order."""
    return "".join(map(repr, in_order(requirements)))


def common(selectors: Iterable[Requirements]) -> Requirements:
    """Return the requirements of all selectors, with the values of each label united.

    It selects every object that one of them selects. There must be at least one.
    """
    selectors = sorted(selectors, key=text_of)
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
    return next(
        (r for r in in_order(selector) if (r.key, r.operator) == (requirement.key, "In")), None
    )


def apart(selectors: Iterable[Requirements]) -> dict[Requirements, tuple[Requirements, ...]] | None:
    """Cut the selected objects into disjoint pieces; return the pieces of each selector.

    Each requirement holds in one half of the pieces, and its opposite in the other. None if that
    makes too many.
    """
    selectors = set(selectors)
    if len(selectors) > MOST_SELECTORS:
        return None
    pieces: list[Requirements] = [frozenset()]
    for requirement in in_order(frozenset().union(*selectors)):
        halves = (requirement, _opposite(requirement))
        pieces = [
            piece | {half}
            for piece in pieces
            for half in halves
            if not any(_exclude(half, other) for other in piece)
        ]
        if len(pieces) > MOST_PIECES:
            return None
    return {
        selector: tuple(_shortened(piece) for piece in pieces if selector <= piece)
        for selector in selectors
    }


def rejoined(pieces: Mapping[Requirements, T]) -> dict[Requirements, T]:
    """Put pieces together that differ in one requirement, have the same value, and are a whole."""
    kept = {piece: pieces[piece] for piece in sorted(pieces, key=text_of)}
    for one, other in product(tuple(kept), repeat=2):
        if one in kept and other in kept and kept[one] == kept[other]:
            halves = in_order(one - other), in_order(other - one)
            if len(halves[0]) == 1 and halves[1] == [_opposite(halves[0][0])]:
                joined = {one & other: kept.pop(one)}
                del kept[other]
                return rejoined(kept | joined)
    return kept


def _opposite(requirement: Requirement) -> Requirement:
    opposites: dict[Operator, Operator] = {
        "In": "NotIn",
        "NotIn": "In",
        "Exists": "DoesNotExist",
        "DoesNotExist": "Exists",
    }
    return _requirement(requirement.key, opposites[requirement.operator], requirement.values)


def _shortened(piece: Requirements) -> Requirements:
    """Leave out requirements that follow from the others."""
    return frozenset(r for r in piece if not any(_implies(other, r) for other in piece - {r}))


def _implies(one: Requirement, other: Requirement) -> bool:
    return _exclude(one, _opposite(other))


def _exclude(one: Requirement, other: Requirement) -> bool:
    """Tell whether no labels meet both."""
    return one.key == other.key and (_excludes(one, other) or _excludes(other, one))


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
