"""Make the environments that expressions are written for, by version of Kubernetes.

An API server of version 1.36 evaluates stored expressions with all that it knows, but takes new
expressions only with functions of 1.35, so that an upgrade can be undone. A version here
states the functions that exist, not those that may be stored already.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Final

from policyd.cel.admission_types import JSON_PATCH, NAMESPACE, REQUEST
from policyd.cel.environment import CEL_GO_0_26, CEL_GO_0_29, Environment
from policyd.cel.functions import Overload, Version, collect
from policyd.cel.lib.authorizer import AUTHORIZERS, JSON_PATCHES
from policyd.cel.lib.encoders import ENCODERS
from policyd.cel.lib.format import FORMAT
from policyd.cel.lib.formats import NAMED_FORMATS
from policyd.cel.lib.lists import LISTS, LISTS_EXTENSION
from policyd.cel.lib.math import MATH
from policyd.cel.lib.network import NETWORK
from policyd.cel.lib.optionals import OPTIONALS
from policyd.cel.lib.quantity import QUANTITIES
from policyd.cel.lib.regex import REGEX
from policyd.cel.lib.semver import SEMVERS
from policyd.cel.lib.sets import SETS
from policyd.cel.lib.standard import STANDARD
from policyd.cel.lib.strings import REVERSE, STRINGS
from policyd.cel.lib.time import TIME
from policyd.cel.lib.url import URLS
from policyd.cel.syntax.macros import (
    ALL_MACROS,
    OPTIONAL_MACROS,
    STANDARD_MACROS,
    TWO_VARIABLE_MACROS,
)
from policyd.cel.types import DYN, Type
from policyd.errors import PolicydError, did_you_mean

DEFAULT_VERSION: Final[Version] = (1, 36)
"""The version of Kubernetes policies are checked for by default."""

LIBRARIES: Final = (
    *(STANDARD, TIME, OPTIONALS, STRINGS, FORMAT, REGEX, SETS, LISTS),
    *(LISTS_EXTENSION, QUANTITIES, URLS, NETWORK, NAMED_FORMATS, SEMVERS, AUTHORIZERS),
)
"""The API server's own libraries."""
# The API server has not got these; cel-spec tests them.
_EXTENSIONS: Final = (*LIBRARIES, JSON_PATCHES, REVERSE, MATH, ENCODERS)
_TWO_VARIABLES_SINCE: Final[Version] = (1, 32)
_SORT_BY_SINCE: Final[Version] = (1, 34)

VERSIONS: Final = tuple((1, minor) for minor in range(30, 38))
"""The versions of Kubernetes that are known."""
_CEL_GO_0_29_SINCE: Final[Version] = (1, 37)


@lru_cache(maxsize=1)
def extended_environment() -> Environment:
    """Return an environment with every library and macro, as cel-spec's conformance tests want."""
    return Environment(functions=collect(_EXTENSIONS), macros=ALL_MACROS)


@lru_cache(maxsize=16)
def base_environment(version: Version = DEFAULT_VERSION) -> Environment:
    """Return the API server's environment of a version, without variables."""
    everything = [overload for library in LIBRARIES for overload in library]
    present = [overload for overload in everything if overload.since <= version]
    missing = {overload.name: overload.since for overload in everything if overload.since > version}
    macros = STANDARD_MACROS | OPTIONAL_MACROS
    for names, since in ((TWO_VARIABLE_MACROS, _TWO_VARIABLES_SINCE), ({"sortBy"}, _SORT_BY_SINCE)):
        if version >= since:
            macros |= names
        else:
            missing.update(dict.fromkeys(names, since))
    return Environment(
        functions=collect([present]),
        macros=macros,
        version=version,
        cel_go=CEL_GO_0_29 if version >= _CEL_GO_0_29_SINCE else CEL_GO_0_26,
        unavailable=missing,
        same_type_literals=True,
        validates_literals=True,
    )


def admission_environment(
    version: Version = DEFAULT_VERSION,
    *,
    params: bool = True,
    variables: Mapping[str, Type] | None = None,
    mutation: bool = False,
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
    environment = conditions_environment(version, params=params).extend(
        variables={"variables": Type("kubernetes.variables")},
        functions=extra,
        structs={"kubernetes.variables": variables or {}},
    )
    return environment.with_mutation(JSON_PATCH, JSON_PATCHES) if mutation else environment


def message_environment(
    version: Version = DEFAULT_VERSION,
    *,
    params: bool = True,
    variables: Mapping[str, Type] | None = None,
) -> Environment:
    """Return the environment of a messageExpression: that of its policy, less the authorizer."""
    environment = admission_environment(version, params=params, variables=variables)
    return environment.without(*AUTHORIZER)


def conditions_environment(
    version: Version = DEFAULT_VERSION, *, params: bool = False
) -> Environment:
    """Return the environment of match conditions, of a webhook or (with `params`) a policy.

    They see no variables. `namespaceObject` exists, but is null whenever they are evaluated.
    """
    declared = {**_DECLARED, "params": DYN} if params else _DECLARED
    return base_environment(version).extend(variables=declared, structs={**REQUEST, **NAMESPACE})


AUTHORIZER: Final[Mapping[str, Type]] = {
    "authorizer": Type("kubernetes.authorization.Authorizer"),
    "authorizer.requestResource": Type("kubernetes.authorization.ResourceCheck"),
}
"""The variables for permissions of users."""

_DECLARED: Final[Mapping[str, Type]] = {
    "object": DYN,
    "oldObject": DYN,
    "request": Type("kubernetes.AdmissionRequest"),
    "namespaceObject": Type("kubernetes.Namespace"),
    **AUTHORIZER,
}


Builder = Callable[[Version], Environment]
"""Makes the environment of a version of Kubernetes."""

ENVIRONMENTS: Final[Mapping[str, Builder]] = {
    "vap": admission_environment,
    "map": lambda version: admission_environment(version, mutation=True),
    "message": message_environment,
    "conditions": conditions_environment,
    "base": base_environment,
}
"""The environments by name; `vap-1.36` is one for a version of Kubernetes."""


def environment_named(
    name: str, *, environments: Mapping[str, Builder] = ENVIRONMENTS
) -> Environment:
    """Return the environment called `name`, of a version of Kubernetes if the name has one.

    Args:
        name: As `vap`, `map-1.37`, or `vap-1.36/cel-go-0.29` for the dialect of another version.
        environments: Functions that make an environment, by name.

    Raises:
        UnknownEnvironmentError: If there is no such environment, version or dialect.
    """
    rest, slash, dialect = name.partition("/")
    kind, dash, number = rest.partition("-")
    builder = environments.get(kind)
    version = _NUMBERS.get(number) if dash else DEFAULT_VERSION
    cel_go = DIALECTS.get(dialect)
    if builder is None:
        raise UnknownEnvironmentError(name, kind, environments)
    if version is None:
        raise UnknownEnvironmentError(name, number, _NUMBERS)
    if cel_go is None and slash:
        raise UnknownEnvironmentError(name, dialect, DIALECTS)
    environment = builder(version)
    return replace(environment, cel_go=cel_go) if cel_go else environment


_NUMBERS: Final = {f"{major}.{minor}": (major, minor) for major, minor in VERSIONS}
DIALECTS: Final = {"cel-go-0.26": CEL_GO_0_26, "cel-go-0.29": CEL_GO_0_29}
"""The dialects by name."""


class UnknownEnvironmentError(PolicydError):
    """An environment is named that does not exist."""

    def __init__(self, name: str, part: str, known: Iterable[str]) -> None:
        known = tuple(known)
        # A number is not misspelled; similar names do not help.
        near = None if part[:1].isdigit() else did_you_mean(part, known)
        hint = near or f"there are {', '.join(known)}"
        super().__init__(f"unknown environment `{name}`", hint=hint)
