"""The admission that is built in: namespaces, priorities, and tolerations for failing nodes."""

from policyd.local.apiserver.admission.attributes import WriteAttributes
from policyd.local.apiserver.kinds.cluster_checks import SYSTEM_CLASSES
from policyd.local.apiserver.kinds.pod_defaults import add_node_tolerations
from policyd.local.apiserver.status import Object, forbidden, not_found
from policyd.local.apiserver.store import Store

IMMORTAL = frozenset({"default", "kube-system", "kube-public"})

PREEMPTING = "PreemptLowerPriority"

PRIORITY_CLASSES = "priorityclasses.scheduling.k8s.io"


def mutate(attributes: WriteAttributes, store: Store) -> None:
    """Change the object as the built-in plug-ins do.

    Raises:
        StatusError: If one of them refuses.
    """
    check_namespace(attributes, store)
    if attributes.served.resource != "pods" or attributes.subresource or not attributes.object:
        return
    if attributes.operation == "CREATE":
        set_priority(attributes.object, store)
    elif attributes.old_object is not None:
        keep_priority(attributes.object["spec"], attributes.old_object["spec"])
    add_node_tolerations(attributes.object["spec"])


def check_namespace(attributes: WriteAttributes, store: Store) -> None:
    """Refuse objects created in a namespace that does not exist, or is being deleted.

    Raises:
        StatusError: 404 or 403.
    """
    if attributes.operation != "CREATE" or not attributes.served.namespaced:
        return
    namespace = store.get("namespaces", "", attributes.namespace)
    if namespace is None:
        raise not_found("namespaces", attributes.namespace)
    if "deletionTimestamp" in namespace["metadata"]:
        why = f"unable to create new content in namespace {attributes.namespace} because it is"
        error = forbidden(attributes.served.resource, attributes.name, f"{why} being terminated")
        reason = {"reason": "NamespaceTerminating", "field": "metadata.namespace"}
        message = f"namespace {attributes.namespace} is being terminated"
        error.status["details"]["causes"] = [{**reason, "message": message}]
        raise error


def check_default_class(attributes: WriteAttributes, store: Store) -> None:
    """Refuse a second priority class for pods that name none.

    Raises:
        StatusError: 403.
    """
    given = attributes.object or {}
    if attributes.served.resource != PRIORITY_CLASSES or not given.get("globalDefault"):
        return
    found = _default_class(store)
    if found is not None and found["metadata"]["name"] != attributes.name:
        why = (
            f"PriorityClass {found['metadata']['name']} is already marked as default. Only one"
            " default can exist"
        )
        raise forbidden(PRIORITY_CLASSES, attributes.name, why)


def check_deletion(attributes: WriteAttributes) -> None:
    """Refuse to delete the namespaces and priority classes that every cluster has.

    Raises:
        StatusError: 403.
    """
    if attributes.served.resource == "namespaces" and attributes.name in IMMORTAL:
        raise forbidden("namespaces", attributes.name, "this namespace may not be deleted")
    if attributes.served.resource == PRIORITY_CLASSES and attributes.name in SYSTEM_CLASSES:
        why = "this is a system priority class and cannot be deleted"
        raise forbidden(PRIORITY_CLASSES, attributes.name, why)


def set_priority(pod: Object, store: Store) -> None:
    """Give a pod the priority of its class, or of the default class, or 0.

    Raises:
        StatusError: If there is no such class, or the pod states another priority.
    """
    spec, name = pod["spec"], pod["metadata"].get("name", "")
    wanted = spec.get("priorityClassName", "")
    found = store.get(PRIORITY_CLASSES, "", wanted) if wanted else _default_class(store)
    if wanted and found is None:
        raise forbidden("pods", name, f"no PriorityClass with name {wanted} was found")
    if found is not None:
        spec["priorityClassName"] = found["metadata"]["name"]
    priority: int = found.get("value", 0) if found else 0
    if spec.get("priority", priority) != priority:
        why = (
            f"the integer value of priority ({spec['priority']}) must not be provided in pod spec;"
            f" priority admission controller computed {priority} from the given PriorityClass name"
        )
        raise forbidden("pods", name, why)
    spec["priority"] = priority
    policy = (found.get("preemptionPolicy") if found else None) or PREEMPTING
    if spec.get("preemptionPolicy", policy) != policy:
        why = (
            f"the string value of PreemptionPolicy ({spec['preemptionPolicy']}) must not be"
            f" provided in pod spec; priority admission controller computed {policy} from the given"
            " PriorityClass name"
        )
        raise forbidden("pods", name, why)
    spec["preemptionPolicy"] = policy


def keep_priority(spec: Object, before: Object) -> None:
    """Keep the priority of a pod, even if an update does not give it."""
    for name in ("priority", "preemptionPolicy"):
        if name in before:
            spec.setdefault(name, before[name])


def _default_class(store: Store) -> Object | None:
    """Return the class marked as default; the one of least value if there are several."""
    marked = [c for _, c in store.items(PRIORITY_CLASSES) if c.get("globalDefault")]
    return min(marked, key=lambda c: c.get("value", 0), default=None)
