"""Label selectors, as the specs of objects have them."""

from collections.abc import Mapping
from typing import Literal

from policyd.api.meta import Wire

Operator = Literal["In", "NotIn", "Exists", "DoesNotExist"]


class Requirement(Wire, frozen=True):
    """One condition on one label."""

    key: str
    """The label."""
    operator: Operator
    """`In` and `NotIn` compare with `values`; `Exists` and `DoesNotExist` take none."""
    values: tuple[str, ...] = ()
    """The values that the label may, or may not, have."""

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
    """Labels with the values that they must have."""
    match_expressions: tuple[Requirement, ...] = ()
    """Conditions on labels; all must hold."""

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Tell whether `labels` meet every requirement."""
        for key, value in self.match_labels.items():
            if labels.get(key) != value:
                return False
        for requirement in self.match_expressions:  # noqa: SIM110 - half the time of a generator
            if not requirement.matches(labels):
                return False
        return True
