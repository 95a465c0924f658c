"""The writes of an import: a Workload with quota for each job, and then the label of its queue.

A job is labelled last: the controller stops a job in a queue that has no Workload with quota. If
the command is stopped between two writes, the job runs on, and the next import continues.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from policyd.api.kueue import Admission, ClusterQueue, Workload, WorkloadStatus
from policyd.api.kueue.names import (
    ADMISSION_GATED_BY,
    ADMITTED,
    IMPORT_GATE,
    MANAGED,
    PRIORITY_CLASS,
    QUEUE_NAME,
    QUOTA_RESERVED,
    ROLE_HASH,
)
from policyd.api.meta import Condition, Json, timestamp
from policyd.cli.importing.planning import PlannedImport
from policyd.cli.importing.reading import Candidate
from policyd.errors import PolicydError
from policyd.jobs.base import JobKind
from policyd.jobs.copied import CopiedKeys, DifferentMetadataError
from policyd.jobs.lifecycle import has_quota
from policyd.jobs.pod_groups import pod_template
from policyd.jobs.pods import QueuedPod, has_ended, is_deleted, role_hash
from policyd.jobs.workload import body_of, equivalent
from policyd.kube.client import Client, PartialObject
from policyd.kube.errors import AlreadyExistsError, ApiError, ConflictError, NotFoundError
from policyd.kube.resources import PODS, WORKLOADS
from policyd.patch.draft import Draft
from policyd.workload.lifecycle import required_checks, sync_checks
from policyd.workload.transitions import set_condition, with_status

FIELD_MANAGER: Final = "policyd-import"
IMPORTED: Final = "Imported"
"""The reason of the conditions of a Workload that was imported."""
_TRIES: Final = 5
"""Times that a status is written again which has changed meanwhile."""


class NotImportedError(PolicydError):
    """A job cannot be imported, as it is now."""


async def import_job(
    client: Client, planned: PlannedImport, queue: ClusterQueue, *, now: float
) -> None:
    """Give a job its quota, and its queue.

    Args:
        client: The API server.
        planned: The job, with its Workload.
        queue: Its ClusterQueue.
        now: Seconds since the epoch.

    Raises:
        NotImportedError: If the job has changed since it was planned.
        ApiError: If the API server refuses, or does not answer. The job runs on as it did.
    """
    candidate, wanted = planned.candidate, planned.workload
    assert wanted is not None, "what is left is not imported"
    objects = await _objects(client, candidate)
    workload = planned.exists
    if workload is None:
        workload = await _create(client, planned, wanted, objects)
    labelled = [each for each in objects if _labels(each).get(QUEUE_NAME)]
    try:
        await _bring_in(client, planned, workload, queue, now=now)
        for each in objects:
            if each not in labelled:
                await _label(client, candidate, each)
                labelled.append(each)
    except ApiError as error:
        # Pods of a group that have their labels need their quota; no answer may be a yes.
        if error.code and not labelled:
            await _take_back(client, workload)
        if not isinstance(error, ConflictError | NotFoundError):
            raise
        message = f"it changed meanwhile: {error}"
        raise NotImportedError(message, hint="run the command again") from error


async def _bring_in(
    client: Client,
    planned: PlannedImport,
    workload: Workload,
    queue: ClusterQueue,
    *,
    now: float,
) -> None:
    """Give a Workload its quota, and take its gate away."""
    if not has_quota(workload):
        assert planned.workload is not None, "what is left is not imported"
        workload = await _admit(client, workload, planned.workload, queue, now=now)
    if workload.metadata.annotations.get(ADMISSION_GATED_BY) == IMPORT_GATE:
        await _open(client, workload)


def _labels(obj: Mapping[str, Any]) -> Mapping[str, str]:
    return obj["metadata"].get("labels") or {}


async def _objects(client: Client, candidate: Candidate) -> list[dict[str, Any]]:
    """Return the job, or the pods, as they are now.

    Raises:
        NotImportedError: If they are not those any more that were planned.
    """
    group, namespace = candidate.group, candidate.metadata.namespace
    names = [(candidate.metadata.name, candidate.metadata.uid)]
    if group is not None:
        names = [(pod.metadata.name, pod.metadata.uid) for pod in group.pods]
    found = []
    for name, uid in names:
        try:
            obj = await client.get(
                candidate.resource, name, namespace=namespace, into=dict[str, Any]
            )
        except NotFoundError as error:
            raise NotImportedError("it has gone meanwhile") from error
        if obj["metadata"]["uid"] != uid:
            raise NotImportedError("it was deleted meanwhile, and another object has its name")
        found.append(obj)
    if group is None:
        _check_job(candidate, found[0])
    elif any(_is_over(each) for each in found):
        raise NotImportedError("it has ended meanwhile")
    return found


def _is_over(obj: Mapping[str, Json]) -> bool:
    pod = msgspec.convert(obj, QueuedPod)
    return has_ended(pod) or is_deleted(pod)


def _check_job(candidate: Candidate, obj: Mapping[str, Json]) -> None:
    kind: JobKind[Any] | None = candidate.job_kind
    assert kind is not None, "a candidate is a pod or a job of a kind"
    job = msgspec.convert(obj, kind.type)
    if kind.outcome(job) is not None or job.metadata.deletion_timestamp is not None:
        raise NotImportedError("it has ended meanwhile")
    if kind.suspended(job):
        raise NotImportedError("it was suspended meanwhile: the label of a queue can be added")
    if kind.basis(job) is None and kind.pod_sets(job) != kind.pod_sets(candidate.job):
        raise NotImportedError("its pods have changed meanwhile", hint="run the command again")


async def _create(
    client: Client, planned: PlannedImport, wanted: Workload, objects: list[dict[str, Any]]
) -> Workload:
    """Create the Workload, without quota, and so that the controller leaves it alone."""
    candidate = planned.candidate
    metadata = wanted.metadata
    annotations = {**metadata.annotations, ADMISSION_GATED_BY: IMPORT_GATE}
    gated = replace(wanted, metadata=replace(metadata, annotations=annotations))
    gated = replace(gated, status=WorkloadStatus())
    try:
        copied = CopiedKeys(gates=False).of(*_metadata(candidate))
    except DifferentMetadataError as error:
        raise NotImportedError(str(error)) from error
    body = body_of(gated, _templates(candidate, wanted, objects), copied)
    body.pop("status", None)
    try:
        return await client.create(
            WORKLOADS, body, into=Workload, namespace=metadata.namespace,
            field_manager=FIELD_MANAGER,
        )  # fmt: skip
    except AlreadyExistsError as error:
        found = await client.get(
            WORKLOADS, metadata.name, namespace=metadata.namespace, into=Workload
        )
        uids = {each.uid for each in found.metadata.owner_references}
        if candidate.metadata.uid not in uids or not equivalent(wanted.spec.pod_sets, found):
            raise NotImportedError(
                f"a Workload `{metadata.name}` exists that is not of this job"
            ) from error
        return found


def _metadata(candidate: Candidate) -> list[Any]:
    if candidate.group is not None:
        return [pod.metadata for pod in candidate.group.pods]
    return [candidate.metadata]


def _templates(candidate: Candidate, wanted: Workload, objects: list[dict[str, Any]]) -> list[Json]:
    """Return the whole templates of the pod sets."""
    if candidate.group is not None:
        by_name = {each["metadata"]["name"]: each for each in objects}
        names = candidate.group.examples()
        templates = [pod_template(by_name[name]) for name in names]
        for each in templates:
            each["spec"] = {k: v for k, v in each["spec"].items() if k != "nodeName"}
        return templates
    kind = candidate.job_kind
    assert kind is not None, "a candidate is a pod or a job of a kind"
    draft = Draft(objects[0])
    given = [draft.get(path) for path in kind.templates(candidate.job)]
    assert len(given) == len(wanted.spec.pod_sets), "each pod set has a template"
    return list(kind.whole(candidate.job, given))


async def _admit(
    client: Client, workload: Workload, wanted: Workload, queue: ClusterQueue, *, now: float
) -> Workload:
    """Write the quota of a Workload into its status."""
    admission = wanted.status.admission
    assert admission is not None, "what is planned has quota"
    for left in reversed(range(_TRIES)):
        status = _admitted(workload, wanted, admission, queue, now=now)
        body = {
            "metadata": {"resourceVersion": workload.metadata.resource_version},
            "status": msgspec.to_builtins(status),
        }
        try:
            return await client.patch(
                WORKLOADS,
                workload.metadata.name,
                body,
                into=Workload,
                namespace=workload.metadata.namespace,
                subresource="status",
                field_manager=FIELD_MANAGER,
            )
        except ConflictError:
            if not left:
                raise
            workload = await client.get(
                WORKLOADS,
                workload.metadata.name,
                namespace=workload.metadata.namespace,
                into=Workload,
            )
            if has_quota(workload):
                return workload
    raise AssertionError("the last try returns or raises")


def _admitted(
    workload: Workload,
    wanted: Workload,
    admission: Admission,
    queue: ClusterQueue,
    *,
    now: float,
) -> WorkloadStatus:
    status = replace(
        workload.status,
        admission=admission,
        reclaimable_pods=wanted.status.reclaimable_pods,
        resource_requests=(),
    )
    for kind in (QUOTA_RESERVED, ADMITTED):
        message = f"Imported into ClusterQueue {admission.cluster_queue}"
        condition = Condition(kind, "True", IMPORTED, message)
        status = set_condition(with_status(workload, status), condition, now=now)
    names = required_checks(with_status(workload, status), queue)
    status = sync_checks(status, names, now=now)
    passed = tuple(
        replace(
            each,
            state="Ready",
            message="The job ran before it was imported",
            last_transition_time=timestamp(now),
        )
        for each in status.admission_checks
    )
    return replace(status, admission_checks=passed)


async def _open(client: Client, workload: Workload) -> None:
    """Take the gate from a Workload that has its quota."""
    await client.patch(
        WORKLOADS,
        workload.metadata.name,
        {"metadata": {"annotations": {ADMISSION_GATED_BY: None}}},
        into=PartialObject,
        namespace=workload.metadata.namespace,
        field_manager=FIELD_MANAGER,
    )


async def _label(client: Client, candidate: Candidate, obj: Mapping[str, Any]) -> None:
    """Write the queue into a job, or a pod."""
    namespace, name = candidate.metadata.namespace, obj["metadata"]["name"]
    for left in reversed(range(_TRIES)):
        try:
            await client.patch(
                candidate.resource,
                name,
                {"metadata": _marks(candidate, obj)},
                into=PartialObject,
                namespace=namespace,
                field_manager=FIELD_MANAGER,
            )
        except ConflictError:
            uid = obj["metadata"]["uid"]
            if not left:
                raise
            obj = await client.get(
                candidate.resource, name, namespace=namespace, into=dict[str, Any]
            )
            if obj["metadata"]["uid"] != uid:
                raise
        else:
            return


def _marks(candidate: Candidate, obj: Mapping[str, Any]) -> dict[str, Json]:
    """Return the metadata by which an object is in its queue, as the webhooks write it."""
    rule = candidate.rule
    assert rule is not None, "a rule names the queue"
    labels = {QUEUE_NAME: candidate.queue}
    if rule.priority_class:
        labels[PRIORITY_CLASS] = rule.priority_class
    metadata: dict[str, Json] = {"uid": obj["metadata"]["uid"], "labels": labels}
    if candidate.resource != PODS:
        return metadata
    labels[MANAGED] = "true"
    kept = obj["metadata"].get("finalizers") or []
    metadata["finalizers"] = [*kept, *([] if MANAGED in kept else [MANAGED])]
    metadata["resourceVersion"] = obj["metadata"]["resourceVersion"]
    annotations = obj["metadata"].get("annotations") or {}
    if ROLE_HASH not in annotations:
        metadata["annotations"] = {ROLE_HASH: role_hash(obj["spec"], annotations)}
    return metadata


async def _take_back(client: Client, workload: Workload) -> None:
    """Delete a Workload whose job could not be labelled: it must not hold quota."""
    name, namespace = workload.metadata.name, workload.metadata.namespace
    with suppress(ApiError):  # the next import finds it
        await client.delete(WORKLOADS, name, namespace=namespace, uid=workload.metadata.uid)
        body = {"metadata": {"uid": workload.metadata.uid, "finalizers": None}}
        await client.patch(WORKLOADS, name, body, into=PartialObject, namespace=namespace)
