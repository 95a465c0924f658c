"""Make the environments of Kyverno's policies, with the libraries of Kyverno.

The caller provides external data: a clock and random numbers when the environment is made, the
rest as values of variables when an expression is evaluated.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache, lru_cache, partial
from typing import Any, Final

from policyd.cel.admission_types import JSON_PATCH, NAMESPACE, REQUEST
from policyd.cel.environment import Environment
from policyd.cel.environments import AUTHORIZER, DEFAULT_VERSION, LIBRARIES, base_environment
from policyd.cel.functions import Version, collect
from policyd.cel.lib.authorizer import JSON_PATCHES
from policyd.cel.lib.encoders import ENCODERS
from policyd.cel.lib.math import MATH
from policyd.cel.lib.strings import REVERSE
from policyd.cel.syntax.macros import ALL_MACROS
from policyd.cel.types import DYN, STRING, Type, list_of, map_of
from policyd.dialects.kyverno.functions.certificates import CERTIFICATES
from policyd.dialects.kyverno.functions.encoding import CODECS, ENCODING, JSON, YAML
from policyd.dialects.kyverno.functions.external_data import (
    EXTERNAL_DATA,
    EXTERNAL_STRUCTS,
    EXTERNAL_VARIABLES,
    OWN_RESOURCES,
    RESOURCES,
    external_values,
)
from policyd.dialects.kyverno.functions.generation import (
    GENERATION,
    GENERATOR,
    OWN_GENERATION,
)
from policyd.dialects.kyverno.functions.images import IMAGES
from policyd.dialects.kyverno.functions.providers import (
    ClusterReads,
    GlobalContext,
    Http,
    ImageData,
)
from policyd.dialects.kyverno.functions.random_text import random_texts
from policyd.dialects.kyverno.functions.values import (
    SERVICE_ACCOUNT,
    SERVICE_ACCOUNT_FIELDS,
    VALUES,
    moments,
)
from policyd.engine.model.dialects import DETERMINISTIC, Dialect, Volatile
from policyd.engine.model.environments import REQUEST_OBJECTS, PolicyEnvironments

_OWN: Final = (REVERSE, MATH, ENCODERS, CERTIFICATES, ENCODING, IMAGES, VALUES, EXTERNAL_DATA)
_REQUEST: Final = "kubernetes.AdmissionRequest"
_EXCEPTIONS: Final = {
    "kyverno.Exceptions": {"allowedImages": list_of(STRING), "allowedValues": list_of(STRING)}
}
_DECLARED: Final[Mapping[str, Type]] = {
    "object": DYN,
    "oldObject": DYN,
    "request": Type(_REQUEST),
    "namespaceObject": Type("kubernetes.Namespace"),
    "variables": Type("kubernetes.variables"),
    "images": map_of(STRING, list_of(STRING)),
    "exceptions": Type("kyverno.Exceptions"),
    "json": JSON,
    "yaml": YAML,
    **EXTERNAL_VARIABLES,
}


@lru_cache(maxsize=16)
def _base(version: Version, volatile: Volatile, *, mutation: bool, namespaced: bool) -> Environment:
    volatile_functions = moments(volatile.now), random_texts(volatile.random_below)
    libraries = (*LIBRARIES, *_OWN, OWN_RESOURCES if namespaced else RESOURCES, *volatile_functions)
    environment = base_environment(version)
    structs = {
        **REQUEST,
        _REQUEST: {**REQUEST[_REQUEST], **dict.fromkeys(REQUEST_OBJECTS, DYN)},
        **NAMESPACE,
        **EXTERNAL_STRUCTS,
        **_EXCEPTIONS,
        SERVICE_ACCOUNT.name: SERVICE_ACCOUNT_FIELDS,
    }
    made = Environment(
        variables=_DECLARED,
        functions=collect(libraries),
        macros=ALL_MACROS,
        structs=structs,
        version=version,
        cel_go=environment.cel_go,
        same_type_literals=True,
    )
    return made.with_mutation(JSON_PATCH, JSON_PATCHES) if mutation else made


def kyverno_environment(
    version: Version = DEFAULT_VERSION,
    *,
    variables: Mapping[str, Type] | None = None,
    mutation: bool = False,
    volatile: Volatile = DETERMINISTIC,
    namespaced: bool = False,
) -> Environment:
    """Return the environment of the expressions of a Kyverno policy.

    Kyverno brings its own cel-go, so that every function exists in any version of the cluster;
    the version decides on the dialect.

    Args:
        version: The version of Kubernetes the policy is written for.
        variables: Types of the policy's own variables by name, those declared so far.
        mutation: Whether `Object` and `JSONPatch` may be made.
        volatile: The clock and the random numbers.
        namespaced: Whether the policy belongs to a namespace, and `resource` to that alone.
    """
    environment = _base(version, volatile, mutation=mutation, namespaced=namespaced)
    return environment.extend(structs={"kubernetes.variables": variables or {}})


def kyverno_values(
    *,
    resources: ClusterReads | None = None,
    http: Http | None = None,
    global_context: GlobalContext | None = None,
    images: ImageData | None = None,
) -> dict[str, Any]:
    """Return the values of Kyverno's own variables, for an evaluation.

    A variable that is None is refused with a message when an expression uses it. `images` and
    `exceptions` are of the object and its policy: they are the caller's to add.
    """
    external = external_values(
        resources=resources, http=http, global_context=global_context, images=images
    )
    nothing: dict[str, list[str]] = {"allowedImages": [], "allowedValues": []}
    return {**external, **CODECS, "images": {}, "exceptions": nothing}


@cache
def kyverno_environments(
    dialect: Dialect,
    params: bool,  # noqa: FBT001 - one of the forms
    *,
    namespaced: bool = False,
) -> PolicyEnvironments:
    """Return the environments of Kyverno's policies, which are the same except for mutations."""
    version, volatile = dialect.version, dialect.volatile
    expressions, mutations = (
        dialect.of(
            kyverno_environment(
                version, mutation=mutation, volatile=volatile, namespaced=namespaced
            )
        )
        for mutation in (False, True)
    )
    if params:
        expressions = expressions.extend(variables={"params": DYN})
    return PolicyEnvironments(
        conditions=expressions,
        expressions=expressions,
        mutations=mutations,
        messages=expressions,
        one_line=False,
        open_conditions=True,
        request_objects=True,
        values=kyverno_values(),
    )


@cache
def generating_environments(
    dialect: Dialect,
    params: bool,  # noqa: FBT001 - one of the forms
    *,
    namespaced: bool = False,
) -> PolicyEnvironments:
    """Return the environments of policies that generate, whose expressions have `generator`.

    As in Kyverno, lists and maps may have parts of different types there: objects do.
    """
    environments = kyverno_environments(dialect, params, namespaced=namespaced)
    mixed = replace(environments.expressions, same_type_literals=False)
    generating = mixed.extend(
        variables={"generator": GENERATOR},
        functions=OWN_GENERATION if namespaced else GENERATION,
    )
    return replace(environments, conditions=mixed, expressions=generating)


namespaced_generating_environments = partial(generating_environments, namespaced=True)
"""Returns the environments of policies of a namespace that generate."""


@cache
def deleting_environments(
    dialect: Dialect,
    params: bool,  # noqa: FBT001 - one of the forms
    *,
    namespaced: bool = False,
) -> PolicyEnvironments:
    """Return the environments of policies that delete: they see an object, and no request."""
    environments = kyverno_environments(dialect, params, namespaced=namespaced)
    without = environments.expressions.without("request", "oldObject")
    return replace(environments, conditions=without, expressions=without)


namespaced_deleting_environments = partial(deleting_environments, namespaced=True)
"""Returns the environments of policies of a namespace that delete."""


namespaced_environments = partial(kyverno_environments, namespaced=True)
"""Returns the environments of Kyverno's policies that belong to a namespace."""


@cache
def cluster_policy_environments(
    dialect: Dialect,
    params: bool,  # noqa: FBT001 - one of the forms
    *,
    namespaced: bool = False,
) -> PolicyEnvironments:
    """Return the environments of a ClusterPolicy, which has the authorizer."""
    environments = kyverno_environments(dialect, params, namespaced=namespaced)
    asking = environments.expressions.extend(variables=AUTHORIZER, structs=REQUEST)
    return replace(
        environments,
        conditions=asking,
        expressions=asking,
        messages=environments.messages.extend(structs=REQUEST),
        open_conditions=False,
        request_objects=False,
    )


namespaced_policy_environments = partial(cluster_policy_environments, namespaced=True)
"""Returns the environments of Kyverno's Policy, which belongs to a namespace."""
