"""Make requests from objects, to try policies without a cluster."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from policyd.api.admission import (
    NO_OBJECT,
    AdmissionRequest,
    GroupVersionKind,
    GroupVersionResource,
    Operation,
    UserInfo,
)
from policyd.api.kinds import resource_for_kind
from policyd.api.makers import Makers
from policyd.api.meta import Json
from policyd.api.names import NAME_LABEL
from policyd.engine.compile.load import Loaded
from policyd.engine.evaluate.policy_set import PolicySet
from policyd.engine.model.bindings import in_force
from policyd.engine.model.params import StoredParams
from policyd.engine.model.queue_facts import QueueFacts, no_queue_facts
from policyd.engine.model.surroundings import (
    CLAIM_GROUP,
    CLAIM_KINDS,
    Authorize,
    ClaimLookup,
    PolicyContext,
    deny_all_permissions,
    missing_claim,
)
from policyd.engine.objects.equivalents import plural_of
from policyd.engine.objects.match import NamespaceLookup
from policyd.engine.objects.workloads import find_kind, value_at
from policyd.errors import ConfigurationError, PolicydError
from policyd.patch.builtin_types import MistypedError, decode_typed
from policyd.patch.builtin_views import LONGEST_NAMES, type_of
from policyd.patch.schema import Schema, schema_from_openapi

DEFAULT_NAMESPACE = "default"

_CLUSTER_KINDS = frozenset(
    {
        "AdmissionCheck",
        "ClusterQueue",
        "Cohort",
        "Policy",
        "ResourceFlavor",
        "Topology",
        "WorkloadPriorityClass",
    }
)
"""Custom kinds that belong to the cluster, of those that users of policyd have."""

DEFAULT_USER = UserInfo(username="someone", groups=("system:authenticated",))
"""The default user of a request."""

BELIEVING: Final = Makers(trusted=True)
"""Trusts the owners that objects name: only the user of a request proves them."""


def makers_for(username: str) -> Makers:
    """Return the trust in owner references for objects that a user sends, or by default."""
    return BELIEVING if username == DEFAULT_USER.username else Makers()


class ObjectError(PolicydError):
    """Something is not a Kubernetes object."""


CustomKinds = Mapping[tuple[Json, Json], tuple[str, bool]]
"""By group and kind: the plural, and whether objects live in namespaces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCircumstances:
    """The circumstances of a request besides its objects."""

    operation: Operation = "CREATE"
    user: UserInfo = DEFAULT_USER
    namespace: str = DEFAULT_NAMESPACE
    """The namespace of objects that name none."""
    kinds: CustomKinds = field(default_factory=dict)
    """The kinds that are not built in, as far as they are known."""


def custom_kinds(objects: Iterable[Json]) -> CustomKinds:
    """Return the kinds that the CustomResourceDefinitions among objects define."""
    found: dict[tuple[str, str], tuple[str, bool]] = {}
    for group, kind, spec in _defined(objects):
        plural = value_at(spec, ("names", "plural"))
        if isinstance(plural, str):
            found[group, kind] = plural, value_at(spec, ("scope",)) != "Cluster"
    return found


def custom_schemas(objects: Iterable[Json]) -> dict[tuple[str, str, str], Schema]:
    """Return the schemas of the kinds that the CustomResourceDefinitions among objects define.

    A kind with an invalid schema is treated as a kind without a definition.
    """
    found: dict[tuple[str, str, str], Schema] = {}
    for group, kind, spec in _defined(objects):
        versions = value_at(spec, ("versions",))
        for version in versions if isinstance(versions, list) else ():
            name, schema = value_at(version, ("name",)), value_at(version, ("schema", _SCHEMA))
            if isinstance(name, str) and isinstance(schema, dict):
                with suppress(ConfigurationError):  # nor does the API server take such a definition
                    found[group, name, kind] = schema_from_openapi(schema)
    return found


_SCHEMA: Final = "openAPIV3Schema"


def _defined(objects: Iterable[Json]) -> Iterator[tuple[str, str, Json]]:
    """Yield group, kind and spec of each CustomResourceDefinition that names both."""
    for obj in objects:
        if value_at(obj, ("kind",)) == "CustomResourceDefinition":
            spec = value_at(obj, ("spec",))
            group, kind = value_at(spec, ("group",)), value_at(spec, ("names", "kind"))
            if isinstance(group, str) and isinstance(kind, str):
                yield group, kind, spec


class ObjectIdentity(NamedTuple):
    """What a request says of its object besides the object itself."""

    kind: GroupVersionKind
    resource: GroupVersionResource
    name: str
    namespace: str
    """Its namespace; of a Namespace, its own name."""


def identify(obj: Json, circumstances: RequestCircumstances) -> ObjectIdentity:
    """Return the kind, resource, name and namespace of an object.

    Raises:
        ObjectError: If `obj` has no apiVersion, kind and metadata.
    """
    version, kind_name = _named(obj)
    known = _built_in(version, kind_name) if len(version + kind_name) <= LONGEST_NAMES else None
    kind, resource, namespaced = known or _custom(version, kind_name, circumstances.kinds)
    metadata = obj["metadata"]
    name = metadata.get("name") or ""
    namespace = metadata.get("namespace") or circumstances.namespace
    if not namespaced:
        namespace = name if kind.kind == "Namespace" else ""
    return ObjectIdentity(kind, resource, str(name), str(namespace))


def in_its_namespace(obj: Json, namespace: str) -> Json:
    """Return an object as the API server passes it on: it names the namespace that it is in.

    Args:
        obj: The object, of any shape.
        namespace: Its namespace; "" if it is in none, or is one.
    """
    metadata = obj.get("metadata") if namespace and isinstance(obj, dict) else None
    if not isinstance(metadata, dict) or metadata.get("namespace"):
        return obj
    if obj.get("kind") == "Namespace":
        return obj
    return {**obj, "metadata": {**metadata, "namespace": namespace}}


def request_for(
    obj: Json, circumstances: RequestCircumstances, *, old_object: Json = None
) -> AdmissionRequest:
    """Make the request that the API server would send for an object.

    On DELETE, `obj` is the deleted object.

    Raises:
        ObjectError: If `obj` has no apiVersion, kind and metadata.
    """
    identity = identify(obj, circumstances)
    obj = in_its_namespace(obj, identity.namespace)
    old_object = in_its_namespace(old_object, identity.namespace)
    deleted = circumstances.operation == "DELETE"
    return AdmissionRequest(
        uid="offline",
        kind=identity.kind,
        resource=identity.resource,
        operation=circumstances.operation,
        name=identity.name,
        namespace=identity.namespace,
        user_info=circumstances.user,
        object=NO_OBJECT if deleted else raw(obj),
        old_object=raw(obj if deleted and old_object is None else old_object),
        dry_run=True,
    )


def check_readable(obj: Json, check: Callable[[Json, str], object] = decode_typed) -> None:
    """Check that the API server can read an object as its kind.

    Args:
        obj: The object; of a custom kind, nothing is checked.
        check: Reads an object as a type; that of `Readability` is for many objects.

    Raises:
        ObjectError: If it cannot; the text is the API server's.
    """
    struct = type_of(obj)
    if struct is None:
        return
    try:
        check(obj, struct)
    except MistypedError as error:
        kind, version = obj["kind"], obj["apiVersion"].rpartition("/")[2]
        what = f'{kind} in version "{version}" cannot be handled as a {kind}'
        raise ObjectError(f"{what}: {error}") from error


def as_it_was(obj: Json, operation: Operation, stored: Json = None) -> Json:
    """Return the old object of a request; by default, an update changes nothing.

    An update is never sent without it.
    """
    return obj if operation == "UPDATE" and stored is None else stored


_NAMESPACE: Final[dict[str, Json]] = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "spec": {"finalizers": ["kubernetes"]},
    "status": {"phase": "Active"},
}
"""The fields that every namespace of a cluster has."""


def namespaces_among(objects: Iterable[Json]) -> dict[str, Json]:
    """Return the Namespaces among objects, by name."""
    return {
        str(value_at(obj, ("metadata", "name"))): obj
        for obj in objects
        if isinstance(obj, dict)
        and obj.get("kind") == "Namespace"
        and obj.get("apiVersion") == "v1"
    }


def namespace_lookup(objects: Iterable[Json], labels: Mapping[str, str]) -> NamespaceLookup:
    """Return a lookup that knows the Namespaces among `objects`, and makes up all others.

    `labels` are given to every namespace that is made up.
    """
    known = namespaces_among(objects)

    @lru_cache(maxsize=1000)
    def find(name: str) -> Mapping[str, Json]:
        given = _NAMESPACE | known.get(name, {"metadata": {"labels": dict(labels)}})
        metadata = given.get("metadata") or {}
        own = {NAME_LABEL: name, **(metadata.get("labels") or {})}
        return {**given, "metadata": {**metadata, "name": name, "labels": own}}

    return find


def existing_requests(objects: Iterable[Json], kinds: CustomKinds) -> tuple[AdmissionRequest, ...]:
    """Return the requests that would send objects that exist; of what is none, there are none."""
    circumstances = RequestCircumstances(operation="UPDATE", kinds=kinds)
    found: list[AdmissionRequest] = []
    for each in objects:
        with suppress(ObjectError):
            found.append(request_for(each, circumstances, old_object=each))
    return tuple(found)


def offline_set(  # noqa: PLR0913 - all that policies may ask about
    loaded: Loaded,
    namespaces: NamespaceLookup,
    *,
    objects: Iterable[Json] = (),
    authorize: Authorize = deny_all_permissions,
    now: Callable[[], float] | None = None,
    extra: Mapping[str, object] | None = None,
    makers: Makers = BELIEVING,
    queues: Callable[[], QueueFacts] = no_queue_facts,
    as_written: bool = False,
    existing: Iterable[Json] = (),
) -> PolicySet:
    """Make a set of loaded policies with the given facts of the cluster.

    Args:
        loaded: Policies with their bindings and exceptions; other objects count as params.
        namespaces: Finds namespaces.
        objects: Further objects that may be params, or define kinds.
        authorize: Decides on permissions of users.
        now: Returns seconds since the epoch, for exceptions that end.
        extra: The values of variables of external data, none if left out.
        makers: The makers of owned objects; their owners if left out.
        queues: Returns the facts of the queues, unknown ones if left out.
        as_written: Whether Kyverno's policies see objects without defaults, as with its CLI.
        existing: Further objects that may be claims, or their templates.
    """
    known = (*loaded.objects, *objects)
    surroundings = PolicyContext(
        namespaces=namespaces,
        params=StoredParams(known),
        authorize=authorize,
        now=now,
        written=True,
        as_written=as_written,
        schemas=custom_schemas(known),
        extra=extra or {},
        makers=makers,
        claims=given_claims((*known, *existing)),
        queues=queues,
    )
    return PolicySet(
        loaded.policies,
        bindings=loaded.bindings,
        exceptions=loaded.exceptions,
        surroundings=surroundings,
    )


def given_claims(objects: Iterable[Json]) -> ClaimLookup:
    """Return a lookup of the claims and templates among objects."""
    found: dict[tuple[str, str, str], Json] = {}
    for each in objects:
        kind, version = (str(value_at(each, (field,))) for field in ("kind", "apiVersion"))
        if kind in CLAIM_KINDS and version.startswith(f"{CLAIM_GROUP}/"):
            namespace = value_at(each, ("metadata", "namespace")) or "default"
            name = value_at(each, ("metadata", "name"))
            found[str(namespace), kind, str(name)] = value_at(each, CLAIM_KINDS[kind])

    def lookup(namespace: str, kind: str, name: str) -> Json:
        try:
            return found[namespace, kind, name]
        except KeyError:
            raise missing_claim(namespace, kind, name) from None

    return lookup


def alone(loaded: Loaded) -> Loaded:
    """Put shadows into force that are without the policy they may replace, so as to try them."""
    names = {(policy.kind, policy.name) for policy in loaded.policies if not policy.shadow_of}
    lone = [p.shadow_of and (p.kind, p.shadow_of) not in names for p in loaded.policies]
    if not any(lone):
        return loaded
    pairs = zip(loaded.policies, lone, strict=True)
    policies = tuple(in_force(policy) if is_lone else policy for policy, is_lone in pairs)
    return replace(loaded, policies=policies)


def _named(obj: Json) -> tuple[str, str]:
    """Return apiVersion and kind of an object."""
    fields = obj if isinstance(obj, dict) else {}
    version, kind = fields.get("apiVersion"), fields.get("kind")
    if not isinstance(version, str) or not isinstance(kind, str) or not version or not kind:
        raise ObjectError("not a Kubernetes object: `apiVersion` or `kind` is missing")
    if not isinstance(fields.get("metadata"), dict):
        raise ObjectError(f"{kind} without `metadata`")
    return version, kind


_KnownKind = tuple[GroupVersionKind, GroupVersionResource, bool]
"""A kind, its resource, and whether its objects live in namespaces."""


@lru_cache(maxsize=256)
def _built_in(api_version: str, kind: str) -> _KnownKind | None:
    group, _, version = api_version.rpartition("/")
    found = resource_for_kind(group, version, kind)
    if found is None:
        return None
    return _known_kind(api_version, kind, found.plural, namespaced=found.namespaced)


def _custom(api_version: str, kind: str, custom: CustomKinds) -> _KnownKind:
    """Return a kind that is not built in; its resource is guessed if no definition is known."""
    group, _, _ = api_version.rpartition("/")
    if (group, kind) in custom:
        plural, namespaced = custom[group, kind]
    else:
        workload = find_kind({"apiVersion": api_version, "kind": kind})
        plural = workload.plural if workload else plural_of(kind)
        namespaced = kind not in _CLUSTER_KINDS
    return _known_kind(api_version, kind, plural, namespaced=namespaced)


def _known_kind(api_version: str, kind: str, plural: str, *, namespaced: bool) -> _KnownKind:
    group, _, version = api_version.rpartition("/")
    return (
        GroupVersionKind(group=group, version=version, kind=kind),
        GroupVersionResource(group=group, version=version, resource=plural),
        namespaced,
    )


def raw(obj: Json) -> msgspec.Raw:
    """Return an object as a request carries it; nothing if there is none."""
    return NO_OBJECT if obj is None else msgspec.Raw(msgspec.json.encode(obj))
