"""apps/v1 Deployment: every pod of it queues for itself."""

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
    """The spec of a Deployment."""

    template: PodTemplate = PodTemplate()


class Deployment(Parent, frozen=True):
    """A Deployment, trimmed to the fields that the queue reads."""

    spec: DeploymentSpec = DeploymentSpec()


def _mark(draft: Draft, _deployment: Deployment) -> None:
    annotate(draft, TEMPLATE, {SUSPENDING_PARENT: DEPLOYMENT.word})
    draft.set((*TEMPLATE, "metadata", "labels", MANAGED), "true")
    pass_on(draft, TEMPLATE, SUBMISSION)


DEPLOYMENT: Final[ParentKind[Deployment]] = ParentKind(
    group="apps",
    version="v1",
    plural="deployments",
    kind="Deployment",
    type=Deployment,
    word="deployment",
    templates=lambda _deployment: (TEMPLATE,),
    mark=_mark,
)
