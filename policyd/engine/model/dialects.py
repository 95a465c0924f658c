"""Define the context in which policies are loaded: a version of Kubernetes, and formats."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final, NamedTuple

from policyd.api.meta import Json
from policyd.cel import Environment, admission_environment
from policyd.cel.environments import DEFAULT_VERSION, conditions_environment, message_environment
from policyd.cel.functions import Version
from policyd.engine.documents.findings import Finding
from policyd.engine.documents.reading import Document
from policyd.engine.model.background import BackgroundPolicy
from policyd.engine.model.compiled import CompiledException, CompiledPolicy
from policyd.engine.model.environments import PolicyEnvironments
from policyd.engine.model.functions import expression_environment


@dataclass(frozen=True, slots=True, kw_only=True)
class Volatile:
    """The sources of changing values; functions that need a missing one fail.

    Attributes:
        now: Returns nanoseconds since the epoch.
        random_below: Returns a number from 0 to below its argument.
    """

    now: Callable[[], int] | None = None
    random_below: Callable[[int], int] | None = None


DETERMINISTIC: Final = Volatile()
"""Neither a clock nor random numbers."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """The settings that policies are loaded with.

    Attributes:
        version: The version of Kubernetes they are written for: decides which functions there are.
        cel_go: The version of cel-go whose dialect is used, if not that of `version`.
        volatile: The clock and the random numbers, for formats whose expressions may use them.
        formats: The formats of other engines that are read besides policyd's and Kubernetes' own.
    """

    version: Version = DEFAULT_VERSION
    cel_go: Version | None = None
    volatile: Volatile = DETERMINISTIC
    formats: "tuple[PolicyFormat, ...]" = ()

    def of(self, environment: Environment) -> Environment:
        """Return an environment in this dialect."""
        return replace(environment, cel_go=self.cel_go) if self.cel_go else environment

    def format_of(self, value: Json) -> "PolicyFormat | None":
        """Return the format that a document is written in; None if it is none of these."""
        return next((each for each in self.formats if each.reads(value)), None)


class FormatContent(NamedTuple):
    """The content of one document of another engine's format.

    Attributes:
        findings: Errors and doubtful places.
        policies: Policies for requests.
        exceptions: Exemptions from policies.
        background: Policies that act by themselves.
    """

    findings: Sequence[Finding]
    policies: Sequence[CompiledPolicy] = ()
    exceptions: Sequence[CompiledException] = ()
    background: Sequence[BackgroundPolicy] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PolicyFormat:
    """The policies of another engine, as this one reads them.

    Attributes:
        name: The name of its environment, as in `policyd cel --env`.
        reads: Returns whether a document is one of its objects.
        guards: Returns whether one of its objects is a policy that policyd evaluates.
        load: Reads and compiles one of its objects.
        placeholders: Returns placeholders for a policy that has errors, given the reason.
        misnamed: Returns the errors of a document of its API groups that is not one of its objects.
        environments: Returns the environments of its expressions, with params or without.
    """

    name: str
    reads: Callable[[Json], bool]
    guards: Callable[[Json], bool]
    load: Callable[[Document, Dialect], FormatContent]
    placeholders: Callable[[Document, str, Dialect], Iterable[CompiledPolicy]]
    misnamed: Callable[[Document], list[Finding]]
    environments: Callable[[Dialect, bool], PolicyEnvironments]


DEFAULT_DIALECT: Final = Dialect()
"""The default version of Kubernetes, and no other engine's format."""


@cache
def own_environments(dialect: Dialect, params: bool) -> PolicyEnvironments:  # noqa: FBT001 - one of the forms
    """Return the environments of policyd's own kind."""
    expressions = dialect.of(expression_environment(dialect.version, params=params))
    mutations = expression_environment(dialect.version, params=params, mutation=True)
    return PolicyEnvironments(
        conditions=expressions,
        expressions=expressions,
        mutations=dialect.of(mutations),
        messages=expressions,
    )


@cache
def native_environments(dialect: Dialect, params: bool) -> PolicyEnvironments:  # noqa: FBT001 - one of the forms
    """Return the environments of the API server's own policies."""
    version = dialect.version
    return PolicyEnvironments(
        conditions=dialect.of(conditions_environment(version, params=params)),
        expressions=dialect.of(admission_environment(version, params=params)),
        mutations=dialect.of(admission_environment(version, params=params, mutation=True)),
        messages=dialect.of(message_environment(version, params=params)),
        one_line=False,
    )
