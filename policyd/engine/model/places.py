"""The expressions of a compiled policy, each with the environment that it was compiled in."""

from collections.abc import Iterator

from policyd.cel import Environment, Program
from policyd.engine.model.compiled import CompiledPolicy
from policyd.engine.model.environments import Places


def places_for(policy: CompiledPolicy) -> Places:
    """Return the environments that a policy's expressions were compiled in."""
    types = {name: program.result_type for name, program in policy.variables.items()}
    return policy.places.with_variables(types)


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
