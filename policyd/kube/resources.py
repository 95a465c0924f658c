"""Where the API server keeps each kind of object, and the paths that lead there."""

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from policyd.api.kueue.names import GROUP, VERSION
from policyd.api.kueue.provisioning import AUTOSCALING_GROUP, AUTOSCALING_VERSION
from policyd.api.meta import ObjectMeta, ObjectReference
from policyd.kube.errors import InvalidNameError


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind of object, as paths name it."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """`group/version`, or the version alone in the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the path of an object or, without `name`, of the collection.

        The collection of a namespaced resource without `namespace` spans all namespaces; the
        namespace of cluster objects is ignored.

        Raises:
            InvalidNameError: If a segment could lead elsewhere.
            ValueError: If `name` is given without the namespace that it needs.
        """
        if name and self.namespaced and not namespace:
            raise ValueError(f"{self.kind} `{name}` needs a namespace")
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        within = f"/namespaces/{_segment(namespace)}" if self.namespaced and namespace else ""
        rest = "".join(f"/{_segment(part)}" for part in (name, subresource) if part)
        return f"{root}{within}/{self.plural}{rest}"

    def reference(self, metadata: ObjectMeta) -> ObjectReference:
        """Return an event's reference to its object."""
        return ObjectReference(
            api_version=self.api_version,
            kind=self.kind,
            namespace=metadata.namespace,
            name=metadata.name,
            uid=metadata.uid,
        )


def _segment(text: str) -> str:
    if text in {".", ".."}:
        raise InvalidNameError(f"`{text}` is not a valid object name")
    return text if _PLAIN.fullmatch(text) else quote(text, safe=":")


_PLAIN: Final = re.compile(r"[a-zA-Z0-9.:_~-]+")
"""Segments of which nothing is to be quoted: nearly all."""


PODS = Resource("", "v1", "pods", "Pod")
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
EVENTS = Resource("", "v1", "events", "Event")
SECRETS = Resource("", "v1", "secrets", "Secret")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
LIMIT_RANGES = Resource("", "v1", "limitranges", "LimitRange")
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
JOBS = Resource("batch", "v1", "jobs", "Job")
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
PRIORITY_CLASSES = Resource(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False
)
RUNTIME_CLASSES = Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False)
DEVICE_CLASSES = Resource("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", namespaced=False)
RESOURCE_CLAIMS = Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim")
RESOURCE_CLAIM_TEMPLATES = Resource(
    "resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate"
)
RESOURCE_SLICES = Resource(
    "resource.k8s.io", "v1", "resourceslices", "ResourceSlice", namespaced=False
)
CUSTOM_RESOURCE_DEFINITIONS = Resource(
    "apiextensions.k8s.io",
    "v1",
    "customresourcedefinitions",
    "CustomResourceDefinition",
    namespaced=False,
)
API_SERVICES = Resource(
    "apiregistration.k8s.io", "v1", "apiservices", "APIService", namespaced=False
)
SUBJECT_ACCESS_REVIEWS = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False
)
SELF_SUBJECT_ACCESS_REVIEWS = Resource(
    "authorization.k8s.io",
    "v1",
    "selfsubjectaccessreviews",
    "SelfSubjectAccessReview",
    namespaced=False,
)
TOKEN_REVIEWS = Resource(
    "authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False
)
SELF_SUBJECT_REVIEWS = Resource(
    "authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False
)
MUTATING_WEBHOOK_CONFIGURATIONS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    namespaced=False,
)
VALIDATING_WEBHOOK_CONFIGURATIONS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    namespaced=False,
)

POLICIES = Resource("policyd.io", "v1alpha1", "policies", "Policy", namespaced=False)
POLICY_BINDINGS = Resource(
    "policyd.io", "v1alpha1", "policybindings", "PolicyBinding", namespaced=False
)

_KUEUE = (GROUP, VERSION)
WORKLOADS = Resource(*_KUEUE, "workloads", "Workload")
LOCAL_QUEUES = Resource(*_KUEUE, "localqueues", "LocalQueue")
CLUSTER_QUEUES = Resource(*_KUEUE, "clusterqueues", "ClusterQueue", namespaced=False)
COHORTS = Resource(*_KUEUE, "cohorts", "Cohort", namespaced=False)
RESOURCE_FLAVORS = Resource(*_KUEUE, "resourceflavors", "ResourceFlavor", namespaced=False)
TOPOLOGIES = Resource(*_KUEUE, "topologies", "Topology", namespaced=False)
WORKLOAD_PRIORITY_CLASSES = Resource(
    *_KUEUE, "workloadpriorityclasses", "WorkloadPriorityClass", namespaced=False
)
ADMISSION_CHECKS = Resource(*_KUEUE, "admissionchecks", "AdmissionCheck", namespaced=False)
PROVISIONING_CONFIGS = Resource(
    *_KUEUE, "provisioningrequestconfigs", "ProvisioningRequestConfig", namespaced=False
)
PROVISIONING_REQUESTS = Resource(
    AUTOSCALING_GROUP, AUTOSCALING_VERSION, "provisioningrequests", "ProvisioningRequest"
)
MULTIKUEUE_CLUSTERS = Resource(*_KUEUE, "multikueueclusters", "MultiKueueCluster", namespaced=False)
MULTIKUEUE_CONFIGS = Resource(*_KUEUE, "multikueueconfigs", "MultiKueueConfig", namespaced=False)
POD_TEMPLATES = Resource("", "v1", "podtemplates", "PodTemplate")
