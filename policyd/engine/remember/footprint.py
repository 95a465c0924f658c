"""The fields that policies read in a new pod: they cannot distinguish pods that are equal in these.

A footprint is a tree of the fields that are read. It becomes a type that leaves out everything
else when a pod is decoded: the value, encoded again, is equal for equal pods.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from types import GenericAlias
from typing import Any, Final

import msgspec

from policyd.api import kinds
from policyd.api.admission import Operation
from policyd.api.kinds import FieldType
from policyd.api.selectors import LabelSelector
from policyd.cel import Program
from policyd.engine.model.compiled import CompiledPolicy
from policyd.engine.objects.workloads import EACH
from policyd.engine.remember.footprint_changes import changed
from policyd.engine.remember.footprint_expressions import ReadFinder
from policyd.engine.remember.footprint_tree import LABELS, Footprint, UnboundedError

_POD: Final = FieldType(shape="struct", struct="core/v1.Pod")

_MOST_POLICIES: Final = 4096
"""Policies whose footprints are kept while others change."""

_MOST_FIELDS: Final = 200
"""Most fields of one object in a footprint: each field of a pod is compared with all of them."""

_KNOWN: Final = frozenset(
    (
        *("object", "pod", "workload", "maker", "oldObject", "request"),
        *("namespaceObject", "params", "variables"),
    )
)
"""Variables whose reads can be determined. A new pod has no old object; namespace and
params are left to the caller that compares pods."""


def footprint(policies: Iterable[CompiledPolicy]) -> tuple[Any, frozenset[str]]:
    """Return the reads of policies when a pod is created that they allow.

    Returns:
        The type by which to read the pod, and the names of the fields of the request.

    Raises:
        UnboundedError: If the reads of one cannot be determined.
    """
    pod, request = Footprint(), Footprint()
    for field in ("apiVersion", "kind"):
        pod.at(field).take()
    for policy in policies:
        of_pod, of_request = reads_of(policy, "CREATE")
        pod.join(of_pod)
        request.join(of_request)
        for path in changed(policy):
            pod.at(*path).take()
    if request.whole or EACH in request.fields:
        raise UnboundedError
    return _type(pod, _POD), frozenset(request.fields)


def reads_of(
    policy: CompiledPolicy, operation: Operation, programs: Iterable[Program] | None = None
) -> tuple[Footprint, Footprint]:
    """Return a policy's reads in an object and in the request, without those of its changes.

    Args:
        policy: The policy.
        operation: That of the requests.
        programs: Those of its expressions that count; all if left out.

    Raises:
        UnboundedError: If they cannot be determined.
    """
    _check_bounded(policy)
    chosen = policy.programs if programs is None else programs
    of_object, of_request = _reads_of_all(
        operation,
        tuple(program.source for program in chosen),
        tuple((name, program.source) for name, program in policy.variables.items()),
    )
    reads = Footprint()
    reads.join(of_object)
    for key in _labels(policy):
        reads.at(*LABELS, key).take()
    return reads, of_request


@lru_cache(maxsize=_MOST_POLICIES)
def _reads_of_all(
    operation: Operation, expressions: tuple[str, ...], variables: tuple[tuple[str, str], ...]
) -> tuple[Footprint, Footprint]:
    """Return the reads of expressions in the pod and in the request: once for each policy.

    Raises:
        UnboundedError: If they cannot be determined.
    """
    pod, request = Footprint(), Footprint()
    finder = ReadFinder(dict(variables), operation, pod=pod, request=request)
    for expression in expressions:
        finder.take(expression)
    return pod, request


def _check_bounded(policy: CompiledPolicy) -> None:
    """Check that a policy depends only on the request, the namespace and params."""
    given = (policy.constraints, *(binding.constraints for binding in policy.bindings))
    narrowed = [constraints for constraints in given if constraints is not None]
    rules = [r for each in narrowed for r in (*each.resource_rules, *each.exclude_resource_rules)]
    if (
        policy.applies is not None
        or policy.exceptions
        or policy.staged
        or any(binding.actions_for is not None for binding in policy.bindings)
        or any(rule.resource_names for rule in rules)
        or any(name.partition(".")[0] not in _KNOWN for name in policy.uses)
    ):
        raise UnboundedError


def _labels(policy: CompiledPolicy) -> Iterator[str]:
    """Yield the labels by which pods are selected."""
    yield from _keys(policy.constraints.object_selector)
    for binding in policy.bindings:
        if binding.constraints is not None:
            yield from _keys(binding.constraints.object_selector)


def _keys(selector: LabelSelector) -> Iterator[str]:
    yield from selector.match_labels
    yield from (requirement.key for requirement in selector.match_expressions)


def _type(node: Footprint, field: FieldType | None) -> Any:  # noqa: ANN401 - msgspec takes types
    """Return the type that reads a field as far as it is looked at.

    Expressions do not say whether a field is a list or a map: the type of pods does. A value that
    is neither as they use it is read whole.
    """
    reads = node.fields
    if field is None or node.whole or node.devices or not reads:
        return msgspec.Raw
    if field.shape == "list" and field.element and reads.keys() == {EACH}:
        return GenericAlias(list, _type(reads[EACH], field.element))
    if EACH in reads or len(reads) > _MOST_FIELDS or any(map(_is_odd, reads)):
        return msgspec.Raw
    if field.shape == "struct" and field.struct:
        known = kinds.fields(field.struct)
        return _struct({name: _type(node, known.get(name)) for name, node in reads.items()})
    if field.shape == "map":
        return _struct({name: _type(node, field.element) for name, node in reads.items()})
    return msgspec.Raw


def _is_odd(name: str) -> bool:
    """Tell whether msgspec may not take a name for a field: it writes them without escapes."""
    return '"' in name or "\\" in name or not name.isprintable()


def _struct(types: Mapping[str, Any]) -> type[msgspec.Struct]:
    """Return a Struct that distinguishes absent fields from null."""
    names = {f"field_{number}": name for number, name in enumerate(types)}
    fields = [
        (own, _nullable(types[name]) | msgspec.UnsetType, msgspec.UNSET)
        for own, name in names.items()
    ]
    return msgspec.defstruct("Looked", fields, rename=names)


def _nullable(given: Any) -> Any:  # noqa: ANN401 - msgspec takes types
    return given if given is msgspec.Raw else given | None
