"""The environments expressions are written for, by version of Kubernetes."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

from policyd.cel.environment import Environment, Fields
from policyd.cel.functions import Overload, Version, collect
from policyd.cel.lib.authorizer import AUTHORIZERS, JSON_PATCHES
from policyd.cel.lib.conversions import CONVERSIONS, STANDARD
from policyd.cel.lib.encoders import ENCODERS
from policyd.cel.lib.format import FORMAT
from policyd.cel.lib.formats import NAMED_FORMATS
from policyd.cel.lib.lists import LISTS, LISTS_EXTENSION
from policyd.cel.lib.math import MATH
from policyd.cel.lib.network import NETWORK
from policyd.cel.lib.operators import OPERATORS
from policyd.cel.lib.optionals import OPTIONALS
from policyd.cel.lib.quantity import QUANTITIES
from policyd.cel.lib.regex import REGEX
from policyd.cel.lib.semver import SEMVERS
from policyd.cel.lib.sets import SETS
from policyd.cel.lib.strings import REVERSE, STRINGS
from policyd.cel.lib.time import TIME
from policyd.cel.lib.url import URLS
from policyd.cel.macros import (
    ALL_MACROS,
    OPTIONAL_MACROS,
    STANDARD_MACROS,
    TWO_VARIABLE_MACROS,
)
from policyd.cel.types import BOOL, DYN, INT, STRING, TIMESTAMP, Type, list_of, map_of

DEFAULT_VERSION: Final[Version] = (1, 36)
"""The version of Kubernetes policies are checked for, unless said otherwise."""

_BASE: Final = (
    *(OPERATORS, CONVERSIONS, STANDARD, TIME, OPTIONALS, STRINGS, FORMAT, REGEX, SETS, LISTS),
    *(LISTS_EXTENSION, QUANTITIES, URLS, NETWORK, NAMED_FORMATS, SEMVERS, AUTHORIZERS),
    JSON_PATCHES,
)
# The API server has not got these; cel-spec tests them.
_EXTENSIONS: Final = (*_BASE, REVERSE, MATH, ENCODERS)
_TWO_VARIABLES_SINCE: Final[Version] = (1, 32)

_STRINGS = list_of(STRING)
_LABELS = map_of(STRING, STRING)
REQUEST: Final[Mapping[str, Fields]] = {
    "kubernetes.AdmissionRequest": {
        "kind": Type("kubernetes.GroupVersionKind"),
        "resource": Type("kubernetes.GroupVersionResource"),
        "subResource": STRING,
        "requestKind": Type("kubernetes.GroupVersionKind"),
        "requestResource": Type("kubernetes.GroupVersionResource"),
        "requestSubResource": STRING,
        "name": STRING,
        "namespace": STRING,
        "operation": STRING,
        "userInfo": Type("kubernetes.UserInfo"),
        "dryRun": BOOL,
        "options": DYN,
    },
    "kubernetes.GroupVersionKind": {"group": STRING, "version": STRING, "kind": STRING},
    "kubernetes.GroupVersionResource": {"group": STRING, "version": STRING, "resource": STRING},
    "kubernetes.UserInfo": {
        "username": STRING,
        "uid": STRING,
        "groups": _STRINGS,
        "extra": map_of(STRING, _STRINGS),
    },
}
"""The types `request` is made of."""
NAMESPACE: Final[Mapping[str, Fields]] = {
    "kubernetes.Namespace": {
        "metadata": Type("kubernetes.NamespaceMetadata"),
        "spec": Type("kubernetes.NamespaceSpec"),
        "status": Type("kubernetes.NamespaceStatus"),
    },
    "kubernetes.NamespaceMetadata": {
        "name": STRING,
        "generateName": STRING,
        "namespace": STRING,
        "labels": _LABELS,
        "annotations": _LABELS,
        "UID": STRING,
        "creationTimestamp": TIMESTAMP,
        "deletionGracePeriodSeconds": INT,
        "deletionTimestamp": TIMESTAMP,
        "generation": INT,
        "resourceVersion": STRING,
        "finalizers": _STRINGS,
    },
    "kubernetes.NamespaceSpec": {"finalizers": _STRINGS},
    "kubernetes.NamespaceStatus": {"phase": STRING},
}
"""The types `namespaceObject` is made of."""
JSON_PATCH: Final[Mapping[str, Fields]] = {
    "JSONPatch": {"op": STRING, "path": STRING, "from": STRING, "value": DYN}
}
"""The type of one operation of a JSON patch."""


@lru_cache(maxsize=1)
def extended_environment() -> Environment:
    """Return an environment with every library and macro, as cel-spec's conformance tests want."""
    return Environment(functions=collect(_EXTENSIONS), macros=ALL_MACROS)


@lru_cache(maxsize=16)
def base_environment(version: Version = DEFAULT_VERSION) -> Environment:
    """Return the API server's environment of a version, without variables."""
    everything = [overload for library in _BASE for overload in library]
    present = [overload for overload in everything if overload.since <= version]
    missing = {overload.name: overload.since for overload in everything if overload.since > version}
    macros = STANDARD_MACROS | OPTIONAL_MACROS
    if version >= _TWO_VARIABLES_SINCE:
        macros |= TWO_VARIABLE_MACROS
    else:
        missing.update(dict.fromkeys(TWO_VARIABLE_MACROS, _TWO_VARIABLES_SINCE))
    return Environment(
        functions=collect([present]),
        macros=macros,
        version=version,
        unavailable=missing,
        same_type_literals=True,
        validates_literals=True,
    )


def admission_environment(
    version: Version = DEFAULT_VERSION,
    *,
    params: bool = True,
    variables: Mapping[str, Type] | None = None,
    mutation: bool = True,
    extra: Iterable[Overload] = (),
) -> Environment:
    """Return the environment of the expressions of a policy.

    Args:
        version: The version of Kubernetes the policy is written for.
        params: Whether the policy has params.
        variables: Types of the policy's own variables by name, those declared so far.
        mutation: Whether `Object` and `JSONPatch` may be made.
        extra: Functions that are not Kubernetes' own.
    """
    declared = {
        "object": DYN,
        "oldObject": DYN,
        "request": Type("kubernetes.AdmissionRequest"),
        "namespaceObject": Type("kubernetes.Namespace"),
        "authorizer": Type("kubernetes.authorization.Authorizer"),
        "authorizer.requestResource": Type("kubernetes.authorization.ResourceCheck"),
        "variables": Type("kubernetes.variables"),
    }
    if params:
        declared["params"] = DYN
    structs = {**REQUEST, **NAMESPACE, "kubernetes.variables": variables or {}}
    environment = base_environment(version).extend(
        variables=declared, functions=extra, structs=structs
    )
    return environment.with_mutation(JSON_PATCH) if mutation else environment
