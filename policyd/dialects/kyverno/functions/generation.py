"""Take the objects that Kyverno's policies generate by `generator`.

A policy of the cluster names the namespace of its objects; one of a namespace generates there.
"""

from typing import Final

from policyd.cel.cost import deep_size
from policyd.cel.functions import Overload, Size, method
from policyd.cel.types import BOOL, DYN, STRING, Type, list_of, map_of
from policyd.cel.values import Value
from policyd.engine.model.background import ObjectCollector

GENERATOR: Final = Type(ObjectCollector.cel_type_name)
_OBJECTS: Final = list_of(map_of(STRING, DYN))


def _apply(generator: ObjectCollector, namespace: str, objects: list[Value]) -> bool:
    generator.take(namespace, objects)
    return True


def _apply_own(generator: ObjectCollector, objects: list[Value]) -> bool:
    generator.take(None, objects)
    return True


def _work(*given: object) -> int:
    return 5 + 2 * sum(map(deep_size, given))


_SIZE: Final = Size(cost=100, work=_work)

GENERATION: Final[tuple[Overload, ...]] = tuple(
    method(name, GENERATOR, STRING, _OBJECTS, returns=BOOL, run=_apply, size=_SIZE)
    for name in ("Apply", "apply")
)
"""The functions of `generator` for policies of the cluster."""
OWN_GENERATION: Final[tuple[Overload, ...]] = tuple(
    method(name, GENERATOR, _OBJECTS, returns=BOOL, run=_apply_own, size=_SIZE)
    for name in ("Apply", "apply")
)
"""The functions of `generator` for namespaced policies."""
