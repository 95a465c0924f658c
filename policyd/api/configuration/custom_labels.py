"""Labels that metrics take from objects: rules for `metrics.customLabels`."""

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from policyd.api.configuration.kinds import CustomLabel
from policyd.api.kueue.validation import FieldError
from policyd.api.names import label_key_problems

_MOST_LABELS: Final = 20
_MOST_LABELS_OF: Final = {"ClusterQueue": 6, "Cohort": 6, "LocalQueue": 6, "Workload": 2}
_MOST_TRACKED: Final = 16
_MOST_TRACKED_OF_WORKLOADS: Final = 12
_LABEL_NAME: Final = "^[a-zA-Z][a-zA-Z0-9_]*$"
Errors = Iterator[FieldError]


def validate_custom_labels(labels: tuple[CustomLabel, ...]) -> list[FieldError]:
    """Return what is wrong with the labels that metrics take from objects."""
    path, seen = "metrics.customLabels", set()
    errors: list[FieldError] = []
    if len(labels) > _MOST_LABELS:
        errors.append(_too_many(path, len(labels), _MOST_LABELS))
    for index, label in enumerate(labels):
        where = f"{path}[{index}]"
        errors += _label(where, label, twice=label.name in seen)
        errors += _tracked(f"{where}.trackedValues", label)
        seen.add(label.name)
    kinds = [label.source_kind or "ClusterQueue" for label in labels]
    for kind in sorted(set(kinds)):
        count, most = kinds.count(kind), _MOST_LABELS_OF.get(kind)
        if most is None:
            message = f"unknown source kind: {kind}"
        elif count > most:
            message = f"too many custom labels for source kind {kind}: found {count}, "
            message += f"expected <= {most}"
        else:
            continue
        errors.append(FieldError(path, msgspec.to_builtins(labels), message))
    return errors


def _too_many(path: str, count: int, most: int) -> FieldError:
    return FieldError(path, count, f"must have at most {most} items", "TooMany")


def _label(path: str, label: CustomLabel, *, twice: bool) -> Errors:
    if not re.fullmatch(_LABEL_NAME, label.name):
        yield FieldError(f"{path}.name", label.name, f"must match {_LABEL_NAME}")
    if twice:
        yield FieldError(f"{path}.name", label.name, "", "Duplicate")
    if label.source_label_key and label.source_annotation_key:
        message = "sourceLabelKey and sourceAnnotationKey are mutually exclusive"
        yield FieldError(path, msgspec.to_builtins(label), message)
    name, key = "name", label.name
    if label.source_label_key:
        name, key = "sourceLabelKey", label.source_label_key
    elif label.source_annotation_key:
        name, key = "sourceAnnotationKey", label.source_annotation_key
    problems = label_key_problems(key)
    if problems:
        yield FieldError(f"{path}.{name}", key, "; ".join(problems))


def _tracked(path: str, label: CustomLabel) -> Errors:
    values = label.tracked_values
    of_workloads = label.source_kind == "Workload"
    if of_workloads and not values:
        yield FieldError(path, [], "must not be empty when sourceKind is 'Workload'")
    if of_workloads and len(values) > _MOST_TRACKED_OF_WORKLOADS:
        most = _MOST_TRACKED_OF_WORKLOADS
        message = f"must not be greater than {most} when sourceKind is 'Workload'"
        yield FieldError(path, list(values), message)
    if not of_workloads and len(values) > _MOST_TRACKED:
        yield _too_many(path, len(values), _MOST_TRACKED)
    if len(set(values)) < len(values):
        yield FieldError(path, list(values), "must not contain duplicates")
