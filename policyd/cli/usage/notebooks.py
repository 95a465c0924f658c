"""Stops idle notebooks, for `policyd usage idle --stop`: an Event first, then the stop."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from policyd.alloc.value import Value
from policyd.api.meta import ObjectMeta, Wire, rfc3339
from policyd.api.pod_requests import pod_requests
from policyd.api.pods import PodSpec
from policyd.api.quantity import QuantityError
from policyd.clock import SystemClock
from policyd.jobs.base import controller_of
from policyd.kube.client import Client, PartialObject, Reader
from policyd.kube.errors import ApiError, ConflictError, NotFoundError
from policyd.kube.resources import EVENTS, PODS, Resource
from policyd.optimize.devices import gpus_asked
from policyd.usage.idle import PodUse
from policyd.usage.notebooks import (
    IDLE_AFTER,
    NOTEBOOK,
    STOPPED,
    Notebook,
    NotebookVerdict,
    judge,
    reversal,
    stop_patch,
)

COMPONENT: Final = "policyd-idle-notebooks"
REASON: Final = "StoppedIdle"
MOST_STOPPED: Final = 50
"""Notebooks at a time: if more are idle, rather the samples are wrong."""

_KINDS: Final = {
    each.kind: each
    for each in (
        Resource("apps", "v1", "statefulsets", "StatefulSet"),
        Resource("apps", "v1", "deployments", "Deployment"),
        Resource("apps", "v1", "replicasets", "ReplicaSet"),
        Resource("kubeflow.org", "v1", "notebooks", "Notebook"),
    )
}


class StopResult(NamedTuple):
    """What became of a notebook: whether it was stopped, and why not in a sentence."""

    verdict: NotebookVerdict
    stopped: bool
    failure: str = ""


class NotebookLine(Value, frozen=True, rename="camel"):
    """A notebook, and what became of it, in words."""

    team: str
    notebook: str
    done: str
    why: str


class _Pod(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()


class _Scaled(Wire, frozen=True):
    replicas: int = 1


class _Object(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _Scaled = _Scaled()


class _Found(NamedTuple):
    resource: Resource
    metadata: ObjectMeta
    verdict: NotebookVerdict


async def stop_idle(
    client: Client, pods: Sequence[PodUse], *, end: float, dry_run: bool
) -> list[StopResult]:
    """Stop notebooks that are idle for longer than a policy allows.

    Args:
        client: The API server.
        pods: The use of pods, up to `end` in seconds since the epoch.
        end: Up to when it is known.
        dry_run: Whether to say only what would be stopped.

    Raises:
        ApiError: If the API server refuses to read, or does not answer.
    """
    found = [
        each
        for use in pods
        if use.since is not None and (each := await _find(client, use, end)) is not None
    ]
    stopping = [each for each in found if each.verdict.stops]
    results = [StopResult(each.verdict, stopped=False) for each in found if not each.verdict.stops]
    too_many = len(stopping) > MOST_STOPPED
    for each in stopping:
        if dry_run or too_many:
            why = f"more than {MOST_STOPPED} at a time are not stopped" if too_many else ""
            results.append(StopResult(each.verdict, stopped=False, failure=why))
        else:
            results.append(await _stop(client, each))
    return results


async def _find(reader: Reader, use: PodUse, end: float) -> _Found | None:
    """Return the notebook that a pod belongs to; None if it belongs to none."""
    try:
        pod = await reader.get(PODS, use.pod, namespace=use.team, into=_Pod)
        resource, found = await _owner(reader, pod.metadata, use.team)
    except NotFoundError:
        return None
    if found is None or resource is None or not _is_notebook(resource, found):
        return None
    created = pod.metadata.creation_timestamp
    try:
        gpus = float(gpus_asked(pod_requests(pod.spec)))
    except QuantityError:
        return None
    notebook = Notebook(
        kind=resource.kind,
        namespace=use.team,
        name=found.metadata.name,
        replicas=1 if resource.kind == "Notebook" else found.spec.replicas,
        idle_after=found.metadata.annotations.get(IDLE_AFTER, ""),
        pod=use.pod,
        started_at=end if created is None else created.timestamp(),
        gpus=gpus,
    )
    return _Found(resource, found.metadata, judge(notebook, use, end=end))


async def _owner(
    reader: Reader, metadata: ObjectMeta, namespace: str
) -> tuple[Resource | None, _Object | None]:
    """Return the topmost owner of a kind that notebooks are made of."""
    resource, found = None, None
    while (owner := controller_of(metadata)) is not None and owner.kind in _KINDS:
        above = _KINDS[owner.kind]
        if owner.api_version != above.api_version:
            break
        read = await reader.get(above, owner.name, namespace=namespace, into=_Object)
        if read.metadata.uid != owner.uid:
            return None, None
        resource, found, metadata = above, read, read.metadata
    return resource, found


def _is_notebook(resource: Resource, found: _Object) -> bool:
    if resource.kind == "Notebook":
        return STOPPED not in found.metadata.annotations
    labelled = found.metadata.labels.get(NOTEBOOK) == "true"
    return labelled and resource.kind in {"StatefulSet", "Deployment"} and found.spec.replicas > 0


async def _stop(client: Client, found: _Found) -> StopResult:
    verdict, namespace, name = found.verdict, found.verdict.namespace, found.metadata.name
    now = SystemClock().now()
    kind = found.resource.kind
    try:
        # The record comes first: no pod is stopped without an event that explains it.
        await client.create(EVENTS, _event(found, now), namespace=namespace, into=PartialObject)
        await client.patch(
            found.resource,
            name,
            stop_patch(kind, found.metadata.resource_version, at=rfc3339(now)),
            namespace=namespace,
            subresource="" if kind == "Notebook" else "scale",
            into=PartialObject,
        )
    except ConflictError:
        return StopResult(verdict, stopped=False, failure="it has changed meanwhile")
    except ApiError as error:
        return StopResult(verdict, stopped=False, failure=str(error))
    return StopResult(verdict, stopped=True)


def _event(found: _Found, now: float) -> object:
    verdict, metadata = found.verdict, found.metadata
    since = rfc3339(verdict.since or now)
    message = f"stopped: {verdict.why}, since {since}; start it again: {reversal(verdict)}"
    at = rfc3339(now)
    return {
        "metadata": {
            "name": f"{metadata.name[:200]}.{int(now * 1e6):x}",
            "namespace": verdict.namespace,
        },
        "involvedObject": msgspec.to_builtins(
            found.resource.reference(msgspec.structs.replace(metadata, namespace=verdict.namespace))
        ),
        "type": "Normal",
        "reason": REASON,
        "message": message,
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }


def result_lines(results: Iterable[StopResult], *, dry_run: bool) -> tuple[NotebookLine, ...]:
    """Return what became of notebooks, in words."""
    lines = []
    for each in results:
        verdict = each.verdict
        done = "stopped" if each.stopped else "kept"
        if verdict.stops and not each.stopped:
            done = "would be stopped" if dry_run and not each.failure else "not stopped"
        lines.append(
            NotebookLine(
                team=verdict.namespace,
                notebook=verdict.notebook,
                done=done,
                why=each.failure or verdict.why,
            )
        )
    return tuple(lines)
