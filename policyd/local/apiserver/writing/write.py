"""Creating and changing objects: the way a write takes from the client to the store."""

from collections.abc import Callable
from dataclasses import dataclass

from policyd.api.meta import rfc3339
from policyd.local.apiserver.admission.attributes import WriteAttributes, attributes_of
from policyd.local.apiserver.checks.options import check_write_options
from policyd.local.apiserver.conversion import to_served, to_stored
from policyd.local.apiserver.requests import ApiRequest, decode
from policyd.local.apiserver.state import ServerState
from policyd.local.apiserver.status import (
    Object,
    already_exists,
    bad_request,
    conflict,
    invalid,
    required,
    wrong,
)
from policyd.local.apiserver.store import ChangedError
from policyd.local.apiserver.wire.responses import ServerResponse
from policyd.local.apiserver.writing import metadata, shape
from policyd.local.apiserver.writing.deletion import settle
from policyd.local.apiserver.writing.ownership import tracked

CREATED_BY_UPDATE = frozenset({"leases.coordination.k8s.io"})
"""Kinds that a PUT creates if they are not there, and changes only in a version it names."""

ATTEMPTS = 5
"""How often a patch is applied anew when the object changes under it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectChange:
    """How an object is to change.

    `rewrite` makes the new object out of the one there is, both in the version of the request. With
    `owns`, it sees to managedFields itself. `attempts` is how often it may be asked.
    """

    rewrite: Callable[[Object], Object]
    owns: bool = False
    attempts: int = ATTEMPTS


async def create(state: ServerState, request: ApiRequest) -> ServerResponse:
    """Answer POST on a collection."""
    check_write_options(request, "CreateOptions")
    given = shape.read_shape(read_body(request), request)
    stored = await create_object(state, request, given)
    return ServerResponse(body=to_served(request.served, stored), code=201)


async def update(state: ServerState, request: ApiRequest) -> ServerResponse:
    """Answer PUT on an object or its status."""
    check_write_options(request, "UpdateOptions")
    body = shape.read_shape(read_body(request), request)
    given = body["metadata"]
    given.setdefault("name", request.target.name)
    check_address(request, given)
    served, target = request.served, request.target
    if _is_unknown(state, request) and served.resource in CREATED_BY_UPDATE:
        return ServerResponse(
            body=to_served(served, await create_object(state, request, body)), code=201
        )
    conditional = served.custom is not None or served.resource in CREATED_BY_UPDATE
    if conditional and not given.get("resourceVersion") and not _is_unknown(state, request):
        why = wrong("metadata.resourceVersion", 0, "must be specified for an update")
        raise invalid(served.resource, target.name, [why])
    change = ObjectChange(rewrite=lambda _old: metadata.own_copy(body), attempts=1)
    stored = await change_object(state, request, change)
    return ServerResponse(body=to_served(request.served, stored))


def check_address(request: ApiRequest, given: Object) -> None:
    """Check that an object's metadata name the object that the path does.

    Raises:
        StatusError: 400, if they name another.
    """
    target = request.target
    if given.get("name", target.name) != target.name:
        raise bad_request(
            f"the name of the object ({given['name']}) does not match the name on the"
            f" URL ({target.name})"
        )
    if request.served.namespaced and given.get("namespace", target.namespace) != target.namespace:
        raise bad_request(metadata.OTHER_NAMESPACE)


def _is_unknown(state: ServerState, request: ApiRequest) -> bool:
    target = request.target
    return state.store.get(request.served.storage, target.namespace, target.name) is None


async def finalize(state: ServerState, request: ApiRequest) -> ServerResponse:
    """Answer PUT on a namespace's finalize: set its finalizers, and nothing else."""
    given = read_body(request).get("spec", {}).get("finalizers", [])

    def rewrite(old: Object) -> Object:
        return metadata.own_copy({**old, "spec": {**old.get("spec", {}), "finalizers": given}})

    stored = await change_object(state, request, ObjectChange(rewrite=rewrite))
    return ServerResponse(body=to_served(request.served, stored))


def read_body(request: ApiRequest) -> Object:
    """Read the object that a request brings, and check that it is of the kind the path says.

    Raises:
        StatusError: If it cannot be read, or is of another kind.
    """
    given = decode(request.body, request.media_type)
    check_type(given, request)
    return given


def check_type(given: Object, request: ApiRequest) -> None:
    """Check that an object is of the kind the path says; it may leave that out.

    Raises:
        StatusError: If it is of another.
    """
    served = request.served
    api_version = given.setdefault("apiVersion", served.api_version)
    kind = given.setdefault("kind", served.kind)
    if api_version != served.api_version:
        raise bad_request(
            f"the API version in the data ({api_version}) does not match the expected API version"
            f" ({served.api_version})"
        )
    if kind != served.kind:
        what = f'{kind} in version "{served.version}" cannot be handled as a {served.kind}'
        raise bad_request(f"{what}: converting ({kind}) to ({served.kind}): unknown conversion")
    if given.get("metadata") is None:
        given["metadata"] = {}
    if not isinstance(given["metadata"], dict):
        raise bad_request("metadata: it must be an object")


async def create_object(
    state: ServerState, request: ApiRequest, given: Object, *, owns: bool = False
) -> Object:
    """Take a new object through admission into the store; return it as stored.

    Args:
        state: The server.
        request: The request, with its kind and user.
        given: The object, in its shape; changed in place.
        owns: Whether its managedFields are seen to already.

    Raises:
        StatusError: If it may not be created.
    """
    served, now = request.served, state.clock.now()
    metadata.wipe_system_fields(given)
    metadata.place(given, served, request.target.namespace)
    shape.fill_in(given, served)
    if not owns:
        given = tracked(None, given, request, now)
    attributes = attributes_of(request, "CREATE", new=to_stored(served, given))
    new = await _mutated(state, attributes)
    metadata.generate_name(new)
    if not new["metadata"].get("name"):
        why = required("metadata.name", "name or generateName is required")
        raise invalid(served.qualified_kind, "", [why])
    attributes.name = new["metadata"]["name"]
    metadata.stamp_created(new, served, now)
    shape.begin(new, served, rfc3339(now))
    shape.check(new, None, served, namespace=_namespace(state, new))
    await state.admission.validate(attributes)
    return _store_new(state, request, new)


def _namespace(state: ServerState, obj: Object) -> Object | None:
    return state.store.get("namespaces", "", obj["metadata"].get("namespace", ""))


async def _mutated(state: ServerState, attributes: WriteAttributes) -> Object:
    await state.admission.mutate(attributes)
    assert attributes.object is not None, "mutation leaves an object"
    return attributes.object


def _store_new(state: ServerState, request: ApiRequest, new: Object) -> Object:
    served = request.served
    namespace, name = new["metadata"].get("namespace", ""), new["metadata"]["name"]
    if state.store.get(served.storage, namespace, name) is not None:
        raise already_exists(served.resource, name)
    if request.options.dry_run:
        return new
    return state.store.put(served.storage, new, replacing=None)


async def change_object(state: ServerState, request: ApiRequest, change: ObjectChange) -> Object:
    """Change an object; return it as stored.

    Raises:
        StatusError: If the object is not there, or the change may not be made.
    """
    served, target = request.served, request.target
    for _ in range(change.attempts):
        old = state.find(request)
        new = change.rewrite(to_served(served, old))
        given = new["metadata"]
        check_address(request, given)
        uid = given.get("uid", "")
        if uid and uid != old["metadata"]["uid"] and request.method == "PATCH":
            why = wrong("metadata.uid", uid, "field is immutable")
            raise invalid(served.qualified_kind, target.name, [why])
        version = given.get("resourceVersion", "")
        metadata.check_preconditions(old, served, uid=uid, version=version)
        try:
            return await _change(state, request, old, new, owns=change.owns)
        except ChangedError:
            continue
    raise conflict(served.resource, target.name)


async def _change(
    state: ServerState, request: ApiRequest, old: Object, new: Object, *, owns: bool
) -> Object:
    served = request.served
    shape.fill_in(new, served)
    _keep_other_half(request, to_served(served, old), new)
    metadata.stamp_updated(new, old, served)
    if not owns:
        new = tracked(to_served(served, old), new, request, state.clock.now())
    attributes = attributes_of(request, "UPDATE", new=to_stored(served, new), old=old)
    new = await _mutated(state, attributes)
    _keep_other_half(request, old, new)
    metadata.stamp_updated(new, old, served)
    shape.check(new, old, served, namespace=_namespace(state, new))
    await state.admission.validate(attributes)
    return _store_change(state, request, old, new)


def _store_change(state: ServerState, request: ApiRequest, old: Object, new: Object) -> Object:
    """Store a change unless it is empty, or a dry run; delete an object that it releases."""
    if new == old:
        return old
    if request.options.dry_run:
        return new
    return settle(state.store, request.served.storage, old, new)


def _keep_other_half(request: ApiRequest, old: Object, new: Object) -> None:
    """Keep the status when the object is written, and all but the status when that is."""
    served = request.served
    if request.target.subresource == "status":
        status, about = new.get("status"), new["metadata"]
        kept = {**old["metadata"], "managedFields": about.get("managedFields", [])}
        new.clear()
        new.update({**old, "metadata": about if served.custom is None else kept})
        new.pop("status", None)
        if status is not None:
            new["status"] = status
    elif served.has("status"):
        new.pop("status", None)
        if "status" in old:
            new["status"] = old["status"]
