"""The field by which a job is handed over to another controller: here, to the one of MultiKueue."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from policyd.api.kueue.names import MULTI_KUEUE
from policyd.patch.draft import Draft
from policyd.patch.operations import Path


class JobManager(NamedTuple):
    """Which field of a kind says who runs its jobs.

    Attributes:
        path: The field; empty for kinds without one. Their pods stay gated where they are created,
            so that no other controller can start them there.
        own: The names of the kind's own controller; any of them gives way.
    """

    path: Path = ("spec", "managedBy")
    own: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether jobs are kept from starting by the gates of their pods."""
        return not self.path


_HELD: Final = JobManager(())
_RUN_POLICY: Final = ("spec", "runPolicy", "managedBy")
_TRAINING: Final = JobManager(_RUN_POLICY, ("kubeflow.org/training-operator",))
_RAY: Final = JobManager(own=("ray.io/kuberay-operator",))

MANAGERS: Final[Mapping[tuple[str, str], JobManager]] = {
    ("", "Pod"): _HELD,
    ("apps", "StatefulSet"): _HELD,
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): _HELD,
    ("workload.codeflare.dev", "AppWrapper"): JobManager(
        own=("workload.codeflare.dev/appwrapper-controller",)
    ),
    ("batch", "Job"): JobManager(own=("kubernetes.io/job-controller",)),
    ("jobset.x-k8s.io", "JobSet"): JobManager(own=("jobset.sigs.k8s.io/jobset-controller",)),
    ("kubeflow.org", "JAXJob"): _TRAINING,
    ("kubeflow.org", "PaddleJob"): _TRAINING,
    ("kubeflow.org", "PyTorchJob"): _TRAINING,
    ("kubeflow.org", "TFJob"): _TRAINING,
    ("kubeflow.org", "XGBoostJob"): _TRAINING,
    ("kubeflow.org", "MPIJob"): JobManager(_RUN_POLICY, ("kubeflow.org/mpi-operator",)),
    ("ray.io", "RayCluster"): _RAY,
    ("ray.io", "RayJob"): _RAY,
    ("ray.io", "RayService"): _RAY,
    ("trainer.kubeflow.org", "TrainJob"): JobManager(
        own=("trainer.kubeflow.org/trainjob-controller",)
    ),
}
"""By group and kind."""


def hand_over(draft: Draft, *, group: str, kind: str) -> None:
    """Hand a new job over to MultiKueue, unless its user has named another controller.

    Args:
        draft: The job.
        group: Its API group.
        kind: Its kind.
    """
    manager = MANAGERS.get((group, kind))
    if manager is None or manager.holds:
        return
    if (draft.get(manager.path) or "") in {"", *manager.own}:
        draft.set(manager.path, MULTI_KUEUE)
