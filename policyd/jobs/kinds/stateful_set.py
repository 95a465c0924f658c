"""apps/v1 StatefulSet: all its pods are one group, which starts as soon as the first exists."""

from collections.abc import Iterator
from typing import Final

from policyd.api.kueue import PodSet
from policyd.api.kueue.names import DEFAULT_POD_SET
from policyd.api.kueue.validation import IMMUTABLE, FieldError
from policyd.api.meta import Wire
from policyd.api.pods import PodTemplate
from policyd.jobs.parents import Parent, ParentKind, ParentPodGroup, annotate
from policyd.jobs.pod_groups import FAST_ADMISSION
from policyd.jobs.pods import SERVING, SUSPENDING_PARENT
from policyd.jobs.rules.surroundings import JobContext
from policyd.jobs.topology import POD_INDEX_LABEL_NAME, topology_request
from policyd.patch.draft import Draft
from policyd.patch.operations import Path

POD_INDEX_LABEL: Final = "apps.kubernetes.io/pod-index"
_TEMPLATE: Final[Path] = ("spec", "template")


class StatefulSetSpec(Wire, frozen=True):
    """The spec of a StatefulSet."""

    replicas: int | None = None
    template: PodTemplate = PodTemplate()
    pod_management_policy: str = "OrderedReady"


class StatefulSet(Parent, frozen=True):
    """A StatefulSet, trimmed to the fields that the queue reads."""

    spec: StatefulSetSpec = StatefulSetSpec()


def _replicas(parent: StatefulSet) -> int:
    return 1 if parent.spec.replicas is None else parent.spec.replicas


def _groups(parent: StatefulSet) -> tuple[ParentPodGroup, ...]:
    template = parent.spec.template
    request = topology_request(template.metadata.annotations, pod_index_label=POD_INDEX_LABEL)
    pod_set = PodSet(
        name=DEFAULT_POD_SET,
        template=template,
        count=_replicas(parent),
        topology_request=request,
    )
    return (ParentPodGroup(index="", pod_sets=(pod_set,), paths=(_TEMPLATE,)),)


def _mark(draft: Draft, _parent: StatefulSet) -> None:
    annotate(draft, _TEMPLATE, {SUSPENDING_PARENT: STATEFUL_SET.word})


def _mistakes(
    parent: StatefulSet, old: StatefulSet | None, _surroundings: JobContext
) -> Iterator[FieldError]:
    """Yield the errors in the number of pods: a group can only come and go as a whole."""
    if old is None:
        return
    before, after = _replicas(old), _replicas(parent)
    if before == 0 and after > 0 and parent.status.replicas > 0:
        detail = "cannot grow while pods of before are still there"
        yield FieldError("spec.replicas", after, detail, "Forbidden")
    elif before != after and before > 0 and after > 0:
        yield FieldError("spec.replicas", after, IMMUTABLE)


STATEFUL_SET: Final[ParentKind[StatefulSet]] = ParentKind(
    group="apps",
    version="v1",
    plural="statefulsets",
    kind="StatefulSet",
    type=StatefulSet,
    word="statefulset",
    templates=lambda _parent: (_TEMPLATE,),
    mark=_mark,
    groups=_groups,
    role_of=lambda _parent, _pod: DEFAULT_POD_SET,
    notes={FAST_ADMISSION: "true", SERVING: "true", POD_INDEX_LABEL_NAME: POD_INDEX_LABEL},
    mistakes=_mistakes,
    bare=True,
    fixed=True,
    relabels=True,
    comes=lambda parent: "" if parent.spec.pod_management_policy == "Parallel" else "PodByPod",
)
