"""Label selectors: the object form of specs and the string form of queries."""

import re
from collections.abc import Mapping
from typing import Literal

from policyd.api.meta import Wire
from policyd.errors import PolicydError

Operator = Literal["In", "NotIn", "Exists", "DoesNotExist"]

_TERM = re.compile(r"\s*([^\s=!,()]+)\s*(==|=|!=|\s+in\s+|\s+notin\s+)\s*(\([^()]*\)|[^\s,()]*)\s*")
_SPLIT = re.compile(r",(?![^()]*\))")
_OPERATORS: dict[str, Operator] = {
    "=": "In",
    "==": "In",
    "in": "In",
    "!=": "NotIn",
    "notin": "NotIn",
}


class SelectorError(PolicydError):
    """A label selector cannot be read."""


class Requirement(Wire, frozen=True):
    """One condition on one label."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Tell whether `labels` meet this requirement; a missing one is never In, always NotIn."""
        match self.operator:
            case "In":
                return labels.get(self.key) in self.values and self.key in labels
            case "NotIn":
                return self.key not in labels or labels[self.key] not in self.values
            case "Exists":
                return self.key in labels
            case "DoesNotExist":
                return self.key not in labels


class LabelSelector(Wire, frozen=True):
    """All labels and all expressions must match; the empty selector matches everything."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Tell whether `labels` meet every requirement."""
        return all(labels.get(k) == v for k, v in self.match_labels.items()) and all(
            requirement.matches(labels) for requirement in self.match_expressions
        )


def parse_selector(text: str) -> LabelSelector:
    """Read the string form: `app=web,tier in (a, b),!legacy`.

    Raises:
        SelectorError: If a term is none of the forms above.
    """
    terms = [term.strip() for term in _SPLIT.split(text) if term.strip()]
    return LabelSelector(match_expressions=tuple(_parse_term(term) for term in terms))


def _parse_term(term: str) -> Requirement:
    found = _TERM.fullmatch(term)
    if found:
        key, operator, value = found[1], found[2].strip(), found[3]
        values = tuple(part.strip() for part in value.strip("()").split(","))
        return Requirement(key=key, operator=_OPERATORS[operator], values=values)
    if re.fullmatch(r"!\s*[^\s=!,()]+", term):
        return Requirement(key=term[1:].strip(), operator="DoesNotExist")
    if re.fullmatch(r"[^\s=!,()]+", term):
        return Requirement(key=term, operator="Exists")
    raise SelectorError(
        f"cannot read label selector `{term}`", hint="write `key=value` or `key in (a, b)`"
    )
