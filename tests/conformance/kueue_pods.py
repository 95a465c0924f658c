"""Kueue's tables of plain pods, alone and in groups.

A pod that is being deleted may be there still where Kueue has let it go.
"""

import copy
from contextlib import suppress

from policyd.api.kueue import PodSet
from policyd.api.kueue.names import MANAGED, QUEUE_NAME, ROLE_HASH
from policyd.api.meta import OwnerReference
from policyd.controller.watch.keys import ReconcileKey
from policyd.jobs.pods import SUSPENDING_PARENT, QueuedPod, group_name, role_hash
from policyd.jobs.rules.defaults import default_on_create
from policyd.jobs.rules.ownership import belongs_to_managed
from policyd.jobs.workload import workload_name
from policyd.kube.errors import NotFoundError
from policyd.kube.resources import PODS
from policyd.patch.draft import Draft
from tests.conformance.kueue_jobs import surroundings
from tests.conformance.kueue_objects import TRUSTED, convert, decode, run_table
from tests.conformance.kueue_parts import pod_group
from tests.conformance.kueue_scene import (
    Scene,
    compared,
    difference,
    events,
    pruned,
    requirements,
    workload_key,
)

LONG_AGO = "2026-01-01T00:00:00Z"
POD_TABLE_UNTOLD = frozenset({"admission"})


def run_reconciler(path):
    """Pods, their workloads and what is told of them, after one look of Kueue."""

    def failure(case):
        scene = Scene(case, stored=with_role, unseen=is_unmanaged)
        delete_all(case, scene)
        keys = [key_of(case)]
        if not case.input.get("pods"):
            keys += [workload_key(each) for each in of_pods(scene, case)]
        return scene.unlike_once_reconciled(keys, lambda: unlike(scene, case))

    yield from run_table(path, failure, rule=awaited)


def of_pods(scene, case):
    """Return the workloads that Kueue takes for those of pods: without the gate, of anybody's."""
    validates = scene.cluster.state.settings.gates.pod_integration_validate_group_owner
    for each in case.input.get("workloads") or ():
        owners = each["metadata"].get("ownerReferences", ())
        if not validates or any(owner["kind"] == "Pod" for owner in owners):
            yield each


def is_unmanaged(body):
    """Tell whether an object is a pod that the webhook has not held: such pods are not watched."""
    return body["kind"] == "Pod" and MANAGED not in body["metadata"].get("labels", {})


def awaited(case):
    """Leave out what waits for deletions to be seen: here the same pod is chosen, and goes once."""
    pods = case.input.get("pods") or ()
    groups = {f"ns/{group_name(decode(each, QueuedPod).metadata)}" for each in pods}
    expected = {each["key"] for each in case.input.get("excessPodsExpectations") or ()}
    return "deletions that are not seen yet" if groups & expected else ""


def key_of(case):
    """Return what is looked at: the one that is named, else the first pod or its group."""
    named = case.input.get("reconcileKey")
    if named:
        *group, namespace, name = named.split("/")
        return ReconcileKey("PodGroup" if group else "Pod", namespace, name)
    pod = decode(case.input["pods"][0], QueuedPod)
    group = group_name(pod.metadata)
    subject = ("PodGroup", group) if group else ("Pod", pod.metadata.name)
    return ReconcileKey(subject[0], pod.metadata.namespace, subject[1])


def with_role(body):
    """Return a pod of a group as the webhook stores it: it writes down which pods it is like."""
    metadata = body["metadata"]
    if body["kind"] == "Pod":
        metadata.setdefault("creationTimestamp", LONG_AGO)
    if body["kind"] == "Pod" and group_name(decode(body, QueuedPod).metadata):
        metadata.setdefault("annotations", {}).setdefault(ROLE_HASH, role_hash(body["spec"], {}))
    return body


def delete_all(case, scene):
    """Delete what the table deletes before the look."""
    for _, arguments, _ in case.operations("client.Delete"):
        scene.delete(arguments["obj"])


def unlike(scene, case):
    want = case.want
    pods = [summarize_pod(each) for each in scene.all("Pod")]
    # Where a case has its own way to compare, that leaves out all but what is copied and told.
    loosely = isinstance(case.input["workloadCmpOpts"]["$cmpOptions"], list)
    view = conditions_of if loosely else summarize_workload
    workloads = [view(each) for each in scene.all("Workload")]
    wanted = [view(each) for each in want.get("wantWorkloads") or ()]
    return (
        unlike_pods(pods, want.get("wantPods"))
        or difference(by_name(workloads), by_name(wanted), "workloads")
        or difference(relevant_events(scene.notes.recorded, want), events_of(want), "events")
    )


def summarize_workload(workload):
    metadata = workload["metadata"]
    owners = [(each["kind"], each["name"]) for each in metadata.get("ownerReferences", ())]
    annotations = metadata.get("annotations") or {}
    fields = compared(workload, untold=POD_TABLE_UNTOLD)
    return {**fields, "owners": sorted(owners), "annotations": annotations}


def conditions_of(workload):
    fields = summarize_workload(workload)
    metadata = {"name": ""}
    return {"metadata": metadata, **{k: fields.get(k) for k in ("status", "annotations")}}


def unlike_pods(pods, wanted):
    if wanted is None:
        return ""
    wanted = [summarize_pod(copy.deepcopy(each)) for each in wanted]
    names = {each["metadata"]["name"] for each in wanted}
    there = [p for p in pods if p["metadata"]["name"] in names or not p.pop("going")]
    for each in (*there, *wanted):
        each.pop("going", None)
    return difference(by_name(there), by_name(wanted), "pods")


def summarize_pod(pod):
    going = bool(pod["metadata"].get("deletionTimestamp"))
    metadata = {
        name: value
        for name, value in pod["metadata"].items()
        if name not in {"deletionTimestamp", "deletionGracePeriodSeconds"}
    }
    fields = compared({**pod, "metadata": metadata})
    annotations = {k: v for k, v in metadata.get("annotations", {}).items() if k != ROLE_HASH}
    return {**fields, **({"annotations": annotations} if annotations else {}), "going": going}


def by_name(objects):
    return sorted(objects, key=lambda each: each["metadata"]["name"])


def relevant_events(emitted, want):
    """Return what was told: a warning may go on, or be what Kueue only writes into its log."""
    wanted = events_of(want)
    kept = []
    for event in emitted:
        like = next((each for each in wanted if begins(event, each)), None)
        if like or event["Reason"] != "ErrWorkloadCompose":
            kept.append(like or event)
    return sorted_events(kept)


def begins(event, wanted):
    return event["EventType"] == "Warning" and event["Message"].startswith(wanted["Message"])


def events_of(want):
    return sorted_events(events(want.get("wantEvents")))


def sorted_events(recorded):
    return sorted(recorded, key=lambda each: tuple(each.values()))


def run_defaults(path):
    """What becomes of new pods: they are held."""

    def failure(case):
        draft = Draft(copy.deepcopy(case.input["pod"]))
        if is_sent(case):
            default_on_create(draft, group="", kind="Pod", surroundings=surroundings(case))
        return difference(held(draft.object), held(case.want["want"]), "pod")

    yield from run_table(path, failure, rule=left_out_by_the_webhook)


def is_sent(case):
    """Tell whether pods of a namespace are sent to the webhook at all."""
    selector = case.input.get("managedJobsNamespaceSelector")
    if selector is None:
        return True
    name = case.input["pod"]["metadata"].get("namespace")
    there = (each["metadata"] for each in case.input["initObjects"] if each["kind"] == "Namespace")
    labels = next((each.get("labels") or {} for each in there if each["name"] == name), {})
    return requirements(selector).matches(labels)


def held(pod):
    """Return what is compared; the product marks all pods that it holds, whoever suspends them."""
    metadata = {**pod["metadata"]}
    if SUSPENDING_PARENT in metadata.get("annotations", {}):
        metadata["labels"] = {k: v for k, v in metadata["labels"].items() if k != MANAGED}
    # Requests that are empty, not missing, have another hash, and look the same here.
    if ROLE_HASH in metadata.get("annotations", {}):
        metadata["annotations"] = {**metadata["annotations"], ROLE_HASH: "some"}
    return pruned({**pod, "metadata": metadata})


def left_out_by_the_webhook(case):
    """Name what is not looked up, or chosen, at the webhook."""
    if case.want["wantErr"]:
        return "owners are not looked up at the webhook"
    chosen = case.input.get("podSelector") or case.input.get("namespaceSelector")
    untouched = (case.want["want"] or {}) == case.input["pod"]
    queues = QUEUE_NAME in case.input["pod"]["metadata"].get("labels", {})
    owned = case.input["pod"]["metadata"].get("ownerReferences")
    left_alone = chosen and untouched and queues and not owned
    return "selectors of pods (podOptions of v1beta1)" if left_alone else ""


def run_owners(path):
    """Whether what belongs to an owner is held with it."""

    def failure(case):
        pod = {"metadata": {"ownerReferences": [case.input["ownerReference"]]}}
        return difference(belongs_to_managed(pod, TRUSTED), case.want["wantRes"], "held")

    yield from run_table(path, failure)


def run_pod_sets(path):
    """What a pod demands."""

    def failure(case):
        scene = Scene(case)
        group = pod_group(case.input["pod"])
        got = scene.steps.requested(group.pod_sets())
        wanted = convert(case.data["observed"]["gotPodSets"], list[PodSet])
        return difference([repr(each) for each in got], [repr(each) for each in wanted], "pod sets")

    yield from run_table(path, failure)


def run_names(path):
    """How the names of the workloads of pods begin."""

    def failure(case):
        start = case.want["wantWlNameStart"]
        name = start.removeprefix("pod-").rstrip("-")
        got = workload_name(OwnerReference("v1", "Pod", name, "uid"))
        return "" if got.startswith(start) else f"got {got}, wanted {start}..."

    yield from run_table(path, failure)


def run_stop(path):
    """A pod that is stopped is told why, and deleted; one that is gone is no error."""

    def failure(case):
        scene = Scene(case)
        pod = copy.deepcopy(case.input["pod"])
        pod["metadata"].pop("resourceVersion", None)
        pod["metadata"].setdefault("labels", {})[QUEUE_NAME] = "lq"
        scene.put(pod)
        if case.input.get("deleteBeforePatch"):
            scene.store.delete(PODS, scene.all("Pod")[0], dry_run=False)
        key = ReconcileKey("Pod", pod["metadata"]["namespace"], pod["metadata"]["name"])
        with suppress(NotFoundError):
            scene.reconcile(key)
        return difference(scene.all("Pod"), [], "pods")

    yield from run_table(path, failure)
