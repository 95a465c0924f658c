"""The environments of the expressions of Kyverno's policies, by kind."""

from dataclasses import replace
from functools import cache, partial

from policyd.cel.environments import AUTHORIZER
from policyd.cel.types import DYN
from policyd.dialects.kyverno.environment import kyverno_environment, kyverno_values
from policyd.engine.model.dialects import Dialect
from policyd.engine.model.environments import Places


@cache
def kyverno_places(
    dialect: Dialect,
    params: bool,  # noqa: FBT001 - one of the forms
    *,
    namespaced: bool = False,
) -> Places:
    """Return the environments of Kyverno's policies, which are one but for mutations."""
    version, chance = dialect.version, dialect.chance
    expressions, mutations = (
        dialect.of(
            kyverno_environment(version, mutation=mutation, chance=chance, namespaced=namespaced)
        )
        for mutation in (False, True)
    )
    if params:
        expressions = expressions.extend(variables={"params": DYN})
    return Places(
        conditions=expressions,
        expressions=expressions,
        mutations=mutations,
        messages=expressions,
        one_line=False,
        open_conditions=True,
        values=kyverno_values(),
    )


own_namespace_places = partial(kyverno_places, namespaced=True)
"""Returns the environments of Kyverno's policies that belong to a namespace."""


@cache
def cluster_policy_places(
    dialect: Dialect,
    params: bool,  # noqa: FBT001 - one of the forms
    *,
    namespaced: bool = False,
) -> Places:
    """Return the environments of a ClusterPolicy, which may ask what users may do."""
    places = kyverno_places(dialect, params, namespaced=namespaced)
    asking = places.expressions.extend(variables=AUTHORIZER)
    return replace(places, conditions=asking, expressions=asking, open_conditions=False)


namespaced_rule_places = partial(cluster_policy_places, namespaced=True)
"""Returns the environments of Kyverno's Policy, which belongs to a namespace."""
