"""The environments of a compiled policy's expressions, its variables with their types."""

from collections.abc import Iterator

from policyd.cel import Environment, Program
from policyd.engine.model.compiled import MUTATING, OWN, VALIDATING, CompiledPolicy
from policyd.engine.model.dialects import (
    DEFAULT_DIALECT,
    Dialect,
    Places,
    cluster_policy_places,
    kyverno_places,
    native_places,
    own_places,
)

_OF = {
    OWN: own_places,
    VALIDATING: native_places,
    MUTATING: native_places,
    "ClusterPolicy": cluster_policy_places,
    "kyverno.io/Policy": cluster_policy_places,
}


def places_for(policy: CompiledPolicy, dialect: Dialect = DEFAULT_DIALECT) -> Places:
    """Return the environments that a policy's expressions were compiled in."""
    make = _OF.get(policy.kind, kyverno_places)
    places = make(dialect, policy.policy.spec.param_kind is not None)
    types = {name: program.result_type for name, program in policy.variables.items()}
    return places.with_variables(types)


def expressions_of(policy: CompiledPolicy) -> Iterator[tuple[str, Program, Environment]]:
    """Yield the expressions of a policy, by name or by where they stand, and their environments."""
    places = places_for(policy)
    for name, program in policy.conditions:
        yield name, program, places.conditions
    for name, program in policy.variables.items():
        yield name, program, places.expressions
    for validation in policy.validations:
        yield validation.place, validation.program, places.expressions
    for mutation in policy.mutations:
        yield mutation.place, mutation.program, places.mutations
