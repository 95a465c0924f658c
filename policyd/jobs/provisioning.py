"""The requests to an autoscaler for a workload that has quota.

The name of a request tells which attempt it is, and the state of the check how many have failed.
So there is one request at most that an answer is taken from; all others have had their time.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from policyd.api.kueue import (
    AdmissionCheckState,
    PodSet,
    PodSetAssignment,
    ResourceFlavor,
    Workload,
)
from policyd.api.kueue.names import MANAGED
from policyd.api.kueue.provisioning import (
    MergePolicy,
    ProvisioningRequest,
    ProvisioningRequestConfig,
)
from policyd.api.meta import Json
from policyd.errors import PolicydError
from policyd.jobs.copied import FOR_PROVISIONING
from policyd.jobs.injection import FlavorMissingError, PodInjection, inject
from policyd.patch.draft import Draft

LONGEST_NAME = 247
HASH_LENGTH = 5


class InconsistentError(PolicydError):
    """A workload was given quota for other pod sets than it has."""


@dataclass(frozen=True, slots=True)
class WantedPodTemplate:
    """A PodTemplate to make, and the pod set whose pods are like it."""

    name: str
    body: Json
    count: int


@dataclass(frozen=True, slots=True)
class ProvisionedPodSet:
    """A pod set that needs nodes, and its assignment."""

    pod_set: PodSet
    assigned: PodSetAssignment

    @property
    def count(self) -> int:
        """How many pods it may have."""
        count = self.assigned.count
        return self.pod_set.count if count is None else count


def is_needed(workload: Workload, config: ProvisioningRequestConfig) -> bool:
    """Tell whether any pods of a workload need nodes that are asked for.

    Raises:
        InconsistentError: If their assignment is not known.
    """
    return any(True for _ in shares(workload, config))


def shares(workload: Workload, config: ProvisioningRequestConfig) -> Iterator[ProvisionedPodSet]:
    """Yield the pod sets of a workload that nodes are needed for.

    Raises:
        InconsistentError: At one whose assignment is not known.
    """
    admission = workload.status.admission
    given = () if admission is None else admission.pod_set_assignments
    by_name = {each.name: each for each in given}
    managed = frozenset(config.spec.managed_resources)
    for pod_set in workload.spec.pod_sets:
        if not pod_set.count or not _uses(pod_set, managed):
            continue
        if pod_set.name not in by_name:
            raise InconsistentError("inconsistent podSet assignments")
        share = ProvisionedPodSet(pod_set, by_name[pod_set.name])
        if share.count:
            yield share


def _uses(pod_set: PodSet, managed: frozenset[str]) -> bool:
    spec = pod_set.template.spec
    return not managed or any(
        managed & (each.resources.requests.keys() | each.resources.limits.keys())
        for each in (*spec.init_containers, *spec.containers)
    )


# Names.


def attempt_of(state: AdmissionCheckState) -> int:
    """Return which attempt it is now, from 1."""
    return (state.retry_count or 0) + 1


def request_name(workload: str, check: str, attempt: int) -> str:
    """Return the name of a ProvisioningRequest."""
    return _shortened(f"{workload}-{check}-{attempt}")


def template_name(request: str, pod_set: str) -> str:
    """Return the name of the PodTemplate of a pod set."""
    return _shortened(f"ppt-{request}-{pod_set}")


def _shortened(name: str) -> str:
    if len(name) <= LONGEST_NAME:
        return name
    digest = hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()
    return f"{name[:LONGEST_NAME]}-{digest[:HASH_LENGTH]}"


# The requests.


def has_parameters_of(
    request: ProvisioningRequest, workload: Workload, config: ProvisioningRequestConfig
) -> bool:
    """Tell whether a request still equals a check's parameters."""
    current, spec = request.spec, config.spec
    return (
        current.provisioning_class_name == spec.provisioning_class_name
        and current.parameters == _parameters(workload, config)
    )


def _parameters(workload: Workload, config: ProvisioningRequestConfig) -> dict[str, str]:
    own = {
        key.removeprefix(FOR_PROVISIONING): value
        for key, value in workload.metadata.annotations.items()
        if key.startswith(FOR_PROVISIONING)
    }
    return {**config.spec.parameters, **own}


def templates(
    name: str,
    workload: Workload,
    config: ProvisioningRequestConfig,
    *,
    stored: Mapping[str, Json],
    flavors: Mapping[str, ResourceFlavor],
) -> tuple[WantedPodTemplate, ...]:
    """Return the templates of the pods that nodes are asked for.

    Args:
        name: Of the request.
        workload: The workload, with quota.
        config: The check's parameters.
        stored: The workload as it is stored: its pod templates have more fields than are read.
        flavors: The existing ones, by name.

    Raises:
        InconsistentError: If the assignment of the pods is not known.
        FlavorMissingError: If an assigned flavor is not among `flavors`.
        StartError: If a template selects other nodes than those of its flavor.
    """
    raw = {each.get("name", "main"): each["template"] for each in stored["spec"]["podSets"]}
    policy = config.spec.pod_set_merge_policy
    merged: list[tuple[ProvisionedPodSet, int]] = []
    for share in shares(workload, config):
        mine = raw[share.pod_set.name]
        for at, (other, count) in enumerate(merged):
            alike = policy and _are_alike(raw[other.pod_set.name], mine, policy)
            if alike and other.assigned.flavors == share.assigned.flavors:
                merged[at] = (other, count + share.count)
                break
        else:
            merged.append((share, share.count))
    return tuple(
        WantedPodTemplate(
            name=template_name(name, share.pod_set.name),
            body=_placed(raw[share.pod_set.name], share, flavors),
            count=count,
        )
        for share, count in merged
    )


_REQUIREMENTS = ("resources", "nodeSelector", "tolerations", "affinity", "resourceClaims")


def _are_alike(left: Json, right: Json, policy: MergePolicy) -> bool:
    if policy == "IdenticalPodTemplates":
        return bool(left == right)
    return bool(_requirements(left["spec"]) == _requirements(right["spec"]))


def _requirements(spec: Json) -> Json:
    """Return the fields that decide where pods can run."""
    containers = (spec.get("containers") or (), spec.get("initContainers") or ())
    resources = [[each.get("resources") or {} for each in some] for some in containers]
    return [*resources, *(spec.get(name) or None for name in _REQUIREMENTS)]


def _placed(
    template: Json, share: ProvisionedPodSet, flavors: Mapping[str, ResourceFlavor]
) -> Json:
    """Return a template whose pods go to the nodes of their flavors, and request their quota."""
    given = PodInjection()
    for name in dict.fromkeys(share.assigned.flavors.values()):
        flavor = flavors.get(name)
        if flavor is None:
            raise FlavorMissingError(f"the flavor `{name}` is not found")
        given.node_selector.update(flavor.spec.node_labels)
        given.tolerations += flavor.spec.tolerations
    draft = Draft({"template": template})
    inject(draft, ("template",), given)
    for name in ("containers", "initContainers"):
        for at, container in enumerate(template["spec"].get(name) or ()):
            resources = container.get("resources") or {}
            for what, limit in (resources.get("limits") or {}).items():
                if what not in (resources.get("requests") or {}):
                    where = ("template", "spec", name, at, "resources", "requests", what)
                    draft.set(where, limit)
    return draft.object["template"]


def request_body(
    name: str,
    workload: Workload,
    config: ProvisioningRequestConfig,
    made: Sequence[WantedPodTemplate],
) -> Json:
    """Return the request for nodes for pods like those of some templates."""
    return {
        "metadata": {"name": name, "labels": {MANAGED: "true"}},
        "spec": {
            "provisioningClassName": config.spec.provisioning_class_name,
            "parameters": _parameters(workload, config),
            "podSets": [
                {"podTemplateRef": {"name": each.name}, "count": each.count} for each in made
            ],
        },
    }


def template_body(template: WantedPodTemplate) -> Json:
    """Return a PodTemplate."""
    metadata = {"name": template.name, "labels": {MANAGED: "true"}}
    return {"metadata": metadata, "template": template.body}
