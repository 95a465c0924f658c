"""The environments of a policy's expressions, by the kind it is written as and by version."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Final, Literal

from policyd.cel import Environment, admission_environment
from policyd.cel.environments import (
    AUTHORIZER,
    DEFAULT_VERSION,
    conditions_environment,
    message_environment,
)
from policyd.cel.functions import Version
from policyd.cel.kyverno import DICELESS, Chance, kyverno_environment
from policyd.cel.types import DYN, Type
from policyd.engine.model.functions import expression_environment, with_variables

Place = Literal["conditions", "expressions", "mutations", "messages"]
"""Where in a policy an expression stands."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """Which version of Kubernetes policies are written for.

    Attributes:
        version: Decides which functions there are.
        cel_go: The version of cel-go whose dialect is spoken, if not that of `version`.
        chance: The clock and the dice, which Kyverno's policies may ask.
    """

    version: Version = DEFAULT_VERSION
    cel_go: Version | None = None
    chance: Chance = DICELESS

    def of(self, environment: Environment) -> Environment:
        """Return an environment in this dialect."""
        return replace(environment, cel_go=self.cel_go) if self.cel_go else environment


DEFAULT_DIALECT: Final = Dialect()


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The environment of each place of a policy."""

    conditions: Environment
    expressions: Environment
    mutations: Environment
    messages: Environment
    one_line: bool = True
    """Whether the expression is put on one line where it stands for a missing message."""
    open_conditions: bool = False
    """Whether match conditions see the policy's variables."""

    def environment(self, place: Place) -> Environment:
        """Return the environment of a place."""
        environment: Environment = getattr(self, place)
        return environment

    def with_variables(self, types: Mapping[str, Type]) -> "Places":
        """Let `variables` have these fields, and no others, wherever they are seen."""
        conditions = self.conditions
        return replace(
            self,
            conditions=with_variables(conditions, types) if self.open_conditions else conditions,
            expressions=with_variables(self.expressions, types),
            mutations=with_variables(self.mutations, types),
            messages=with_variables(self.messages, types),
        )

    def failed_message(self, expression: str) -> str:
        """Return the message of a validation that has none."""
        shown = " ".join(expression.split()) if self.one_line else expression.strip()
        return f"failed expression: {shown}"


@cache
def own_places(dialect: Dialect, params: bool) -> Places:  # noqa: FBT001 - one of the forms
    """Return the environments of policyd's own kind."""
    expressions = dialect.of(expression_environment(dialect.version, params=params))
    mutations = expression_environment(dialect.version, params=params, mutation=True)
    return Places(
        conditions=expressions,
        expressions=expressions,
        mutations=dialect.of(mutations),
        messages=expressions,
    )


@cache
def native_places(dialect: Dialect, params: bool) -> Places:  # noqa: FBT001 - one of the forms
    """Return the environments of the API server's own policies."""
    version = dialect.version
    return Places(
        conditions=dialect.of(conditions_environment(version, params=params)),
        expressions=dialect.of(admission_environment(version, params=params)),
        mutations=dialect.of(admission_environment(version, params=params, mutation=True)),
        messages=dialect.of(message_environment(version, params=params)),
        one_line=False,
    )


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
