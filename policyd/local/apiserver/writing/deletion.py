"""Deleting: preconditions, finalizers, grace, and whole collections."""

from dataclasses import dataclass, replace

from policyd.api.meta import rfc3339
from policyd.local.apiserver.admission.attributes import attributes_of
from policyd.local.apiserver.checks.options import check_propagation
from policyd.local.apiserver.conversion import as_item, to_served
from policyd.local.apiserver.reading.selectors import selection
from policyd.local.apiserver.registry import Served
from policyd.local.apiserver.requests import ApiRequest, decode
from policyd.local.apiserver.state import ServerState
from policyd.local.apiserver.status import Object, conflict, named, not_found, success
from policyd.local.apiserver.store import Store
from policyd.local.apiserver.wire.responses import ServerResponse

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"
NAMESPACE_FINALIZER = "kubernetes"

RETURNED = frozenset(
    {
        "namespaces",
        "persistentvolumeclaims",
        "persistentvolumes",
        "pods",
        "podtemplates",
        "resourcequotas",
        "serviceaccounts",
        "services",
    }
)
"""Kinds whose deletion answers with the object, even when it is gone at once."""

GRACEFUL = frozenset({"namespaces", "pods"})
"""Kinds that show the time of their deletion even when they are gone at once."""

ORPHANED_BY_DEFAULT = frozenset({"jobs.batch"})
"""Kinds that orphan their dependents by default: older than propagation policies."""

ORPHAN_WARNING = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to"
    " remove them or set propagationPolicy=Orphan to suppress this warning"
)


def is_released(value: Object) -> bool:
    """Tell whether an object that is being deleted has nothing left to wait for."""
    about = value["metadata"]
    return (
        "deletionTimestamp" in about
        and not about.get("finalizers")
        and not about.get("deletionGracePeriodSeconds")
        and not (value.get("kind") == "Namespace" and value.get("spec", {}).get("finalizers"))
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionRules:
    """How to delete; grace is in seconds, None for the object's own."""

    grace: int | None = None
    policy: str = ""
    uid: str = ""
    version: str = ""
    dry_run: bool = False

    def shown(self) -> Object:
        """Write the options as webhooks are shown them."""
        wanted = {"uid": self.uid, "resourceVersion": self.version}
        preconditions = {name: value for name, value in wanted.items() if value}
        shown = {
            "gracePeriodSeconds": self.grace,
            "preconditions": preconditions or None,
            "propagationPolicy": self.policy or None,
            "dryRun": ["All"] if self.dry_run else None,
        }
        return {name: value for name, value in shown.items() if value is not None}


def read_options(request: ApiRequest) -> DeletionRules:
    """Read the options of a deletion, from the body and the query."""
    body = decode(request.body, request.media_type) if request.body else {}
    options = options_of(body, dry_run=request.options.dry_run)
    grace, policy = options.grace, options.policy or request.options.text("propagationPolicy")
    if grace is None:
        grace = request.options.integer("gracePeriodSeconds")
    check_propagation(policy)
    return replace(options, grace=grace, policy=policy)


def options_of(body: Object, *, dry_run: bool = False) -> DeletionRules:
    """Read a DeleteOptions object."""
    preconditions = body.get("preconditions") or {}
    orphan = "Orphan" if body.get("orphanDependents") else ""
    return DeletionRules(
        grace=body.get("gracePeriodSeconds"),
        policy=body.get("propagationPolicy") or orphan,
        uid=preconditions.get("uid", ""),
        version=preconditions.get("resourceVersion", ""),
        dry_run=dry_run or body.get("dryRun") == ["All"],
    )


async def delete(state: ServerState, request: ApiRequest) -> ServerResponse:
    """Answer DELETE on an object."""
    served, options, old = request.served, read_options(request), state.find(request)
    final = await _admit_and_delete(state, request, old, options)
    if not is_released(final):
        return ServerResponse(body=to_served(served, final))
    if served.resource in RETURNED:
        return ServerResponse(body=to_served(served, final if served.resource in GRACEFUL else old))
    about = final["metadata"]
    return ServerResponse(body=success(named(served.resource, about["name"], about["uid"])))


async def delete_collection(state: ServerState, request: ApiRequest) -> ServerResponse:
    """Answer DELETE on a collection: delete the selected objects, and return them."""
    options, selects = read_options(request), selection(request)
    served = request.served
    found = state.store.items(served.storage, request.target.namespace)
    matching = [value for _, value in found if selects(value)]
    for old in matching:
        await _admit_and_delete(state, request, old, options)
    return ServerResponse(
        body={
            "kind": served.list_kind,
            "apiVersion": served.api_version,
            "metadata": {"resourceVersion": str(state.store.version)},
            "items": [as_item(served, old) for old in matching],
        }
    )


async def _admit_and_delete(
    state: ServerState, request: ApiRequest, old: Object, options: DeletionRules
) -> Object:
    """Delete an object if admission lets it go; return it as it is now, or was last.

    Raises:
        StatusError: If a precondition fails, the object is gone, or admission refuses.
    """
    attributes = attributes_of(request, "DELETE", old=old)
    attributes.dry_run, attributes.name = options.dry_run, request.target.name
    attributes.options |= options.shown()
    await state.admission.validate(attributes)
    about = old["metadata"]
    # During admission it may have changed: the current object is deleted.
    now = state.store.get(request.served.storage, about.get("namespace", ""), about["name"])
    if now is None or now["metadata"]["uid"] != about["uid"]:
        raise not_found(request.served.resource, about["name"])
    return delete_object(state, request.served, now, _with_default_policy(request, options))


def delete_object(
    state: ServerState, served: Served, old: Object, options: DeletionRules
) -> Object:
    """Delete an object, or mark it for deletion if something is to happen before.

    Raises:
        StatusError: If a precondition fails.
        ChangedError: If another object stands there.
    """
    check_preconditions(old, options)
    marked = mark_deleted(old, served.storage, options, now=state.clock.now())
    if options.dry_run:
        return marked
    if is_released(marked) and served.resource in GRACEFUL:
        # Objects with a grace period are seen with none left before they are removed.
        marked = state.store.put(served.storage, marked, replacing=old)
        state.store.remove(served.storage, marked)
        return marked
    return settle(state.store, served.storage, old, marked)


def settle(store: Store, resource: str, old: Object, new: Object) -> Object:
    """Store a changed object, or remove it if nothing holds its deletion any more.

    Raises:
        ChangedError: If another object stands there.
    """
    if is_released(new):
        store.remove(resource, old)
        return new
    return old if new == old else store.put(resource, new, replacing=old)


def check_preconditions(old: Object, options: DeletionRules) -> None:
    """Check that an object is the one that is to be deleted.

    Raises:
        StatusError: 409, if it is another one.
    """
    about = old["metadata"]
    why = ""
    if options.uid and options.uid != about["uid"]:
        why = (
            f"the UID in the precondition ({options.uid}) does not match the UID in record"
            f" ({about['uid']}). The object might have been deleted and then recreated"
        )
    elif options.version and options.version != about["resourceVersion"]:
        why = (
            f"the ResourceVersion in the precondition ({options.version}) does not match the"
            f" ResourceVersion in record ({about['resourceVersion']}). The object might have been"
            " modified"
        )
    if why:
        raise conflict(old["kind"], about["name"], why)


def mark_deleted(old: Object, resource: str, options: DeletionRules, *, now: float) -> Object:
    """Return an object as it is once its deletion is asked for."""
    about = dict(old["metadata"])
    grace = _grace(old, resource, options)
    before = about.get("deletionGracePeriodSeconds")
    if "deletionTimestamp" not in about or (before is not None and grace < before):
        about["deletionTimestamp"] = rfc3339(now + grace)
        if resource != "namespaces":
            about["deletionGracePeriodSeconds"] = grace
        if "deletionTimestamp" not in old["metadata"] and "generation" in about:
            about["generation"] += 1
    about["finalizers"] = _finalizers(about, options.policy)
    if not about["finalizers"]:
        del about["finalizers"]
    marked = {**old, "metadata": about}
    if resource == "namespaces":
        marked["status"] = {**old.get("status", {}), "phase": "Terminating"}
    return marked


def _grace(old: Object, resource: str, options: DeletionRules) -> int:
    """Only a pod that a node runs needs time to end."""
    spec, status = old.get("spec", {}), old.get("status", {})
    if resource != "pods" or not spec.get("nodeName"):
        return 0
    if status.get("phase") in {"Succeeded", "Failed"}:
        return 0
    own: int = spec.get("terminationGracePeriodSeconds", 30)
    return own if options.grace is None else max(options.grace, 0)


def _finalizers(about: Object, policy: str) -> list[str]:
    """Keep the propagation policy as a finalizer, which the garbage collector works off."""
    finalizers = list(about.get("finalizers", ()))
    wanted = {"Foreground": FOREGROUND, "Orphan": ORPHAN}.get(policy)
    if policy:
        finalizers = [f for f in finalizers if f not in {FOREGROUND, ORPHAN} or f == wanted]
    if wanted and wanted not in finalizers:
        finalizers.append(wanted)
    return finalizers


def _with_default_policy(request: ApiRequest, options: DeletionRules) -> DeletionRules:
    if options.policy or request.served.resource not in ORPHANED_BY_DEFAULT:
        return options
    request.warn(ORPHAN_WARNING)
    return replace(options, policy="Orphan")
