"""Other clusters that jobs are sent to: how they are reached, and which of them a check uses."""

from typing import Annotated, Literal

import msgspec

from policyd.api.kueue.names import API_VERSION
from policyd.api.kueue.queues import SOME, Conditions
from policyd.api.meta import ObjectMeta, Wire
from policyd.api.schema import DEFAULTED, REQUIRED, at_most, texts

LongName = Annotated[str, texts(256, shortest=1)]
WorkerName = Annotated[str, texts(256)]
LocationType = Literal["Secret", "Path"]


class KubeConfigReference(Wire, frozen=True):
    """Where the kubeconfig of a cluster is."""

    location: Annotated[LongName, REQUIRED] = ""
    """The name of a Secret in the controller's namespace, with the key `kubeconfig`; or a path."""
    location_type: Annotated[LocationType, DEFAULTED] = "Secret"
    """Whether `location` is a Secret or a path."""


class ClusterProfileReference(Wire, frozen=True):
    """Points at a ClusterProfile in the controller's namespace."""

    name: Annotated[LongName, REQUIRED] = ""
    """The name of the ClusterProfile."""


class ClusterSource(Wire, frozen=True):
    """How a cluster is reached: one of the two."""

    kube_config: KubeConfigReference | None = None
    """A kubeconfig."""
    cluster_profile_ref: ClusterProfileReference | None = None
    """A ClusterProfile."""


class MultiKueueClusterSpec(Wire, frozen=True):
    """How a cluster is reached."""

    cluster_source: Annotated[ClusterSource, REQUIRED] = ClusterSource()
    """A kubeconfig or a ClusterProfile."""


class MultiKueueClusterStatus(Wire, frozen=True):
    """Whether a cluster is connected."""

    conditions: Conditions = ()
    """`Active` says whether the cluster is connected."""


class MultiKueueCluster(Wire, frozen=True):
    """A cluster that jobs are sent to."""

    api_version: str = API_VERSION
    kind: str = "MultiKueueCluster"
    metadata: ObjectMeta = ObjectMeta()
    spec: MultiKueueClusterSpec = MultiKueueClusterSpec()
    status: MultiKueueClusterStatus = MultiKueueClusterStatus()


class MultiKueueConfigSpec(Wire, frozen=True):
    """The clusters that a check sends jobs to."""

    clusters: Annotated[tuple[WorkerName, ...], at_most(20), SOME, REQUIRED] = msgspec.field(
        default_factory=tuple
    )
    """Names of MultiKueueClusters, the preferred ones first."""
    quota_management: Literal["Manual", "Automated"] | None = None
    """With `Automated`, the quota of the ClusterQueue here is the sum of those on the clusters."""


class MultiKueueConfig(Wire, frozen=True):
    """Parameters of a check that sends jobs to other clusters."""

    api_version: str = API_VERSION
    kind: str = "MultiKueueConfig"
    metadata: ObjectMeta = ObjectMeta()
    spec: MultiKueueConfigSpec = MultiKueueConfigSpec()
