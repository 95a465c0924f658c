"""Pods that may use resources of queues, trimmed to that: there are many, and most use none."""

from collections.abc import Mapping, Set
from dataclasses import replace
from math import inf
from sys import intern

import msgspec

from policyd.api.configuration.kinds import ResourcesConfiguration
from policyd.api.gpus import NUM_DEVICES, PARTS, asks_for_part
from policyd.api.kueue.names import MANAGED, POD_SET, QUEUE_NAME
from policyd.api.meta import ObjectMeta, OwnerReference, Wire
from policyd.api.pods import PodSpec, PodTemplate
from policyd.controller.watch.mirror import Mirror
from policyd.jobs.base import controller_of
from policyd.jobs.pods import NOT_ENDED, PodClaimStatus
from policyd.jobs.requests import RequestRules
from policyd.kube.client import Reader
from policyd.kube.pace import Pace
from policyd.kube.resources import PODS
from policyd.workload.usage_book import usage_of

LEAVING_SECONDS = 60.0
"""A pod that is deleted, and may run on for longer than this, still counts: the user who deletes it
chooses how long, and its replacement, or the next job, runs by then."""
_NATIVE = "kubernetes.io/"
CLAIMS = "resourceclaims"
"""Stands for the claims of a pod whose devices are not counted for the pod: those that it shares
with others, and all where device classes are not mapped to resources."""


class RunningPodStatus(Wire, frozen=True):
    """How far a pod has come, and its claims."""

    phase: str = "Pending"
    resource_claim_statuses: tuple[PodClaimStatus, ...] = ()


class RunningPod(Wire, frozen=True):
    """A pod, with its requests that count against quota."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: RunningPodStatus = RunningPodStatus()
    amounts: dict[str, int] | None = {}
    """Computed here; not sent by the API server. None if other objects decide about it: the pod
    then keeps what it requests."""
    queues: bool = False
    """Whether it names a queue itself, or belongs to an object that does. Computed here."""

    @property
    def takes(self) -> bool:
        """Whether it takes anything that counts."""
        return self.amounts is None or bool(self.amounts)

    def counts(self, now: float) -> bool:
        """Tell whether it runs, or may be sent to a node, and takes anything."""
        goes = self.stays(now) < LEAVING_SECONDS
        return self.takes and not (self.spec.scheduling_gates or goes)

    def stays(self, now: float) -> float:
        """Return how many seconds it may run on: without end unless it is deleted."""
        deleted = self.metadata.deletion_timestamp
        return inf if deleted is None else deleted.timestamp() - now

    @property
    def claims(self) -> dict[str, str]:
        """The names of its claims, by those that it gives them. Only Kubernetes writes a status."""
        made = {each.name: each.resource_claim_name for each in self.status.resource_claim_statuses}
        named = {
            each.name: each.resource_claim_name or made.get(each.name, "")
            for each in self.spec.resource_claims
        }
        return {name: claim for name, claim in named.items() if claim}

    def amounts_by(self, rules: RequestRules, counted: Set[str] = frozenset()) -> dict[str, int]:
        """Return the requests that count against quota, in the units of admission.

        Args:
            rules: Those of the pod's namespace, which decide if the amounts were not computed.
            counted: The names of claims that are counted for themselves.
        """
        if self.amounts is not None:
            return self.amounts
        # The API server has set its overhead and the defaults of its namespace.
        rules = replace(rules, limits={}, overheads={})
        own = self.claims
        claims = tuple(
            each for each in self.spec.resource_claims if own.get(each.name) not in counted
        )
        spec = msgspec.structs.replace(self.spec, resource_claims=claims)
        return _amounts(PodTemplate(self.metadata, spec), rules, queues=self.queues)


def is_device(resource: str) -> bool:
    """Tell whether a resource is something that nodes have few of, such as GPUs."""
    return "/" in resource and not resource.startswith(_NATIVE)


def open_running_pods(
    reader: Reader,
    pace: Pace,
    *,
    resources: ResourcesConfiguration | None,
    everything: bool,
    devices: bool,
) -> Mirror[RunningPod]:
    """Return a mirror of pods that have not ended.

    Args:
        reader: The API server.
        pace: Time.
        resources: The requests that count against quota, and their names there.
        everything: Whether all pods queue; if not, of those in no queue only devices matter.
        devices: Whether devices of claims are counted.
    """
    rules = RequestRules(resources=resources or ResourcesConfiguration())

    def trim(pod: RunningPod) -> RunningPod:
        queues = everything or bool(pod.metadata.labels.keys() & {QUEUE_NAME, MANAGED, POD_SET})
        parts = rules.resources.gpu_fractions and asks_for_part(pod.metadata.annotations)
        if parts or (devices and _may_have_devices(pod.spec)):
            return _trimmed(pod, None, queues=queues)
        template = PodTemplate(pod.metadata, pod.spec)
        return _trimmed(pod, _amounts(template, rules, queues=queues), queues=queues)

    return Mirror(reader, PODS, into=RunningPod, pace=pace, trim=trim, field_selector=NOT_ENDED)


def _amounts(pod: PodTemplate, rules: RequestRules, *, queues: bool) -> dict[str, int]:
    requests, claims = usage_of(pod, rules)
    amounts = {
        intern(name): amount
        for name, amount in requests.items()
        if amount and (queues or is_device(name))
    }
    if queues and claims:
        amounts[CLAIMS] = claims
    return amounts


def _may_have_devices(spec: PodSpec) -> bool:
    """Tell whether a pod has claims, or extended resources, which device classes may back."""
    stated = (each.resources for each in (*spec.init_containers, *spec.containers))
    return bool(spec.resource_claims) or any(
        is_device(name) for each in stated for name in (*each.limits, *each.requests)
    )


def _trimmed(pod: RunningPod, amounts: dict[str, int] | None, *, queues: bool) -> RunningPod:
    metadata = pod.metadata
    takes = amounts is None or bool(amounts)
    kept = ObjectMeta(
        name=metadata.name,
        namespace=intern(metadata.namespace),
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        annotations=_kept(metadata.annotations) if amounts is None else {},
        creation_timestamp=metadata.creation_timestamp if takes else None,
        deletion_timestamp=metadata.deletion_timestamp if takes else None,
        owner_references=_controllers(metadata) if takes else (),
    )
    spec = PodSpec(node_name=intern(pod.spec.node_name), scheduling_gates=pod.spec.scheduling_gates)
    if amounts is None:
        spec = msgspec.structs.replace(
            spec,
            containers=pod.spec.containers,
            init_containers=pod.spec.init_containers,
            overhead=pod.spec.overhead,
            resources=pod.spec.resources,
            resource_claims=pod.spec.resource_claims,
        )
    return msgspec.structs.replace(
        pod,
        metadata=kept,
        spec=spec if takes else _NOTHING,
        status=RunningPodStatus(
            intern(pod.status.phase),
            pod.status.resource_claim_statuses if spec.resource_claims else (),
        ),
        amounts=amounts,
        queues=queues,
    )


_NOTHING = PodSpec()


def _kept(annotations: Mapping[str, str]) -> dict[str, str]:
    return {name: annotations[name] for name in (*PARTS, NUM_DEVICES) if name in annotations}


def _controllers(metadata: ObjectMeta) -> tuple[OwnerReference, ...]:
    owner = controller_of(metadata)
    return () if owner is None else (owner,)
