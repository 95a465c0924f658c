"""Hold the facts of one request, decoded once and only as far as a policy needs them."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypeVar, overload

import msgspec

from policyd.api.admission import (
    AdmissionRequest,
    GroupVersionKind,
    GroupVersionResource,
    decode_object,
)
from policyd.api.kueue.names import QUEUE_NAME
from policyd.api.meta import Json
from policyd.cel.cost import RequestBudget
from policyd.cel.lib.authorizer import Authorization as PermissionDecision
from policyd.cel.lib.authorizer import AuthorizedAction as Permission
from policyd.cel.lib.authorizer import Authorizer, ResourceCheck
from policyd.engine.model.deadline import OutOfTime, OutOfTimeError, never
from policyd.engine.model.queue_facts import QueueFacts
from policyd.engine.model.surroundings import ClaimsOfRequest, PolicyContext
from policyd.engine.objects.equivalents import convert, matched_kind
from policyd.engine.objects.extracts import CONTAINER_LISTS
from policyd.engine.objects.match import (
    RequestAttributes,
    UnknownNamespaceError,
    attributes_of,
    labels_of,
    original_attributes_of,
)
from policyd.engine.objects.workloads import (
    PodLocation,
    WorkloadKind,
    find_kind,
    pod_templates,
    value_at,
)
from policyd.patch.defaults import as_sent
from policyd.patch.operations import Path

T = TypeVar("T")


class View(msgspec.Struct, frozen=True):
    """An object seen for the sake of some of its pods.

    `paths` are the pods or templates concerned, `template` the one that expressions see as
    `pod`; it is None for kinds without pods.
    """

    paths: tuple[Path, ...]
    template: Path | None


class _Once(Generic[T]):
    """An attribute that is computed when it is first asked for.

    The standard library's takes a lock each time in Python 3.11, which costs as much as a short
    expression; facts belong to one review and need none.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, facts: None, owner: type) -> Self: ...
    @overload
    def __get__(self, facts: "Facts", owner: type) -> T: ...

    def __get__(self, facts: "Facts | None", owner: type) -> Self | T:
        if facts is None:
            return self
        value = facts.__dict__[self._name] = self._compute(facts)
        return value

    if TYPE_CHECKING:  # an attribute may be set, and is then no longer this one's

        def __set__(self, facts: "Facts", value: T) -> None: ...


class Facts:
    """The facts of one request. `object` may be replaced by the mutated one."""

    def __init__(
        self,
        request: AdmissionRequest,
        surroundings: PolicyContext,
        out_of_time: OutOfTime = never,
        *,
        asked: int = 1,
        trigger: Mapping[str, Json] | None = None,
    ) -> None:
        """Take the facts from the request.

        Args:
            request: The request.
            surroundings: External data for policies.
            out_of_time: Returns whether the caller's deadline has passed.
            asked: The number of policies to evaluate, each with a share of the budget.
            trigger: The value of `request` for expressions, if it is that of another object.
        """
        self.request = request
        self.trigger = trigger
        self.surroundings = surroundings
        self.namespaces = surroundings.namespaces
        self.attributes = attributes_of(request)
        self.out_of_time = out_of_time
        self.allowance = RequestBudget(asked, None if out_of_time is never else out_of_time)
        """The budget of all expressions together."""
        self.allowance.facts = ClaimsOfRequest(surroundings.claims, request.namespace)
        self.exempted: list[str] = []
        """The reasons of the exceptions that apply."""
        self.looked_up: dict[frozenset[str], tuple[dict[str, object], bool]] = {}
        """The variables besides the object, by the names that expressions use, and whether these
        are names that only policyd's own policies have."""
        self._sent: dict[int, tuple[Json, Json]] = {}
        """Objects as the API server would send them, by the identities of those that were given."""
        self.pod_values: dict[Path | None, dict[str, Any]] = {}
        """Values of expressions that read a pod alone, by where it is, while it stays as it is."""

    def check_time(self) -> None:
        """Go on only if there is time left.

        Raises:
            OutOfTimeError: If there is not.
        """
        if self.out_of_time():
            raise OutOfTimeError

    @_Once
    def original_attributes(self) -> RequestAttributes:
        """The attributes that rules with `matchPolicy: Exact` compare."""
        return original_attributes_of(self.request)

    @_Once
    def object(self) -> Json:
        """The object, None if it is deleted or connected to.

        Raises:
            ReviewError: If it cannot be decoded.
        """
        return decode_object(self.request.object)

    @property
    def decoded_object(self) -> Json | msgspec.UnsetType:
        """The object, if anything needed it so far."""
        return self.__dict__.get("object", msgspec.UNSET)

    @_Once
    def old_object(self) -> Json:
        """The object as it was, None if it is new.

        Raises:
            ReviewError: If it cannot be decoded.
        """
        return decode_object(self.request.old_object)

    @property
    def subject(self) -> Json:
        """The object the request is about: on deletion, the one that was."""
        return self.old_object if self.object is None else self.object

    @property
    def maker(self) -> str:
        """The kind of the controller that made the object; empty if that is not true."""
        return self.surroundings.makers.maker(self.subject, self.request.user_info.username)

    @_Once
    def queue_facts(self) -> QueueFacts:
        """The facts of the queues, the same for all policies that read them."""
        return self.surroundings.queues()

    @property
    def queue_name(self) -> str:
        """The LocalQueue that the object names; empty for none."""
        named = value_at(self.subject, ("metadata", "labels", QUEUE_NAME))
        return named if isinstance(named, str) else ""

    @_Once
    def kind(self) -> WorkloadKind | None:
        """The kind of an object that makes pods; None for others, as the Scale of a Deployment."""
        return find_kind(self.subject)

    @_Once
    def templates(self) -> tuple[PodLocation, ...]:
        """The locations of the pods."""
        return pod_templates(self.subject, self.kind) if self.kind else ()

    @_Once
    def whole(self) -> View:
        """The object with all its pods, of which expressions see the first."""
        paths = tuple(template.path for template in self.templates)
        return View(paths, paths[0] if paths else None)

    @_Once
    def views(self) -> tuple[View, ...]:
        """The object once for each of its pod templates."""
        if len(self.templates) <= 1:
            return (self.whole,)
        return tuple(View((template.path,), template.path) for template in self.templates)

    @_Once
    def namespace_object(self) -> Mapping[str, Json] | None:
        """The namespace of the request; None for cluster-scoped objects, and for namespaces.

        Raises:
            UnknownNamespaceError: If it is not known.
        """
        if not self.attributes.namespaced:
            return None
        namespace = self.namespaces(self.request.namespace)
        if namespace is None:
            raise UnknownNamespaceError(self.request.namespace)
        return namespace

    @_Once
    def namespace_labels(self) -> Mapping[str, str]:
        """The labels of the namespace of the request, which has one.

        Raises:
            UnknownNamespaceError: If it is not known.
        """
        return labels_of(self.namespace_object)

    @_Once
    def request_variable(self) -> dict[str, Json]:
        """The request as expressions see it: no objects, no uid, and no field that is empty."""
        request = self.request
        user = {
            "username": request.user_info.username,
            "uid": request.user_info.uid,
            "groups": list(request.user_info.groups),
            "extra": {key: list(values) for key, values in request.user_info.extra.items()},
        }
        fields = {
            "kind": _named(request.kind),
            "resource": _named(request.resource),
            "subResource": request.sub_resource,
            "requestKind": _named(request.request_kind or request.kind),
            "requestResource": _named(request.request_resource or request.resource),
            "requestSubResource": request.request_sub_resource or request.sub_resource,
            "name": request.name,
            "namespace": request.namespace,
            "operation": request.operation,
            "options": decode_object(request.options),
        }
        given = {key: value for key, value in fields.items() if value}
        given["userInfo"] = {key: value for key, value in user.items() if value}
        given["dryRun"] = request.dry_run
        return given

    @_Once
    def authorizer(self) -> Authorizer:
        """The authorizer of the requesting user."""
        authorize, user = self.surroundings.authorize, self.request.user_info

        def decide(permission: Permission) -> PermissionDecision:
            return authorize(user, permission)

        return Authorizer(decide)

    @_Once
    def request_resource_check(self) -> ResourceCheck:
        """A question about the resource of the request itself."""
        request = self.request
        permission = Permission(
            group=request.resource.group,
            resource=request.resource.resource,
            subresource=request.sub_resource,
            namespace=request.namespace,
            name=request.name,
        )
        return ResourceCheck(self.authorizer.authorize, permission)

    def seen_as(self, matched: RequestAttributes) -> "PolicyView":
        """Return the request as a policy sees it whose rule names another version of it.

        Raises:
            ConversionError: If its object cannot be put in that version.
        """
        if matched is self.attributes or matched is self.original_attributes:
            return PolicyView(self.object, self.old_object, self.request_variable)
        kind = matched_kind(self.request.kind, self.attributes, matched)
        resource = GroupVersionResource(
            group=matched.group, version=matched.version, resource=matched.resource
        )
        named = {"kind": _named(kind), "resource": _named(resource)}
        return PolicyView(
            convert(self.object, kind),
            convert(self.old_object, kind),
            {**self.request_variable, **named},
        )

    def as_sent(self, obj: Json) -> Json:
        """Return an object as the API server would send it, if it comes as people write it.

        An object that cannot be read by its type stays as it is: the API server would refuse it.
        """
        if not self.surroundings.written:
            return obj
        known = self._sent.get(id(obj))
        if known is None:
            known = self._sent[id(obj)] = obj, as_sent(obj)
        return known[1]

    @_Once
    def images(self) -> dict[str, list[str]]:
        """The images of the pods, by the list of containers they are in."""
        found: dict[str, list[str]] = {field: [] for field in CONTAINER_LISTS}
        for template in self.templates:
            for field, images in found.items():
                containers = value_at(self.subject, (*template.path, "spec", field))
                images += [
                    container["image"]
                    for container in (containers if isinstance(containers, list) else ())
                    if isinstance(container, dict) and isinstance(container.get("image"), str)
                ]
        return found


class PolicyView(NamedTuple):
    """A policy's view of a request."""

    object: Json
    old_object: Json
    request: dict[str, Json]


def _named(name: GroupVersionKind | GroupVersionResource) -> dict[str, str]:
    """Write a kind or resource with all its fields, the empty group included."""
    return {field: getattr(name, field) for field in name.__struct_fields__}
