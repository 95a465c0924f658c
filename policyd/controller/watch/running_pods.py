"""Pods that may use resources of queues, trimmed to that: there are many, and most use none."""

from dataclasses import replace
from sys import intern

import msgspec

from policyd.api.configuration.kinds import ResourcesConfiguration
from policyd.api.kueue.names import MANAGED, POD_SET, QUEUE_NAME
from policyd.api.meta import ObjectMeta, OwnerReference, Wire
from policyd.api.pods import PodSpec
from policyd.controller.watch.claimed_devices import ClaimedDevices
from policyd.controller.watch.mirror import Mirror
from policyd.jobs.base import controller_of
from policyd.jobs.pods import NOT_ENDED, QueuedPodStatus
from policyd.jobs.requests import (
    InvalidRequestsError,
    RequestRules,
    UncountedDevicesError,
    requests_of,
)
from policyd.kube.client import Reader
from policyd.kube.pace import Pace
from policyd.kube.resources import PODS

LONGEST_GRACE_SECONDS = 900.0
"""A pod that is deleted, and may run on for longer than this, still counts."""
_NATIVE = "kubernetes.io/"
CLAIMS = "resourceclaims"
"""Stands for the claims of a pod whose devices are not counted for the pod: those that it shares
with others, and all where device classes are not mapped to resources."""


class RunningPod(Wire, frozen=True):
    """A pod, with its requests that count against quota."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: QueuedPodStatus = QueuedPodStatus()
    amounts: dict[str, int] = {}
    """Computed here; not sent by the API server."""
    queues: bool = False
    """Whether it names a queue itself, or belongs to an object that does. Computed here."""

    def counts(self, now: float) -> bool:
        """Tell whether it runs, or may be sent to a node, and takes anything."""
        deleted = self.metadata.deletion_timestamp
        goes = deleted is not None and deleted.timestamp() < now + LONGEST_GRACE_SECONDS
        return bool(self.amounts) and not (self.spec.scheduling_gates or goes)


def is_device(resource: str) -> bool:
    """Tell whether a resource is something that nodes have few of, such as GPUs."""
    return "/" in resource and not resource.startswith(_NATIVE)


def open_running_pods(
    reader: Reader,
    pace: Pace,
    *,
    resources: ResourcesConfiguration | None,
    everything: bool,
    devices: ClaimedDevices | None = None,
) -> Mirror[RunningPod]:
    """Return a mirror of pods that have not ended.

    Args:
        reader: The API server.
        pace: Time.
        resources: The requests that count against quota, and their names there.
        everything: Whether all pods queue; if not, of those in no queue only devices matter.
        devices: What counts devices of claims, if they are counted.
    """
    counted = resources or ResourcesConfiguration()

    def trim(pod: RunningPod) -> RunningPod:
        rules = RequestRules(
            resources=counted,
            devices=None if devices is None else devices.counter,
            namespace=pod.metadata.namespace,
        )
        return _trimmed(pod, rules, everything=everything)

    return Mirror(reader, PODS, into=RunningPod, pace=pace, trim=trim, field_selector=NOT_ENDED)


def _trimmed(pod: RunningPod, rules: RequestRules, *, everything: bool) -> RunningPod:
    metadata, labels = pod.metadata, pod.metadata.labels
    queues = everything or bool(labels.keys() & {QUEUE_NAME, MANAGED, POD_SET})
    requests, uncounted = _requests(pod.spec, rules)
    amounts = {
        intern(name): amount
        for name, amount in requests.items()
        if amount and (queues or is_device(name))
    }
    if queues and uncounted:
        amounts[CLAIMS] = uncounted
    kept = ObjectMeta(
        name=metadata.name,
        namespace=intern(metadata.namespace),
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        creation_timestamp=metadata.creation_timestamp if amounts else None,
        deletion_timestamp=metadata.deletion_timestamp if amounts else None,
        owner_references=_controllers(metadata) if amounts else (),
    )
    spec = PodSpec(node_name=intern(pod.spec.node_name), scheduling_gates=pod.spec.scheduling_gates)
    return msgspec.structs.replace(
        pod,
        metadata=kept,
        spec=spec if amounts else _NOTHING,
        status=QueuedPodStatus(intern(pod.status.phase)),
        amounts=amounts,
        queues=queues,
    )


def _requests(spec: PodSpec, rules: RequestRules) -> tuple[dict[str, int], int]:
    """Return the requests of a pod, and the number of its claims that they do not include.

    Those are claims that pods share, and all where devices cannot be counted.
    """
    claims = [
        each
        for each in spec.resource_claims
        if rules.devices is None or not each.resource_claim_template_name
    ]
    try:
        return requests_of(spec, rules), len(claims)
    except UncountedDevicesError:  # a template may be gone while its pods run
        return _requests(spec, replace(rules, devices=None))
    except InvalidRequestsError:
        return {}, len(claims)


_NOTHING = PodSpec()


def _controllers(metadata: ObjectMeta) -> tuple[OwnerReference, ...]:
    owner = controller_of(metadata)
    return () if owner is None else (owner,)
