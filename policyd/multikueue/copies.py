"""The copies on a worker: of a workload, and of its job; and the status that comes back."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from policyd.api.kueue.names import JOB_UID, MULTI_KUEUE, PREBUILT_WORKLOAD
from policyd.api.meta import Json
from policyd.jobs.injection import OF_JOBS
from policyd.jobs.managers import MANAGERS, JobManager
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
    given = Draft(dict(job)).get(manager.path) or ""
    if given == MULTI_KUEUE:
        return ""
    path = ".".join(map(str, manager.path))
    return f'Expecting {path} to be "{MULTI_KUEUE}" not "{given}"'


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
    draft.remove(manager.path)
    if local.get("kind") == "Job":
        for path in (("spec", "selector"), ("spec", "manualSelector")):
            draft.remove(path)
        for label in OF_JOBS:
            draft.remove(("spec", "template", "metadata", "labels", label))
    body: dict[str, Json] = draft.object
    _name_workload(body["metadata"], workload, settings)
    return body


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
    status = copy.get("status") or {}
    if local.get("kind") == "Job":
        suspended, runs = _suspended(local), not _suspended(copy)
        if suspended and runs and not _has_ended(status):
            return StatusBack(deferred=True)
    changed = status if status != (local.get("status") or {}) else None
    served = _served(local, copy) if settings.syncs_specs else None
    return StatusBack(changed, forwarded=served or _resized(local, copy, workload, settings))


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
    elastic = annotations.get("kueue.x-k8s.io/elastic-job") == "true"
    if not settings.elastic or not elastic or local.get("kind") != "Job":
        return None
    parallelism, its = ((job.get("spec") or {}).get("parallelism") for job in (local, copy))
    shrinks = parallelism is not None and its is not None and parallelism < its
    if workload == _named_workload(copy["metadata"]) and not shrinks:
        return None  # the slice of the new size has not been admitted yet
    metadata: dict[str, Json] = {}
    _name_workload(metadata, workload, settings)
    spec = {"spec": {"parallelism": parallelism}} if parallelism is not None else {}
    return {"metadata": metadata, **spec}


def _named_workload(metadata: Mapping[str, Any]) -> str:
    for part in ("annotations", "labels"):
        name = (metadata.get(part) or {}).get(PREBUILT_WORKLOAD)
        if name:
            return str(name)
    return ""
