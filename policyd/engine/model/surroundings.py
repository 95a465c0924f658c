"""Define the data that policies may read besides the request: namespaces, params, permissions."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from policyd.api.admission import UserInfo
from policyd.api.makers import Makers
from policyd.api.meta import Json
from policyd.cel import CelError
from policyd.cel.cost import CallerFacts
from policyd.cel.lib.authorizer import Authorization as PermissionDecision
from policyd.cel.lib.authorizer import AuthorizedAction as Permission
from policyd.engine.model.params import NO_PARAMS, ParamSource
from policyd.engine.model.queue_facts import QueueFacts, no_queue_facts
from policyd.engine.objects.equivalents import ServedVersions, served_versions
from policyd.engine.objects.match import NamespaceLookup
from policyd.patch.schema import Schema

Authorize = Callable[[UserInfo, Permission], PermissionDecision]
"""Says whether a user may do something: on line by a SubjectAccessReview, off line by a table."""


def deny_all_permissions(_user: UserInfo, _permission: Permission) -> PermissionDecision:
    """Refuse to answer: users' permissions are unknown.

    Raises:
        CelError: Always.
    """
    raise CelError("users' permissions are unknown: declare them")


ClaimLookup = Callable[[str, str, str], Json]
"""Returns the specification of a claim, given its namespace, `ResourceClaim` or
`ResourceClaimTemplate`, and its name. Raises a CelError if that is not known."""


CLAIM_GROUP = "resource.k8s.io"
CLAIM_KINDS = {"ResourceClaim": ("spec",), "ResourceClaimTemplate": ("spec", "spec")}
"""The kinds of claims, each with the path of the specification."""


def missing_claim(namespace: str, kind: str, name: str) -> CelError:
    """Return the error of a claim or template that does not exist."""
    return CelError(
        f"there is no {kind} `{name}` in namespace `{namespace}`, so that its devices cannot be"
        " counted: create it first"
    )


def no_claims(_namespace: str, kind: str, name: str) -> Json:
    """Refuse to answer: claims are unknown.

    Raises:
        CelError: Always.
    """
    raise CelError(f"how many devices {kind} `{name}` is for is not known here")


@dataclass(frozen=True, slots=True)
class ClaimsOfRequest(CallerFacts):
    """The claims that the pods of a request may name: those of its namespace."""

    lookup: ClaimLookup = no_claims
    namespace: str = ""

    def spec(self, kind: str, name: str) -> Json:
        """Return the specification of a claim or template.

        Raises:
            CelError: If it is not known.
        """
        return self.lookup(self.namespace, kind, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyContext:
    """The data that policies may read besides the request.

    Attributes:
        namespaces: Finds the Namespace object of a request's namespace.
        params: Finds params.
        authorize: Decides on permissions of users.
        served: Knows the versions that are served.
        typed: Whether objects of built-in kinds are read by the API server's own types after each
            mutation, as it does: unknown fields are dropped, or an error. If None,
            that follows the mutations of policies that the API server knows or policyd's own.
        written: Whether objects come as written by users, and not as sent by the API server:
            policies of others then see them as it would send them, with defaults.
        as_written: Whether Kyverno's policies see them as they come nevertheless, as with its CLI.
        now: Returns seconds since the epoch; without it, exceptions with an end have ended.
        schemas: The schemas of custom kinds, by group, version and kind, if known.
        makers: The makers of owned objects, as in `maker`.
        claims: Returns specifications of claims, for the devices that they are for.
        queues: Returns the facts of the queues, as they are when a review begins to read them.
        extra: The values of variables of external data, by name; others that the policy's format
            has are refused.
    """

    namespaces: NamespaceLookup
    params: ParamSource = NO_PARAMS
    authorize: Authorize = deny_all_permissions
    served: ServedVersions = served_versions
    typed: bool | None = None
    written: bool = False
    as_written: bool = False
    now: Callable[[], float] | None = None
    schemas: Mapping[tuple[str, str, str], Schema] = field(default_factory=dict)
    makers: Makers = field(default_factory=Makers)
    claims: ClaimLookup = no_claims
    queues: Callable[[], QueueFacts] = no_queue_facts
    extra: Mapping[str, object] = field(default_factory=dict)
