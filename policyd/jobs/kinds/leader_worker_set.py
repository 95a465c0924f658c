"""leaderworkerset.x-k8s.io/v1 LeaderWorkerSet: every replica is a group of a leader and workers."""

from collections.abc import Iterator
from typing import Final

from policyd.api.integers import whole_number
from policyd.api.kueue import PodSet
from policyd.api.kueue.names import DEFAULT_POD_SET
from policyd.api.kueue.validation import IMMUTABLE, FieldError
from policyd.api.meta import Wire
from policyd.api.pods import PodTemplate
from policyd.jobs.parents import SUBMISSION, Parent, ParentKind, ParentPodGroup, annotate, pass_on
from policyd.jobs.pods import SERVING, SUSPENDING_PARENT, QueuedPod
from policyd.jobs.rules.surroundings import JobContext
from policyd.jobs.topology import POD_INDEX_OFFSET, POD_SET_GROUP_NAME, topology_request
from policyd.patch.draft import Draft
from policyd.patch.operations import Path

NAME_LABEL: Final = "leaderworkerset.sigs.k8s.io/name"
GROUP_INDEX_LABEL: Final = "leaderworkerset.sigs.k8s.io/group-index"
WORKER_INDEX_LABEL: Final = "leaderworkerset.sigs.k8s.io/worker-index"
LEADER_NAME: Final = "leaderworkerset.sigs.k8s.io/leader-name"
"""Annotation of a worker: the pod that leads it."""
KEEPS_SIZE: Final = "LWSImmutableGroupSize"
"""Gate: whether the size of a group is fixed."""
MOST_REPLICAS: Final = 10_000
"""Most groups of a set: each has its own workload, which is reconciled."""

_SET: Final = ("spec", "leaderWorkerTemplate")
_LEADER: Final[Path] = (*_SET, "leaderTemplate")
_WORKER: Final[Path] = (*_SET, "workerTemplate")


class RollingUpdate(Wire, frozen=True):
    """How many groups there are beyond those wanted, while they are replaced."""

    max_surge: int | str = 0


class RolloutStrategy(Wire, frozen=True):
    """How groups are replaced."""

    rolling_update_configuration: RollingUpdate | None = None


class LeaderWorkerTemplate(Wire, frozen=True):
    """The templates of each group; without a template of the leader, a worker leads."""

    size: int = 1
    leader_template: PodTemplate | None = None
    worker_template: PodTemplate = PodTemplate()


class LeaderWorkerSetSpec(Wire, frozen=True):
    """The spec of a LeaderWorkerSet."""

    replicas: int | None = None
    leader_worker_template: LeaderWorkerTemplate = LeaderWorkerTemplate()
    rollout_strategy: RolloutStrategy = RolloutStrategy()
    startup_policy: str = "LeaderCreated"


class LeaderWorkerSet(Parent, frozen=True):
    """A LeaderWorkerSet, trimmed to the fields that the queue reads."""

    spec: LeaderWorkerSetSpec = LeaderWorkerSetSpec()


def _groups(parent: LeaderWorkerSet) -> tuple[ParentPodGroup, ...]:
    made = parent.spec.leader_worker_template
    pod_sets: tuple[PodSet, ...]
    if made.leader_template is None:
        pod_sets = (_pod_set(DEFAULT_POD_SET, made.worker_template, made.size, numbered=True),)
    else:
        leader = _pod_set("leader", made.leader_template, 1, numbered=False)
        workers = _pod_set("worker", made.worker_template, made.size - 1, numbered=True)
        pod_sets = (leader, workers)
    paths = _templates(parent)
    return tuple(
        ParentPodGroup(index=str(index), pod_sets=pod_sets, paths=paths)
        for index in range(_count(parent))
    )


def _pod_set(name: str, template: PodTemplate, count: int, *, numbered: bool) -> PodSet:
    label = WORKER_INDEX_LABEL if numbered else ""
    request = topology_request(template.metadata.annotations, pod_index_label=label)
    return PodSet(name=name, template=template, count=count, topology_request=request)


def _count(parent: LeaderWorkerSet) -> int:
    """Return the number of groups, including those that exist while others are replaced.

    It is bounded by the most that are supported, also for a set that the webhooks did not see.
    """
    return min(_wanted(parent), MOST_REPLICAS)


def _wanted(parent: LeaderWorkerSet) -> int:
    wanted = 1 if parent.spec.replicas is None else parent.spec.replicas
    rolling = parent.spec.rollout_strategy.rolling_update_configuration
    replaced = parent.status.updated_replicas < min(wanted, parent.status.replicas)
    if rolling is None or not replaced:
        return wanted
    return wanted + _part(rolling.max_surge, wanted)


def _part(text: int | str, whole: int) -> int:
    """Read a number, or a percentage of `whole`, rounded up."""
    if isinstance(text, int):
        return text
    percent = whole_number(text.removesuffix("%"), bits=32) if text.endswith("%") else None
    return -(-percent * whole // 100) if percent is not None and percent > 0 else 0


def _templates(parent: LeaderWorkerSet) -> tuple[Path, ...]:
    led = parent.spec.leader_worker_template.leader_template is not None
    return (_LEADER, _WORKER) if led else (_WORKER,)


def _mark(draft: Draft, parent: LeaderWorkerSet) -> None:
    for path in _templates(parent):
        annotate(draft, path, {SUSPENDING_PARENT: LEADER_WORKER_SET.word, SERVING: "true"})
        pass_on(draft, path, SUBMISSION)
    worker = parent.spec.leader_worker_template.worker_template.metadata.annotations
    if len(_templates(parent)) > 1 and POD_SET_GROUP_NAME not in worker:
        annotate(draft, _WORKER, {POD_INDEX_OFFSET: "1"})


def _role_of(parent: LeaderWorkerSet, pod: QueuedPod) -> str:
    if len(_templates(parent)) == 1:
        return DEFAULT_POD_SET
    return "worker" if LEADER_NAME in pod.metadata.annotations else "leader"


def _mistakes(
    parent: LeaderWorkerSet, old: LeaderWorkerSet | None, surroundings: JobContext
) -> Iterator[FieldError]:
    replicas = parent.spec.replicas
    if replicas is not None and not 0 <= replicas <= MOST_REPLICAS:
        detail = f"must be between 0 and {MOST_REPLICAS}"
        yield FieldError("spec.replicas", replicas, detail)
    if old is None or KEEPS_SIZE in surroundings.integrations.off:
        return
    before, after = (each.spec.leader_worker_template.size for each in (old, parent))
    if before != after:
        yield FieldError("spec.leaderWorkerTemplate.size", after, IMMUTABLE)


LEADER_WORKER_SET: Final[ParentKind[LeaderWorkerSet]] = ParentKind(
    group="leaderworkerset.x-k8s.io",
    version="v1",
    plural="leaderworkersets",
    kind="LeaderWorkerSet",
    type=LeaderWorkerSet,
    word="leaderworkerset.x-k8s.io/leaderworkerset",
    templates=_templates,
    mark=_mark,
    groups=_groups,
    name_of=lambda pod: pod.metadata.labels.get(NAME_LABEL, ""),
    index_of=lambda pod: pod.metadata.labels.get(GROUP_INDEX_LABEL, ""),
    role_of=_role_of,
    mistakes=_mistakes,
    fixed=True,
    comes=lambda parent: "RoleByRole" if parent.spec.startup_policy == "LeaderReady" else "",
)
