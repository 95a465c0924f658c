"""Where an unknown object may have pod templates, and such a template as if it were a pod."""

from collections.abc import Iterator
from typing import Any

from policyd.engine.objects.extracts import IDENTITY
from policyd.engine.objects.workloads import EACH
from policyd.prove.outcomes import entries_of, opened
from policyd.prove.values import (
    Alternative,
    Listing,
    Mapping,
    Outcome,
    UnencodableError,
    all_of,
    any_of,
    negation,
    only_if,
    sure,
    text_of_term,
    text_term,
)
from policyd.prove.world import UnknownValue


def pods_at(obj: UnknownValue, path: tuple[str, ...]) -> Iterator[tuple[Any, UnknownValue]]:
    """Yield the objects that may be at a path, each with the condition that it is one.

    Args:
        obj: The object.
        path: The path, with `EACH` for every element of a list or map.
    """
    if not path:
        yield obj.is_a("map"), obj
        return
    step, *rest = path
    for when, value in obj.alternatives():
        for there, child in _children(value, step):
            for condition, found in pods_at(child, tuple(rest)):
                yield all_of([when, there, condition]), found


def _children(value: Any, step: str) -> Iterator[tuple[Any, UnknownValue]]:  # noqa: ANN401
    """Yield the fields or elements of a value that a step of a path means."""
    if step != EACH:
        child = value.field(step) if isinstance(value, UnknownValue) else None
        if child is not None:
            yield child.present, child
        return
    if isinstance(value, Listing):
        elements = value.elements
    elif isinstance(value, UnknownValue):
        elements = tuple((there, outcome) for there, _, outcome in entries_of(value))
    else:
        elements = ()
    for there, outcome in elements:
        yield from ((there, each.value) for each in outcome)


def as_pod(obj: Outcome, path: tuple[str, ...]) -> Outcome:
    """Return an object as if it were the pod that its template makes, as the engine shows it.

    Raises:
        UnencodableError: If its templates are in a list, or its fields are not known.
    """
    if EACH in path:
        raise UnencodableError("pod templates of lists as if they were pods")
    if not path:
        return obj
    made: list[Alternative] = []
    for when, value in opened(obj):
        if isinstance(value, UnknownValue):
            if value.schema.fields is None:
                raise UnencodableError("pod templates of custom kinds as if they were pods")
            made += only_if(when, sure(Mapping(tuple(_pod_entries(value, path)))))
        else:
            made.append(Alternative(when, value))
    return tuple(made)


def _pod_entries(obj: UnknownValue, path: tuple[str, ...]) -> Iterator[tuple[Any, Any, Outcome]]:
    for there, key, outcome in entries_of(obj):
        if text_of_term(key) not in ("spec", "metadata"):
            yield there, key, outcome
    for exists, template in pods_at(obj, path):
        spec, metadata = template.field("spec"), template.field("metadata")
        if spec is not None:
            yield all_of([exists, spec.present]), text_term("spec"), sure(spec)
        if metadata is not None:
            named = sure(Mapping(tuple(_identified(metadata, obj.field("metadata")))))
            yield all_of([exists, metadata.is_a("map")]), text_term("metadata"), named


def _identified(
    metadata: UnknownValue, of_object: UnknownValue | None
) -> Iterator[tuple[Any, Any, Outcome]]:
    """Yield the entries of a template's metadata, with what identifies the object."""
    own = {text_of_term(key): (there, outcome) for there, key, outcome in entries_of(metadata)}
    for name in IDENTITY:
        given = None if of_object is None else of_object.field(name)
        if given is None:
            continue
        some = given.is_a("bool", "int", "double", "string", "list", "map")
        there, outcome = own.pop(name, (some, ()))
        kept = only_if(negation(some), outcome)
        yield any_of([some, there]), text_term(name), (*only_if(some, sure(given)), *kept)
    for name, (there, outcome) in own.items():
        yield there, text_term(name), outcome
