"""What must hold for topology assignments beyond their schema."""

from collections.abc import Iterator
from typing import Final

from policyd.api.kueue.validation import FieldError
from policyd.api.kueue.workload import (
    LevelValues,
    PodCounts,
    TopologyAssignment,
    TopologySlice,
    Workload,
)

_EITHER: Final = "either universal or individual is needed, and not both"


def placement_errors(new: Workload, old: Workload | None) -> Iterator[FieldError]:
    """Yield what is wrong with the topology assignments that a workload had not before."""
    known = () if old is None else _placements(old)
    for index, placement in enumerate(_placements(new)):
        if placement is not None and placement not in known:
            path = f"status.admission.podSetAssignments[{index}].topologyAssignment"
            yield from _placement(placement, path)


def _placements(workload: Workload) -> tuple[TopologyAssignment | None, ...]:
    admission = workload.status.admission
    assignments = () if admission is None else admission.pod_set_assignments
    return tuple(each.topology_assignment for each in assignments)


def _placement(placement: TopologyAssignment, path: str) -> Iterator[FieldError]:
    levels = len(placement.levels)
    for index, part in enumerate(placement.slices):
        where = f"{path}.slices[{index}]"
        if len(part.values_per_level) != levels:
            message = f"must have one value for each of the {levels} levels"
            count = len(part.values_per_level)
            yield FieldError(f"{where}.valuesPerLevel", count, message, schema=True)
        yield from _counts(part, part.pod_counts, f"{where}.podCounts")
        for level, values in enumerate(part.values_per_level):
            yield from _values(part, values, f"{where}.valuesPerLevel[{level}]")


def _counts(part: TopologySlice, counts: PodCounts, path: str) -> Iterator[FieldError]:
    given = len(counts.individual)
    if (counts.universal is None) == (not given):
        yield FieldError(path, given, _EITHER, schema=True)
    elif given and given != part.domain_count:
        message = f"must have one count for each of the {part.domain_count} domains"
        yield FieldError(f"{path}.individual", given, message, schema=True)


def _values(part: TopologySlice, values: LevelValues, path: str) -> Iterator[FieldError]:
    each = values.individual
    if (values.universal is None) == (each is None):
        yield FieldError(path, None, _EITHER, schema=True)
    elif each is not None and len(each.roots) != part.domain_count:
        message = f"must have one root for each of the {part.domain_count} domains"
        yield FieldError(f"{path}.individual.roots", len(each.roots), message, schema=True)
