"""apps/v1 Deployment and ReplicaSet: every pod of them queues for itself."""

from typing import Final

from policyd.api.kueue.names import MANAGED
from policyd.api.meta import Wire
from policyd.api.pods import PodTemplate
from policyd.jobs.parents import SUBMISSION, Parent, ParentKind, annotate, pass_on
from policyd.jobs.pods import SUSPENDING_PARENT
from policyd.patch.draft import Draft
from policyd.patch.operations import Path

TEMPLATE: Final[Path] = ("spec", "template")


class DeploymentSpec(Wire, frozen=True):
    """The spec of a Deployment or a ReplicaSet."""

    template: PodTemplate = PodTemplate()


class Deployment(Parent, frozen=True):
    """A Deployment or a ReplicaSet, trimmed to the fields that the queue reads."""

    spec: DeploymentSpec = DeploymentSpec()


def _kind(name: str) -> ParentKind[Deployment]:
    word = name.lower()

    def mark(draft: Draft, _parent: Deployment) -> None:
        annotate(draft, TEMPLATE, {SUSPENDING_PARENT: word})
        draft.set((*TEMPLATE, "metadata", "labels", MANAGED), "true")
        pass_on(draft, TEMPLATE, SUBMISSION)

    return ParentKind(
        group="apps",
        version="v1",
        plural=f"{word}s",
        kind=name,
        type=Deployment,
        word=word,
        templates=lambda _parent: (TEMPLATE,),
        mark=mark,
    )


DEPLOYMENT: Final = _kind("Deployment")
REPLICA_SET: Final = _kind("ReplicaSet")
"""One that a Deployment has made is left to that."""
