"""The copies on a worker: of a workload, and of its job; and the status that comes back."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from policyd.api.kueue import Workload
from policyd.api.kueue.names import (
    ADMISSION_GATE,
    ELASTIC_JOB,
    JOB_UID,
    MULTI_KUEUE,
    ORIGIN_UID,
    PREBUILT_WORKLOAD,
    QUEUE_NAME,
)
from policyd.api.meta import Json
from policyd.jobs.injection import OF_JOBS
from policyd.jobs.kinds.registry import find_parent
from policyd.jobs.kinds.train_job import MANAGER, PATCHES
from policyd.jobs.managers import MANAGERS, JobManager
from policyd.jobs.parents import ParentKind
from policyd.jobs.rules.submission import fits_label
from policyd.multikueue.settings import ORIGIN, MultiKueueSettings
from policyd.patch.draft import Draft

NOT_OURS: Final = "remote object is not owned by MultiKueue"

_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
"""An annotation that tells of the object here, not of its copy."""


def manager_of(
    group: str, kind: str, version: str, frameworks: tuple[str, ...]
) -> JobManager | None:
    """Return how jobs of a kind are handed over; None if they cannot be.

    Args:
        group: API group.
        kind: Kind.
        version: API version.
        frameworks: Further kinds that may be, as `Kind.version.group`.
    """
    known = MANAGERS.get((group, kind))
    return JobManager() if known is None and f"{kind}.{version}.{group}" in frameworks else known


def unmanaged(manager: JobManager, job: Mapping[str, Any]) -> str:
    """Return why a job is not to be sent to another cluster; empty if it is."""
    if manager.holds:
        return ""
    given = Draft(dict(job)).get(manager.path) or ""
    if given == MULTI_KUEUE:
        return ""
    path = ".".join(map(str, manager.path))
    return f'Expecting {path} to be "{MULTI_KUEUE}" not "{given}"'


def unsendable(manager: JobManager, job: Mapping[str, Any], workload: Workload) -> str:
    """Return why no copy of an object is made for a workload; empty if one is.

    Users can write a Workload that names any of their objects. What the queue does not hold here
    would not be held on the worker either, and run there outside of any quota.

    Args:
        manager: The field by which jobs of its kind are handed over.
        job: The whole object.
        workload: The workload.
    """
    metadata = job["metadata"]
    owners = workload.metadata.owner_references
    if metadata.get("uid") not in {o.uid for o in owners if o.name == metadata["name"]}:
        return "another object of the same name is the owner of the workload"
    named, queue = (metadata.get("labels") or {}).get(QUEUE_NAME, ""), workload.spec.queue_name
    if named != queue:
        return f'the owner names the queue "{named}", and its workload "{queue}"'
    gates = (job.get("spec") or {}).get("schedulingGates") or ()
    if job.get("kind") == "Pod" and not any(each.get("name") == ADMISSION_GATE for each in gates):
        return f'the pod does not have the scheduling gate "{ADMISSION_GATE}"'
    return unmanaged(manager, job)


def is_ours(metadata: Mapping[str, Any], origin: str) -> bool:
    """Tell whether this manager made an object on a worker."""
    return bool(origin) and (metadata.get("labels") or {}).get(ORIGIN) == origin


def copied_workload(
    local: Mapping[str, Any], settings: MultiKueueSettings, *, gated: bool
) -> dict[str, Json]:
    """Return the body of the copy of a workload.

    Args:
        local: The whole workload.
        settings: Whose copy it is.
        gated: Whether it must not preempt yet.
    """
    metadata = _copied_metadata(local["metadata"], settings.origin)
    metadata["labels"].pop(JOB_UID, None)
    spec = dict(local["spec"])
    if gated:
        spec["preemptionGates"] = [{"name": MULTI_KUEUE}]
    return {
        "apiVersion": local.get("apiVersion", ""),
        "kind": "Workload",
        "metadata": metadata,
        "spec": spec,
    }


def _copied_metadata(metadata: Mapping[str, Any], origin: str) -> dict[str, Json]:
    annotations = {k: v for k, v in (metadata.get("annotations") or {}).items() if k != _APPLIED}
    return {
        "name": metadata["name"],
        "namespace": metadata.get("namespace", ""),
        "labels": {**(metadata.get("labels") or {}), ORIGIN: origin},
        **({"annotations": annotations} if annotations else {}),
    }


def copied_job(
    local: Mapping[str, Any], manager: JobManager, workload: str, settings: MultiKueueSettings
) -> dict[str, Json]:
    """Return the body of the copy of a job, which names the copy of its workload.

    Args:
        local: The whole job.
        manager: The field that says who runs it, which the copy leaves to the worker.
        workload: The name of the workload.
        settings: Whose copy it is.
    """
    metadata = _copied_metadata(local["metadata"], settings.origin)
    draft = Draft(
        {
            "apiVersion": local.get("apiVersion", ""),
            "kind": local.get("kind", ""),
            "metadata": metadata,
            "spec": local.get("spec") or {},
        }
    )
    if not manager.holds:
        draft.remove(manager.path)
    if local.get("kind") == "Job":
        for path in (("spec", "selector"), ("spec", "manualSelector")):
            draft.remove(path)
        if settings.clears_ttl:
            # A copy that is gone before its end was seen here would be made, and run, again.
            draft.remove(("spec", "ttlSecondsAfterFinished"))
        for label in OF_JOBS:
            draft.remove(("spec", "template", "metadata", "labels", label))
    if local.get("kind") == "TrainJob":
        _drop_patches(draft)
    body: dict[str, Json] = draft.object
    _name_workload(body["metadata"], workload, settings)
    if _parent_of(local) is not None and local["metadata"].get("uid"):
        notes = body["metadata"].get("annotations") or {}
        body["metadata"]["annotations"] = {**notes, ORIGIN_UID: local["metadata"]["uid"]}
    return body


def _parent_of(job: Mapping[str, Any]) -> ParentKind[Any] | None:
    group, _, _ = str(job.get("apiVersion", "")).rpartition("/")
    return find_parent(group, str(job.get("kind", "")))


def _drop_patches(draft: Draft) -> None:
    """Drop the assignment of here from a TrainJob: its worker writes its own."""
    given = draft.get(PATCHES)
    if not isinstance(given, list):
        return
    kept = [p for p in given if not isinstance(p, Mapping) or p.get("manager") != MANAGER]
    if not kept:
        draft.remove(PATCHES)
    elif len(kept) != len(given):
        draft.set(PATCHES, kept)


def _name_workload(metadata: dict[str, Json], workload: str, settings: MultiKueueSettings) -> None:
    """Write the name of the workload where the worker looks for it."""
    part = "annotations" if settings.annotates or not fits_label(workload) else "labels"
    metadata[part] = {**(metadata.get(part) or {}), PREBUILT_WORKLOAD: workload}


class StatusBack(NamedTuple):
    """What a job here gets from its copy.

    Attributes:
        status: The status to write; None to leave it.
        deferred: Whether it has to wait until the job is unsuspended.
        forwarded: Merge patch of the copy, whose job has changed; None for none.
    """

    status: Json = None
    deferred: bool = False
    forwarded: Json = None


def status_back(
    local: Mapping[str, Any],
    copy: Mapping[str, Any],
    workload: str,
    settings: MultiKueueSettings,
) -> StatusBack:
    """Return what a job gets from its copy.

    A batch Job that is suspended cannot have pods: its spec could not be changed any more. So
    it waits, unless its copy is suspended too or has ended.

    Args:
        local: The whole job here.
        copy: The whole job on the worker.
        workload: The name of the workload.
        settings: How jobs are sent.
    """
    status = _kept_gated(local, copy.get("status") or {})
    if local.get("kind") == "Job":
        suspended, runs = _suspended(local), not _suspended(copy)
        if suspended and runs and not _has_ended(status):
            return StatusBack(deferred=True)
    # The status of a StatefulSet or the like is written here, too, of the pods that are gated here.
    same = _parent_of(local) is not None or status == (local.get("status") or {})
    changed = None if same else status
    served = _served(local, copy) if settings.syncs_specs else None
    resized = _replicated(local, copy) or _resized(local, copy, workload, settings)
    return StatusBack(changed, forwarded=served or resized)


def without_report(job: Mapping[str, Any]) -> Json:
    """Return the status of a job whose worker is gone: none of its pods runs any more.

    A batch Job keeps how many pods have ended, which must not become fewer.

    Args:
        job: The whole job here.
    """
    status = job.get("status") or {}
    if job.get("kind") != "Job":
        return None
    return {**status, **{name: 0 for name in ("active", "ready", "terminating") if name in status}}


def _kept_gated(local: Mapping[str, Any], status: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the status of a pod; one that has no node there stays gated in the eyes of here.

    With an unschedulable pod here, an autoscaler would add nodes to this cluster.
    """
    mine = _scheduled(local.get("status") or {})
    its = _scheduled(status)
    gated = bool((local.get("spec") or {}).get("schedulingGates"))
    if local.get("kind") != "Pod" or not gated or mine is None or its is None:
        return status
    if its.get("status") == "True":
        return status
    conditions = [mine if each is its else each for each in status["conditions"]]
    return {**status, "conditions": conditions}


def _scheduled(status: Mapping[str, Any]) -> Mapping[str, Any] | None:
    conditions = status.get("conditions") or ()
    return next((each for each in conditions if each.get("type") == "PodScheduled"), None)


def _replicated(local: Mapping[str, Any], copy: Mapping[str, Any]) -> Json:
    """Return the patch that gives the copy of a StatefulSet or the like as many replicas."""
    mine, its = ((job.get("spec") or {}).get("replicas") for job in (local, copy))
    changed = _parent_of(local) is not None and mine is not None and mine != its
    return {"spec": {"replicas": mine}} if changed else None


def _suspended(job: Mapping[str, Any]) -> bool:
    return bool((job.get("spec") or {}).get("suspend"))


def _has_ended(status: Mapping[str, Any]) -> bool:
    return any(
        each.get("type") in {"Complete", "Failed"} and each.get("status") == "True"
        for each in status.get("conditions") or ()
    )


def _served(local: Mapping[str, Any], copy: Mapping[str, Any]) -> Json:
    """Return the patch that has a service on a worker serve what the one here says."""
    mine, its = ((job.get("spec") or {}).get("serveConfigV2") for job in (local, copy))
    changed = local.get("kind") == "RayService" and mine != its
    return {"spec": {"serveConfigV2": mine}} if changed else None


def _resized(
    local: Mapping[str, Any],
    copy: Mapping[str, Any],
    workload: str,
    settings: MultiKueueSettings,
) -> Json:
    """Return the patch that gives the copy of an elastic Job the size and slice of the Job."""
    annotations = local["metadata"].get("annotations") or {}
    read = _SIZES.get(str(local.get("kind")))
    if not settings.elastic or annotations.get(ELASTIC_JOB) != "true" or read is None:
        return None
    before, after, spec = read(local.get("spec") or {}, copy.get("spec") or {})
    shrinks = any(after.get(name, size) < size for name, size in before.items())
    if workload == _named_workload(copy["metadata"]) and not shrinks:
        return None  # the slice of the new size has not been admitted yet
    metadata: dict[str, Json] = {}
    _name_workload(metadata, workload, settings)
    return {"metadata": metadata, **({"spec": spec} if spec else {})}


class _Sizes(NamedTuple):
    """The sizes of a job that may grow.

    Attributes:
        before: Of the copy, by name.
        after: Of the job here.
        spec: Merge patch of the spec of the copy.
    """

    before: Mapping[str, int]
    after: Mapping[str, int]
    spec: Json


def _job_sizes(local: Mapping[str, Any], copy: Mapping[str, Any]) -> _Sizes:
    before, after = (_whole({"pods": spec.get("parallelism")}) for spec in (copy, local))
    return _Sizes(before, after, {"parallelism": after["pods"]} if after else None)


def _ray_sizes(local: Mapping[str, Any], copy: Mapping[str, Any]) -> _Sizes:
    mine, its = ({g.get("groupName"): g for g in _groups(spec)} for spec in (local, copy))
    sizes = [
        _whole(
            {
                f"{name}/{field}": group.get(field)
                for name, group in groups.items()
                for field in _SIZES_OF_GROUPS
            }
        )
        for groups in (its, mine)
    ]
    resized = [
        {**group, **{f: mine[name][f] for f in _SIZES_OF_GROUPS if f in mine[name]}}
        if (name := group.get("groupName")) in mine
        else group
        for group in _groups(copy)
    ]
    spec = None if resized == _groups(copy) else {"workerGroupSpecs": resized}
    return _Sizes(sizes[0], sizes[1], spec)


def _groups(spec: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [each for each in spec.get("workerGroupSpecs") or () if isinstance(each, Mapping)]


def _whole(sizes: Mapping[str, Any]) -> dict[str, int]:
    return {name: size for name, size in sizes.items() if isinstance(size, int)}


_SIZES_OF_GROUPS: Final = ("replicas", "numOfHosts")
_SIZES: Final = {"Job": _job_sizes, "RayCluster": _ray_sizes}
"""How the sizes of a kind are read, and written to the copy."""


def _named_workload(metadata: Mapping[str, Any]) -> str:
    for part in ("annotations", "labels"):
        name = (metadata.get(part) or {}).get(PREBUILT_WORKLOAD)
        if name:
            return str(name)
    return ""
