"""The subresources of pods that are actions: binding, eviction, log."""

from policyd.api.meta import rfc3339
from policyd.local.apiserver.admission.attributes import attributes_of
from policyd.local.apiserver.requests import ApiRequest, decode
from policyd.local.apiserver.state import ServerState
from policyd.local.apiserver.status import Object, bad_request, conflict
from policyd.local.apiserver.store import ChangedError
from policyd.local.apiserver.wire.responses import ServerResponse, text
from policyd.local.apiserver.writing import metadata
from policyd.local.apiserver.writing.deletion import delete_object, options_of

DONE = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}

BINDING = ("", "v1", "Binding")
EVICTION = ("policy", "v1", "Eviction")


async def _admit(
    state: ServerState, request: ApiRequest, given: Object, kind: tuple[str, str, str]
) -> None:
    attributes = attributes_of(request, "CREATE", new=given)
    attributes.kind = kind
    await state.admission.mutate(attributes)
    await state.admission.validate(attributes)


async def bind(state: ServerState, request: ApiRequest) -> ServerResponse:
    """Answer POST on a pod's binding: give it a node."""
    given = decode(request.body, request.media_type)
    given.setdefault("metadata", {}).setdefault("namespace", request.target.namespace)
    if given["metadata"].get("name") != request.target.name:
        raise bad_request("name in URL does not match name in Binding object")
    await _admit(state, request, given, BINDING)
    pod, node = state.find(request), given.get("target", {}).get("name", "")
    _check_unbound(pod, node)
    if not request.options.dry_run:
        bound = _bound(pod, node, given, rfc3339(state.clock.now()))
        state.store.put("pods", bound, replacing=pod)
    return ServerResponse(body={**DONE, "code": 201}, code=201)


def _check_unbound(pod: Object, node: str) -> None:
    name, spec = pod["metadata"]["name"], pod["spec"]
    why = ""
    if not node:
        raise bad_request("target.name: Required value")
    if "deletionTimestamp" in pod["metadata"]:
        why = f"pod {name} is being deleted, cannot be assigned to a host"
    elif spec.get("nodeName"):
        why = f'pod {name} is already assigned to node "{spec["nodeName"]}"'
    elif spec.get("schedulingGates"):
        why = f"pod {name} has non-empty .spec.schedulingGates"
    if why:
        raise conflict("pods/binding", name, why)


def _bound(pod: Object, node: str, binding: Object, now: str) -> Object:
    bound = metadata.own_copy(pod)
    bound["spec"]["nodeName"] = node
    for part in ("annotations", "labels"):
        if binding["metadata"].get(part):
            bound["metadata"].setdefault(part, {}).update(binding["metadata"][part])
    conditions = bound.setdefault("status", {}).setdefault("conditions", [])
    conditions[:] = [c for c in conditions if c["type"] != "PodScheduled"]
    scheduled = {"type": "PodScheduled", "status": "True"}
    conditions.append({**scheduled, "lastProbeTime": None, "lastTransitionTime": now})
    return bound


async def evict(state: ServerState, request: ApiRequest) -> ServerResponse:
    """Answer POST on a pod's eviction: delete it. Disruption budgets are not looked at."""
    given = decode(request.body, request.media_type)
    given.setdefault("metadata", {}).setdefault("name", request.target.name)
    given["metadata"].setdefault("namespace", request.target.namespace)
    await _admit(state, request, given, EVICTION)
    options = given.get("deleteOptions") or {}
    dry_run = request.options.dry_run or options.get("dryRun") == ["All"]
    pod = state.find(request)
    try:
        delete_object(state, request.served, pod, options_of(options, dry_run=dry_run))
    except ChangedError:
        raise conflict("pods", request.target.name) from None
    return ServerResponse(body={**DONE, "code": 201}, code=201)


async def read_log(state: ServerState, request: ApiRequest) -> ServerResponse:
    """Answer GET on a pod's log."""
    pod = state.find(request)
    name = request.target.name
    names = [c["name"] for c in pod["spec"].get("containers", ())]
    container = request.options.text("container") or (names[0] if len(names) == 1 else "")
    if not container:
        listed = " ".join(names)
        raise bad_request(
            f"a container name must be specified for pod {name}, choose one of: [{listed}]"
        )
    if container not in names:
        raise bad_request(f"container {container} is not valid for pod {name}")
    if not pod["spec"].get("nodeName"):
        return text("", code=204)
    return text(state.pod_log(pod, container))
