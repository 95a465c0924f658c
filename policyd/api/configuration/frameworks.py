"""Kueue's names of the kinds of jobs it queues, and of those that only policyd queues."""

from typing import Final

Kind = tuple[str, str, str]
"""Group, version and kind."""

KINDS: Final[dict[str, Kind]] = {
    "batch.volcano.sh/job": ("batch.volcano.sh", "v1alpha1", "Job"),
    "batch/job": ("batch", "v1", "Job"),
    "deployment": ("apps", "v1", "Deployment"),
    "jobset.x-k8s.io/jobset": ("jobset.x-k8s.io", "v1alpha2", "JobSet"),
    "kubeflow.org/jaxjob": ("kubeflow.org", "v1", "JAXJob"),
    "kubeflow.org/mpijob": ("kubeflow.org", "v2beta1", "MPIJob"),
    "kubeflow.org/paddlejob": ("kubeflow.org", "v1", "PaddleJob"),
    "kubeflow.org/pytorchjob": ("kubeflow.org", "v1", "PyTorchJob"),
    "kubeflow.org/tfjob": ("kubeflow.org", "v1", "TFJob"),
    "kubeflow.org/xgboostjob": ("kubeflow.org", "v1", "XGBoostJob"),
    "leaderworkerset.x-k8s.io/leaderworkerset": (
        "leaderworkerset.x-k8s.io",
        "v1",
        "LeaderWorkerSet",
    ),
    "pod": ("", "v1", "Pod"),
    "ray.io/raycluster": ("ray.io", "v1", "RayCluster"),
    "ray.io/rayjob": ("ray.io", "v1", "RayJob"),
    "ray.io/rayservice": ("ray.io", "v1", "RayService"),
    "replicaset": ("apps", "v1", "ReplicaSet"),
    "sparkoperator.k8s.io/sparkapplication": (
        "sparkoperator.k8s.io",
        "v1beta2",
        "SparkApplication",
    ),
    "statefulset": ("apps", "v1", "StatefulSet"),
    "trainer.kubeflow.org/trainjob": ("trainer.kubeflow.org", "v1alpha1", "TrainJob"),
    "workload.codeflare.dev/appwrapper": ("workload.codeflare.dev", "v1beta2", "AppWrapper"),
}


def kind_of(text: str) -> Kind | None:
    """Read `Kind.version.group`, as other kinds of jobs are named; None if it is not that."""
    kind, _, rest = text.partition(".")
    version, dot, group = rest.partition(".")
    return (group, version, kind) if dot else None
