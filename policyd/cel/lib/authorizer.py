"""Authorizer: other permissions of the user of a request.

The decision itself is made by a function the caller puts into an `Authorizer`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from policyd.cel.cost import LIST, STRUCT, Budget, traversal, traverse
from policyd.cel.errors import CelError
from policyd.cel.estimate import estimates
from policyd.cel.functions import Overload, Size, function, method
from policyd.cel.lib.formats import dns1123_label, dns1123_subdomain
from policyd.cel.types import BOOL, STRING, Type

AUTHORIZER = Type("kubernetes.authorization.Authorizer")
PATH_CHECK = Type("kubernetes.authorization.PathCheck")
GROUP_CHECK = Type("kubernetes.authorization.GroupCheck")
RESOURCE_CHECK = Type("kubernetes.authorization.ResourceCheck")
DECISION = Type("kubernetes.authorization.Decision")
_CHECK_COST = 350_000
# The work of making a question more specific, in elements compared.
_NARROWING_WORK = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizedAction:
    """An action to be authorized: a verb on a resource, or on a path."""

    verb: str = ""
    path: str = ""
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    field_selector: str = ""
    label_selector: str = ""
    service_account: str = ""
    """As `namespace/name`, if not the user's own permissions are asked for."""


@dataclass(frozen=True, slots=True)
class Authorization:
    """The answer of an authorizer; `error` if it could not decide."""

    allowed: bool = False
    reason: str = ""
    error: str = ""

    cel_type_name = DECISION.name


Authorize = Callable[[AuthorizedAction], Authorization]


@dataclass(frozen=True, slots=True)
class _Check:
    authorize: Authorize
    attributes: AuthorizedAction = AuthorizedAction()


class Authorizer(_Check):
    """The value of the variable `authorizer`."""

    __slots__ = ()
    cel_type_name = AUTHORIZER.name


class PathCheck(_Check):
    """A question about a path."""

    __slots__ = ()
    cel_type_name = PATH_CHECK.name


class GroupCheck(_Check):
    """The API group of a question about a resource."""

    __slots__ = ()
    cel_type_name = GROUP_CHECK.name


class ResourceCheck(_Check):
    """A question about a resource."""

    __slots__ = ()
    cel_type_name = RESOURCE_CHECK.name


def _path(authorizer: Authorizer, path: str) -> PathCheck:
    if not path.strip():
        raise CelError("path must not be empty")
    return PathCheck(authorizer.authorize, replace(authorizer.attributes, path=path))


def _group(authorizer: Authorizer, group: str) -> GroupCheck:
    return GroupCheck(authorizer.authorize, replace(authorizer.attributes, group=group))


def _service_account(authorizer: Authorizer, namespace: str, name: str) -> Authorizer:
    if dns1123_subdomain(name):
        raise CelError("Invalid service account name")
    if dns1123_label(namespace):
        raise CelError("Invalid service account namespace")
    account = f"{namespace}/{name}"
    return Authorizer(authorizer.authorize, replace(authorizer.attributes, service_account=account))


def _resource(check: GroupCheck, resource: str) -> ResourceCheck:
    if not resource.strip():
        raise CelError("resource must not be empty")
    return ResourceCheck(check.authorize, replace(check.attributes, resource=resource))


def _with(field: str) -> Callable[[ResourceCheck, str], ResourceCheck]:
    def narrow(check: ResourceCheck, text: str) -> ResourceCheck:
        return ResourceCheck(check.authorize, replace(check.attributes, **{field: text}))

    return narrow


def _check(
    check: PathCheck | ResourceCheck, verb: str, budget: Budget | None = None
) -> Authorization:
    if budget is not None:
        budget.excuse(_CHECK_COST)
    return check.authorize(replace(check.attributes, verb=verb))


def _selector_cost(_check: ResourceCheck, selector: str) -> int:
    """Cost of parsing a selector: a requirement may be as short as two characters."""
    requirements = -(-len(selector) // 2)
    return LIST + traversal(len(selector)) + requirements * (LIST + STRUCT)


def _narrowing(name: str, field: str, *, selector: bool = False) -> Overload:
    cost = _selector_cost if selector else 1
    size = Size(cost=cost, work=_NARROWING_WORK, estimate=estimates.selector if selector else None)
    return method(
        name,
        RESOURCE_CHECK,
        STRING,
        returns=RESOURCE_CHECK,
        run=_with(field),
        size=size,
        since=(1, 31) if selector else (1, 30),
    )


_CHECK = Size(cost=_CHECK_COST, work=_NARROWING_WORK, counted=True)
_NAME = Size(work=lambda _check, name: _NARROWING_WORK + len(name) // 100)
_NARROW = Size(work=_NARROWING_WORK)
_ACCOUNT = Size(work=lambda _authorizer, *names: _NARROWING_WORK + sum(map(len, names)) // 4)

AUTHORIZERS: tuple[Overload, ...] = (
    method("path", AUTHORIZER, STRING, returns=PATH_CHECK, run=_path, size=_NAME),
    method("group", AUTHORIZER, STRING, returns=GROUP_CHECK, run=_group, size=_NARROW),
    method(
        "serviceAccount",
        AUTHORIZER,
        STRING,
        STRING,
        returns=AUTHORIZER,
        run=_service_account,
        size=_ACCOUNT,
    ),
    method("resource", GROUP_CHECK, STRING, returns=RESOURCE_CHECK, run=_resource, size=_NAME),
    _narrowing("subresource", "subresource"),
    _narrowing("namespace", "namespace"),
    _narrowing("name", "name"),
    _narrowing("fieldSelector", "field_selector", selector=True),
    _narrowing("labelSelector", "label_selector", selector=True),
    method("check", PATH_CHECK, STRING, returns=DECISION, run=_check, size=_CHECK),
    method("check", RESOURCE_CHECK, STRING, returns=DECISION, run=_check, size=_CHECK),
    method("allowed", DECISION, returns=BOOL, run=lambda decision: decision.allowed),
    method("reason", DECISION, returns=STRING, run=lambda decision: decision.reason),
    method("errored", DECISION, returns=BOOL, run=lambda decision: bool(decision.error)),
    method("error", DECISION, returns=STRING, run=lambda decision: decision.error),
)


def _escape_key(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


JSON_PATCHES: tuple[Overload, ...] = (
    function(
        "jsonpatch.escapeKey", STRING, returns=STRING, run=_escape_key, size=Size(cost=traverse)
    ),
)
