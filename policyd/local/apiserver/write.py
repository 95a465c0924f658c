"""Creating and changing objects: the way a write takes from the client to the store."""

from collections.abc import Callable

from policyd.local.apiserver import metadata
from policyd.local.apiserver.admission.attributes import Attributes, Operation
from policyd.local.apiserver.conversion import to_served, to_stored
from policyd.local.apiserver.deletion import is_released
from policyd.local.apiserver.requests import Request, decode
from policyd.local.apiserver.responses import Answer
from policyd.local.apiserver.state import State
from policyd.local.apiserver.status import (
    Object,
    already_exists,
    bad_request,
    conflict,
    not_found,
)
from policyd.local.apiserver.store import ChangedError

ATTEMPTS = 5
"""How often a patch is applied anew when the object changes under it."""

Rewrite = Callable[[Object], Object]


async def create(state: State, request: Request) -> Answer:
    """Answer POST on a collection."""
    new = read_body(request)
    stored = await create_object(state, request, new)
    return Answer(body=to_served(request.served, stored), code=201)


async def update(state: State, request: Request) -> Answer:
    """Answer PUT on an object or its status."""
    body = read_body(request)
    if body["metadata"].setdefault("name", request.target.name) != request.target.name:
        raise bad_request(
            f"the name of the object ({body['metadata']['name']}) does not match the name on the"
            f" URL ({request.target.name})"
        )
    stored = await change_object(state, request, lambda _old: metadata.own_copy(body), attempts=1)
    return Answer(body=to_served(request.served, stored))


def read_body(request: Request) -> Object:
    """Read the object that a request brings, and check that it is of the kind the path says.

    Raises:
        StatusError: If it cannot be read, or is of another kind.
    """
    given = decode(request.body, request.media_type)
    served = request.served
    api_version = given.setdefault("apiVersion", served.api_version)
    kind = given.setdefault("kind", served.kind)
    if api_version != served.api_version:
        raise bad_request(
            f"the API version in the data ({api_version}) does not match the expected API version"
            f" ({served.api_version})"
        )
    if kind != served.kind:
        raise bad_request(
            f"{kind} in version {served.version!r} cannot be handled as a {served.kind}"
        )
    if not isinstance(given.setdefault("metadata", {}), dict):
        raise bad_request("metadata: it must be an object")
    return given


async def create_object(state: State, request: Request, given: Object) -> Object:
    """Take a new object through admission into the store; return it as stored.

    Raises:
        StatusError: If it may not be created.
    """
    served, target = request.served, request.target
    metadata.wipe_system_fields(given)
    metadata.place(given, served, target.namespace)
    new = to_stored(served, given)
    name = new["metadata"].get("name", "")
    attributes = _attributes(request, "CREATE", name=name, new=new, old=None)
    await state.admission.mutate(attributes)
    assert attributes.object is not None, "mutation leaves an object"
    new = attributes.object
    metadata.generate_name(new)
    metadata.stamp_created(new, served, state.clock.now())
    await state.admission.validate(attributes)
    return _store_new(state, request, new)


def _store_new(state: State, request: Request, new: Object) -> Object:
    served = request.served
    namespace, name = new["metadata"].get("namespace", ""), new["metadata"]["name"]
    if state.store.get(served.storage, namespace, name) is not None:
        raise already_exists(served.resource, name)
    if request.options.dry_run:
        return new
    return state.store.put(served.storage, new, replacing=None)


async def change_object(
    state: State, request: Request, rewrite: Rewrite, *, attempts: int = ATTEMPTS
) -> Object:
    """Put what `rewrite` makes of an object in its place; return it as stored.

    Args:
        state: The server.
        request: Who asks, for which object.
        rewrite: Makes the new object out of the one there is, both in the version of the request.
            What it returns is changed in place.
        attempts: How often to begin anew when the object changes meanwhile.

    Raises:
        StatusError: If the object is not there, or the change may not be made.
    """
    served, target = request.served, request.target
    for _ in range(attempts):
        old = state.store.get(served.storage, target.namespace, target.name)
        if old is None:
            raise not_found(served.resource, target.name)
        new = to_stored(served, rewrite(to_served(served, old)))
        given = new["metadata"]
        metadata.check_preconditions(
            old, served, uid=given.get("uid", ""), version=given.get("resourceVersion", "")
        )
        try:
            return await _change(state, request, old, new)
        except ChangedError:
            continue
    raise conflict(served.resource, target.name)


async def _change(state: State, request: Request, old: Object, new: Object) -> Object:
    served = request.served
    _keep_other_half(request, old, new)
    metadata.stamp_updated(new, old, served)
    attributes = _attributes(request, "UPDATE", name=request.target.name, new=new, old=old)
    await state.admission.mutate(attributes)
    assert attributes.object is not None, "mutation leaves an object"
    new = attributes.object
    metadata.stamp_updated(new, old, served)
    await state.admission.validate(attributes)
    return store_change(state, request, old, new)


def store_change(state: State, request: Request, old: Object, new: Object) -> Object:
    """Store a change unless it is none, or nothing may be stored; drop what is released by it."""
    if new == old:
        return old
    if request.options.dry_run:
        return new
    if is_released(new):
        return state.store.remove(request.served.storage, old, last=new)
    return state.store.put(request.served.storage, new, replacing=old)


def _keep_other_half(request: Request, old: Object, new: Object) -> None:
    """Keep the status when the object is written, and all but the status when that is."""
    served = request.served
    if request.target.subresource == "status":
        status = new.get("status")
        kept = dict(new["metadata"]) if served.custom is None else dict(old["metadata"])
        new.clear()
        new.update({**old, "metadata": kept, "status": status})
        if status is None:
            del new["status"]
    elif served.has("status"):
        new.pop("status", None)
        if "status" in old:
            new["status"] = old["status"]


def _attributes(
    request: Request, operation: Operation, *, name: str, new: Object | None, old: Object | None
) -> Attributes:
    return Attributes(
        served=request.served,
        operation=operation,
        namespace=request.target.namespace,
        name=name,
        user=request.user,
        subresource=request.target.subresource,
        object=new,
        old_object=old,
        dry_run=request.options.dry_run,
        options=options_shown(request, operation),
        warn=request.warn,
    )


def options_shown(request: Request, operation: Operation) -> Object:
    """Write a request's options as webhooks are shown them."""
    kind = {"CREATE": "CreateOptions", "UPDATE": "UpdateOptions", "DELETE": "DeleteOptions"}
    shown: Object = {"kind": kind.get(operation, ""), "apiVersion": "meta.k8s.io/v1"}
    if request.method == "PATCH":
        shown["kind"] = "PatchOptions"
    for name in ("fieldManager", "fieldValidation"):
        if request.options.text(name):
            shown[name] = request.options.text(name)
    if request.options.dry_run:
        shown["dryRun"] = ["All"]
    if request.options.flag("force"):
        shown["force"] = True
    return shown
