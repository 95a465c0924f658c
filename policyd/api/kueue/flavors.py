"""The parts of a cluster that the queue uses: flavors, topologies, priorities, checks."""

from typing import Annotated, Final

import msgspec

from policyd.api.kueue.names import API_VERSION
from policyd.api.kueue.queues import SOME, Conditions
from policyd.api.meta import ObjectMeta, Wire
from policyd.api.names import LABEL
from policyd.api.pods import Taint, Toleration
from policyd.api.schema import (
    ATOMIC,
    REQUIRED,
    Int32,
    LabelKey,
    SubdomainName,
    at_most,
    limits,
    texts,
)

_KIND: Final = "[A-Za-z]([-A-Za-z0-9]*[A-Za-z0-9])?"


class ResourceFlavorSpec(Wire, frozen=True):
    """A kind of node: its labels and taints, and additional tolerations of its pods."""

    node_labels: Annotated[
        dict[str, str], msgspec.Meta(extra_json_schema={"maxProperties": 8}), ATOMIC
    ] = {}
    """Labels of the nodes; pods that get this flavor select them."""
    node_taints: Annotated[tuple[Taint, ...], at_most(8)] = ()
    """Taints of the nodes: workloads that do not tolerate them do not get this flavor."""
    tolerations: Annotated[tuple[Toleration, ...], at_most(8)] = ()
    """Additional tolerations of pods that get this flavor."""
    topology_name: SubdomainName = ""
    """The Topology of the nodes, where pods are placed by it."""


class ResourceFlavor(Wire, frozen=True):
    """A kind of node that quota is given for."""

    api_version: str = API_VERSION
    kind: str = "ResourceFlavor"
    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceFlavorSpec = ResourceFlavorSpec()


class TopologyLevel(Wire, frozen=True):
    """A level of the network, known by the node label that names a node's place in it."""

    node_label: Annotated[LabelKey, texts(316, shortest=1)]
    """The node label whose value is the domain, such as a rack."""


class TopologySpec(Wire, frozen=True):
    """Levels from the widest to the narrowest."""

    levels: Annotated[tuple[TopologyLevel, ...], at_most(16), SOME, REQUIRED] = ()
    """Node labels of the levels, from the widest domain to the narrowest."""


class Topology(Wire, frozen=True):
    """How the nodes of a flavor hang together."""

    api_version: str = API_VERSION
    kind: str = "Topology"
    metadata: ObjectMeta = ObjectMeta()
    spec: TopologySpec = TopologySpec()


class WorkloadPriorityClass(Wire, frozen=True):
    """A named priority in the queue; the pods' own priority is not touched."""

    value: Int32
    """The priority: the higher, the earlier in the queue."""
    api_version: str = API_VERSION
    kind: str = "WorkloadPriorityClass"
    metadata: ObjectMeta = ObjectMeta()
    description: Annotated[str, texts(2_048)] = ""
    """The users and purposes it is for."""


class ParametersReference(Wire, frozen=True):
    """Points at the object that parameterises a check."""

    api_group: Annotated[SubdomainName, limits(minLength=1), REQUIRED] = msgspec.field(
        default="", name="apiGroup"
    )
    """The group of its kind."""
    kind: Annotated[str, texts(63, shortest=1, pattern=_KIND), REQUIRED] = ""
    """Its kind, such as `ProvisioningRequestConfig`."""
    name: Annotated[str, texts(63, shortest=1, pattern=LABEL), REQUIRED] = ""
    """Its name."""


class AdmissionCheckSpec(Wire, frozen=True):
    """The controller of the check, and its parameters."""

    controller_name: Annotated[str, texts(253, shortest=1), REQUIRED] = ""
    """The controller that carries the check out, such as `kueue.x-k8s.io/provisioning-request`."""
    parameters: ParametersReference | None = None
    """The object that says how."""


class AdmissionCheckStatus(Wire, frozen=True):
    """Whether the check's controller is at work."""

    conditions: Conditions = ()
    """`Active` says whether the check's controller is at work."""


class AdmissionCheck(Wire, frozen=True):
    """Something besides quota that must be settled before a workload starts."""

    api_version: str = API_VERSION
    kind: str = "AdmissionCheck"
    metadata: ObjectMeta = ObjectMeta()
    spec: AdmissionCheckSpec = AdmissionCheckSpec()
    status: AdmissionCheckStatus = AdmissionCheckStatus()
