"""How jobs grow for which a Ray cluster is made: by as many workers as that one has."""

from collections.abc import Callable
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from policyd.api.meta import Json
from policyd.jobs.base import Basis, Elastic, JobObject
from policyd.jobs.kinds.ray_cluster import (
    RAY_CLUSTER,
    RayCluster,
    RayClusterSpec,
    pods_of,
    resized,
    worker_templates,
)

CLUSTER_GENERATION: Final = "kueue.x-k8s.io/raycluster-generation"
"""Annotation of a slice: the generation of the cluster that set its size."""


class OfCluster(JobObject, frozen=True):
    """A job that has a cluster of its own, whose size is the job's.

    `cluster_version` is the generation of the cluster that says how many workers it has.
    """

    cluster_version: str = ""


M = TypeVar("M", bound=OfCluster)


def elastic_by_cluster(
    *at: str,
    spec: Callable[[M], RayClusterSpec],
    with_spec: Callable[[M, RayClusterSpec], M],
    name: Callable[[M], str],
) -> Elastic[M]:
    """Say how something grows for which a cluster is made: its workers come and go there.

    Args:
        at: Where the cluster is written.
        spec: Returns it.
        with_spec: Replaces it.
        name: Returns the name of the cluster that was made; empty if none was yet.
    """

    def sized(job: M, found: Json) -> M:
        running, own = msgspec.convert(found, RayCluster), spec(job)
        if own.enable_in_tree_autoscaling:
            job = with_spec(job, resized(own, running.spec))
        return replace(job, cluster_version=str(running.metadata.generation))

    def notes(job: M) -> dict[str, str]:
        return {CLUSTER_GENERATION: job.cluster_version} if job.cluster_version else {}

    return Elastic(
        templates=lambda job: worker_templates(spec(job), *at),
        selector=lambda job: pods_of(name(job)),
        sized_by=lambda job: _made_cluster(name(job)),
        sized=sized,
        notes=notes,
    )


def _made_cluster(name: str) -> Basis | None:
    if not name:
        return None
    return Basis(
        group=RAY_CLUSTER.group,
        version=RAY_CLUSTER.version,
        plural=RAY_CLUSTER.plural,
        kind=RAY_CLUSTER.kind,
        name=name,
        namespaced=True,
    )
