"""The subresource scale: the number of replicas of any kind."""

from collections.abc import Callable

from policyd.local.apiserver.admission.attributes import attributes_of
from policyd.local.apiserver.reading.cells import at, selector
from policyd.local.apiserver.registry import Served
from policyd.local.apiserver.requests import ApiRequest, decode
from policyd.local.apiserver.state import ServerState
from policyd.local.apiserver.status import Object, conflict, invalid, wrong
from policyd.local.apiserver.store import ChangedError
from policyd.local.apiserver.wire.responses import ServerResponse
from policyd.local.apiserver.writing import metadata, shape
from policyd.local.apiserver.writing.ownership import tracked
from policyd.local.apiserver.writing.patching import Patcher, patcher_of
from policyd.local.apiserver.writing.write import ATTEMPTS

SCALE = ("autoscaling", "v1", "Scale")
SCALE_TYPE = "autoscaling/v1.Scale"

BUILT_IN = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
"""Where built-in kinds have their numbers."""


async def get_scale(state: ServerState, request: ApiRequest) -> ServerResponse:
    """Answer GET on the scale of an object."""
    return ServerResponse(body=scale_of(state.find(request), request.served))


async def update_scale(state: ServerState, request: ApiRequest) -> ServerResponse:
    """Answer PUT on the scale of an object."""
    given = decode(request.body, request.media_type)
    return await _change(state, request, lambda _old: metadata.own_copy(given))


async def patch_scale(state: ServerState, request: ApiRequest) -> ServerResponse:
    """Answer PATCH on the scale of an object."""
    return await _change(state, request, patcher_of(request, SCALE_TYPE))


def scale_of(value: Object, served: Served) -> Object:
    """Return the scale of an object."""
    paths = _paths(served)
    about = value["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status: Object = {"replicas": at(value, paths["statusReplicasPath"].lstrip("."), 0)}
    selected = selector(value, 0.0)
    if "labelSelectorPath" in paths:
        selected = at(value, paths["labelSelectorPath"].lstrip("."), "")
    if selected != "<none>" and selected:
        status["selector"] = selected
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: about[name] for name in kept if name in about},
        "spec": {"replicas": at(value, paths["specReplicasPath"].lstrip("."), 0)},
        "status": status,
    }


def _paths(served: Served) -> Object:
    return (served.custom.scale if served.custom else None) or BUILT_IN


async def _change(state: ServerState, request: ApiRequest, rewrite: Patcher) -> ServerResponse:
    for _ in range(ATTEMPTS):
        old = state.find(request)
        try:
            stored = await _rescale(state, request, old, rewrite)
        except ChangedError:
            continue
        return ServerResponse(body=scale_of(stored, request.served))
    raise conflict(request.served.resource, request.target.name)


async def _rescale(
    state: ServerState, request: ApiRequest, old: Object, rewrite: Callable[[Object], Object]
) -> Object:
    served = request.served
    before = scale_of(old, served)
    wanted = metadata.own_copy(rewrite(before))
    given = wanted.get("metadata", {})
    uid, version = given.get("uid", ""), given.get("resourceVersion", "")
    metadata.check_preconditions(old, served, uid=uid, version=version)
    attributes = attributes_of(request, "UPDATE", new=wanted, old=before)
    attributes.kind = SCALE
    await state.admission.mutate(attributes)
    await state.admission.validate(attributes)
    replicas = at(attributes.object, "spec.replicas", 0)
    if not isinstance(replicas, int) or replicas < 0:
        why = wrong("spec.replicas", replicas, "must be greater than or equal to 0")
        raise invalid("Scale.autoscaling", request.target.name, [why])
    new = metadata.own_copy(old)
    _set(new, _paths(served)["specReplicasPath"], replicas)
    metadata.stamp_updated(new, old, served)
    new = tracked(old, new, request, state.clock.now())
    shape.check(new, old, served)
    if new == old or request.options.dry_run:
        return new
    return state.store.put(served.storage, new, replacing=old)


def _set(value: Object, path: str, replicas: int) -> None:
    *parents, last = path.lstrip(".").split(".")
    for name in parents:
        value = value.setdefault(name, {})
    value[last] = replicas
