"""Pods that run beside the queue, cut down to what they take of their nodes: there are many."""

from sys import intern
from typing import TypeVar

import msgspec

from policyd.api.meta import ObjectMeta
from policyd.api.pods import PodSpec
from policyd.controller.watch.pod_places import workload_keys
from policyd.jobs.base import JobObject
from policyd.jobs.places import waits_for_place
from policyd.jobs.pods import QueuedPod, QueuedPodStatus
from policyd.jobs.rules.submission import IDENTIFIERS, fits_label
from policyd.jobs.topology import asks_for_topology

MOST_ALIKE = 10_000
"""Specifications that are remembered, so that pods that are alike share one."""


J = TypeVar("J", bound=JobObject)


def without_annotated_names(obj: J) -> J:
    """Leave out annotations that name a group or a workload, as without their feature gate.

    Names that no label has room for are in annotations all the same.
    """
    annotations = obj.metadata.annotations
    unread = {name for name in IDENTIFIERS if fits_label(annotations.get(name, ""))}
    if unread.isdisjoint(annotations):
        return obj
    kept = {name: value for name, value in annotations.items() if name not in unread}
    metadata = msgspec.structs.replace(obj.metadata, annotations=kept)
    return msgspec.structs.replace(obj, metadata=metadata)


class Trimmer:
    """Cuts pods down, and lets those share what is the same of them."""

    def __init__(self) -> None:
        self._specs: dict[bytes, PodSpec] = {}

    def trimmed(self, pod: QueuedPod) -> QueuedPod:
        """Return what is to be kept of a pod: all of it, if a topology places it or may yet."""
        annotations = pod.metadata.annotations
        if workload_keys(pod) or waits_for_place(pod) or asks_for_topology(annotations):
            return pod
        metadata = pod.metadata
        kept = ObjectMeta(
            name=metadata.name,
            namespace=intern(metadata.namespace),
            uid=metadata.uid,
            resource_version=metadata.resource_version,
            deletion_timestamp=metadata.deletion_timestamp,
        )
        return QueuedPod(kept, self._shared(pod.spec), QueuedPodStatus(intern(pod.status.phase)))

    def _shared(self, spec: PodSpec) -> PodSpec:
        """Return a specification with the parts of others that are alike but for the node."""
        bare = PodSpec(
            containers=spec.containers,
            init_containers=spec.init_containers,
            overhead=spec.overhead,
            resources=spec.resources,
            node_selector=spec.node_selector,
        )
        content = msgspec.json.encode(bare)
        if len(self._specs) >= MOST_ALIKE:
            self._specs.clear()
        known = self._specs.setdefault(content, bare)
        return msgspec.structs.replace(known, node_name=intern(spec.node_name))
