"""Nodes requested from an autoscaler: the default parameters, and the request itself."""

from typing import Annotated, Literal

import msgspec

from policyd.api.kueue.names import API_VERSION
from policyd.api.kueue.queues import Conditions
from policyd.api.meta import ObjectMeta, Wire
from policyd.api.schema import (
    DEFAULTED,
    REQUIRED,
    Int32,
    LabelKey,
    SubdomainName,
    at_least,
    keyed,
    limits,
    texts,
    unordered,
)

AUTOSCALING_GROUP = "autoscaling.x-k8s.io"
AUTOSCALING_VERSION = "v1"

MergePolicy = Literal["IdenticalPodTemplates", "IdenticalWorkloadSchedulingRequirements"]


class RetryStrategy(Wire, frozen=True):
    """How often a request that failed is made again, and after how long."""

    backoff_limit_count: Annotated[Int32, at_least(0)] = 3
    """How often it is made again."""
    backoff_base_seconds: Annotated[Int32, at_least(0)] = 60
    """How long to wait the first time; each wait is twice the one before."""
    backoff_max_seconds: Annotated[Int32, at_least(0)] = 1800
    """How long to wait at most."""


class NodeSelectorUpdate(Wire, frozen=True):
    """A node label that pods select, with a value that the autoscaler says."""

    key: Annotated[LabelKey, limits(minLength=1)]
    """The node label."""
    value_from_provisioning_class_detail: Annotated[str, texts(32_768, shortest=1)]
    """The detail of the answered request that is the label's value."""


class ProvisioningUpdates(Wire, frozen=True):
    """Updates of pods when their nodes are provisioned."""

    node_selector: Annotated[tuple[NodeSelectorUpdate, ...], keyed("key", limit=8)] = ()
    """Node labels that pods select in addition."""


class ProvisioningRequestConfigSpec(Wire, frozen=True):
    """The request to an autoscaler, for pods that request one of some resources, or for all."""

    provisioning_class_name: Annotated[SubdomainName, limits(minLength=1), REQUIRED] = ""
    """How the autoscaler provides the nodes."""
    parameters: Annotated[
        dict[str, Annotated[str, texts(255)]],
        msgspec.Meta(extra_json_schema={"maxProperties": 100}),
    ] = {}
    """Additional parameters for the autoscaler."""
    managed_resources: Annotated[tuple[str, ...], unordered(limit=100)] = ()
    """Pods that request none of these need no new nodes; all pods do if left out."""
    retry_strategy: Annotated[RetryStrategy, DEFAULTED] = RetryStrategy()
    """How often a request that failed is made again."""
    pod_set_updates: ProvisioningUpdates | None = None
    """Updates of pods when their nodes are provisioned."""
    pod_set_merge_policy: MergePolicy | None = None
    """Which pod sets are asked for as one."""


class ProvisioningRequestConfig(Wire, frozen=True):
    """Parameters of a check that asks an autoscaler for nodes."""

    api_version: str = API_VERSION
    kind: str = "ProvisioningRequestConfig"
    metadata: ObjectMeta = ObjectMeta()
    spec: ProvisioningRequestConfigSpec = ProvisioningRequestConfigSpec()


class TemplateReference(Wire, frozen=True):
    """Points at a PodTemplate."""

    name: str = ""


class RequestedPods(Wire, frozen=True):
    """Pods that are alike."""

    pod_template_ref: TemplateReference = TemplateReference()
    count: int = 0


class ProvisioningRequestSpec(Wire, frozen=True):
    """The pods that nodes are asked for."""

    provisioning_class_name: str = ""
    parameters: dict[str, str] = {}
    pod_sets: tuple[RequestedPods, ...] = ()


class ProvisioningRequestStatus(Wire, frozen=True):
    """The answer of the autoscaler."""

    conditions: Conditions = ()
    provisioning_class_details: dict[str, str] = {}


class ProvisioningRequest(Wire, frozen=True):
    """A request to an autoscaler, `autoscaling.x-k8s.io/v1`."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ProvisioningRequestSpec = ProvisioningRequestSpec()
    status: ProvisioningRequestStatus = ProvisioningRequestStatus()
