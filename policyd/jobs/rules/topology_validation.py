"""The errors in topology annotations of pods, in Kueue's words.

Whether the levels exist, and are in order, is known only where a job is placed.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import pairwise
from typing import Final, NamedTuple

from policyd.api.integers import whole_number
from policyd.api.kueue.names import (
    PODSET_PREFERRED_TOPOLOGY,
    PODSET_REQUIRED_TOPOLOGY,
    PODSET_UNCONSTRAINED_TOPOLOGY,
)
from policyd.api.kueue.validation import FieldError, Problem
from policyd.api.kueue.workload import SliceConstraint
from policyd.api.names import label_key_problems
from policyd.jobs.topology import (
    LEVEL_ANNOTATIONS,
    NO,
    POD_SET_GROUP_NAME,
    SLICE_CONSTRAINTS,
    SLICE_REQUIRED_TOPOLOGY,
    SLICE_SIZE,
    YES,
    slice_constraints,
)

_LEVELS: Final = (PODSET_REQUIRED_TOPOLOGY, PODSET_PREFERRED_TOPOLOGY, SLICE_REQUIRED_TOPOLOGY)
LAYERS_GATE: Final = "TASMultiLayerTopology"
"""Gate: whether slices may consist of smaller ones."""
_LAYERS: Final = 3
_GROUP_SIZE: Final = 2


class TopologyTemplate(NamedTuple):
    """A pod template.

    Attributes:
        where: The path of its annotations.
        annotations: Its annotations.
        pods: The number of its pods; None if not known.
    """

    where: str
    annotations: Mapping[str, str]
    pods: int | None = None

    def error(self, name: str, detail: str, problem: Problem = "Invalid") -> FieldError:
        """Return a mistake in one annotation."""
        value = self.annotations.get(name, "")
        return FieldError(f"{self.where}[{name}]", value, detail, problem)


def topology_errors(
    templates: Sequence[TopologyTemplate], *, off: Set[str] = frozenset()
) -> Iterator[FieldError]:
    """Yield the errors in the topology requests of one job's pod templates.

    Args:
        templates: Of the job.
        off: Feature gates that are off: without them nothing is asked for, or not so much.
    """
    if "TopologyAwareScheduling" in off:
        return
    for template in templates:
        yield from template_errors(template, off=off)
    groups: dict[str, list[TopologyTemplate]] = defaultdict(list)
    for template in templates:
        groups[template.annotations.get(POD_SET_GROUP_NAME, "")].append(template)
    for name, members in groups.items():
        if name:
            yield from _group(name, members)


def template_errors(template: TopologyTemplate, *, off: Set[str]) -> Iterator[FieldError]:
    """Yield the errors in the topology request of one template, or of a pod made from it.

    The arguments as in `topology_errors`.
    """
    if "TopologyAwareScheduling" in off:
        return
    yield from _levels(template)
    yield from _slices(template)
    yield from _constraints(template, several=LAYERS_GATE not in off)
    yield from _group_name(template)


def _levels(template: TopologyTemplate) -> Iterator[FieldError]:
    annotations = template.annotations
    given = [name for name in LEVEL_ANNOTATIONS if name in annotations]
    if len(given) > 1:
        names = ", ".join(f'"{name}"' for name in given)
        detail = f"must not contain more than one topology annotation: [{names}]"
        yield FieldError(template.where, annotations, detail)
    for name in _LEVELS:
        for problem in label_key_problems(annotations[name]) if name in annotations else ():
            yield template.error(name, problem)
    text = annotations.get(PODSET_UNCONSTRAINED_TOPOLOGY, "true")
    if text.lower() not in YES | NO:
        yield template.error(PODSET_UNCONSTRAINED_TOPOLOGY, "must be true or false")


def _slices(template: TopologyTemplate) -> Iterator[FieldError]:
    topology = template.annotations.get(SLICE_REQUIRED_TOPOLOGY)
    text = template.annotations.get(SLICE_SIZE)
    if topology is None and text is not None:
        detail = f"may not be set when '{SLICE_REQUIRED_TOPOLOGY}' is not specified"
        yield template.error(SLICE_SIZE, detail, "Forbidden")
    elif topology is not None and text is None:
        detail = f"must be set when '{SLICE_REQUIRED_TOPOLOGY}' is specified"
        yield template.error(SLICE_SIZE, detail, "Required")
    elif text is not None:
        yield from _size(template, SLICE_SIZE, whole_number(text, bits=32))


def _size(template: TopologyTemplate, name: str, size: int | None) -> Iterator[FieldError]:
    if size is None:
        yield template.error(name, "must be a numeric value")
    elif size < 1:
        yield template.error(name, "must be greater than or equal to 1")
    elif template.pods is not None and size > template.pods:
        yield template.error(name, f"must not be greater than pod set count {template.pods}")


def _constraints(template: TopologyTemplate, *, several: bool) -> Iterator[FieldError]:
    constraints = slice_constraints(template.annotations)
    if SLICE_CONSTRAINTS in template.annotations and not several:
        detail = f"may not be set while the feature gate {LAYERS_GATE} is off"
        yield template.error(SLICE_CONSTRAINTS, detail, "Forbidden")
    elif constraints is None:
        detail = "must be a list of `{topology, size}`, the sizes whole numbers"
        yield template.error(SLICE_CONSTRAINTS, detail)
    elif SLICE_CONSTRAINTS in template.annotations:
        for other in (SLICE_REQUIRED_TOPOLOGY, SLICE_SIZE):
            if other in template.annotations:
                yield _excluded(template, SLICE_CONSTRAINTS, by=other)
        yield from _layers(template, constraints)


def _layers(template: TopologyTemplate, layers: Sequence[SliceConstraint]) -> Iterator[FieldError]:
    if not 1 <= len(layers) <= _LAYERS:
        yield template.error(SLICE_CONSTRAINTS, f"must have between 1 and {_LAYERS} entries")
        return
    for problem in _layer_problems(layers):
        yield template.error(SLICE_CONSTRAINTS, problem)
    yield from _size(template, SLICE_CONSTRAINTS, layers[0].size)


def _layer_problems(layers: Sequence[SliceConstraint]) -> Iterator[str]:
    for layer in layers:
        for problem in label_key_problems(layer.topology):
            yield f"topology `{layer.topology}`: {problem}"
    if len({layer.topology for layer in layers}) < len(layers):
        yield "must not name a topology twice"
    if any(layer.size < 1 for layer in layers[1:]):
        yield "every size must be greater than or equal to 1"
    for outer, inner in pairwise(layers):
        if inner.size > 0 and outer.size % inner.size:
            yield f"size {inner.size} must divide the size around it, {outer.size}"


def _excluded(template: TopologyTemplate, name: str, *, by: str) -> FieldError:
    return template.error(name, f"may not be set when '{by}' is specified", "Forbidden")


def _group_name(template: TopologyTemplate) -> Iterator[FieldError]:
    annotations = template.annotations
    name = annotations.get(POD_SET_GROUP_NAME)
    if name is None:
        return
    if name.isdecimal():
        yield template.error(POD_SET_GROUP_NAME, "must not be a number")
    if not {PODSET_PREFERRED_TOPOLOGY, PODSET_REQUIRED_TOPOLOGY} & annotations.keys():
        detail = (
            f"may not be set when neither '{PODSET_PREFERRED_TOPOLOGY}' "
            f"nor '{PODSET_REQUIRED_TOPOLOGY}' is specified"
        )
        yield template.error(POD_SET_GROUP_NAME, detail, "Forbidden")
    for other in (SLICE_SIZE, SLICE_REQUIRED_TOPOLOGY, SLICE_CONSTRAINTS):
        if other in annotations:
            yield _excluded(template, POD_SET_GROUP_NAME, by=other)


def _group(name: str, members: Sequence[TopologyTemplate]) -> Iterator[FieldError]:
    """Yield the errors in pod sets that are to be placed together: a leader and workers."""
    if len(members) != _GROUP_SIZE:
        detail = f"can only define groups of exactly 2 pod sets, got: {len(members)} pod set(s)"
        yield from (template.error(POD_SET_GROUP_NAME, detail) for template in members)
        return
    one, other = members
    counts = [each.pods for each in members if each.pods is not None]
    if len(counts) == _GROUP_SIZE and 1 not in counts:
        detail = f"at least one pod set of group '{name}' must have exactly one pod"
        yield from (template.error(POD_SET_GROUP_NAME, detail) for template in members)
    if _level(one) != _level(other):
        for this, that in ((one, other), (other, one)):
            detail = (
                f"must specify '{PODSET_REQUIRED_TOPOLOGY}' or '{PODSET_PREFERRED_TOPOLOGY}' "
                f"topology consistent with '{that.where}' in group '{name}'"
            )
            yield FieldError(this.where, this.annotations, detail)


def _level(template: TopologyTemplate) -> tuple[str | None, str | None]:
    annotations = template.annotations
    return annotations.get(PODSET_REQUIRED_TOPOLOGY), annotations.get(PODSET_PREFERRED_TOPOLOGY)
