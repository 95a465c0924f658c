"""The objects that `policyd report` evaluates: its options, and the lists of a cluster."""

from collections.abc import Callable, Sequence
from typing import Final, Literal

from policyd.api.meta import Json
from policyd.cli.clusters import missing
from policyd.cli.options import ClusterOptions
from policyd.cli.policies.request_options import NamespaceOptions
from policyd.engine.documents.findings import Finding
from policyd.engine.model.compiled import CompiledPolicy
from policyd.engine.model.surroundings import CLAIM_KINDS
from policyd.engine.offline.scan import Listed
from policyd.jobs.kinds.registry import KINDS
from policyd.kube.client import Reader
from policyd.kube.discovery import served_resources
from policyd.kube.errors import ForbiddenError
from policyd.kube.pages import pages, whole
from policyd.kube.resources import Resource

KNOWN = tuple(Listed(kind.group, kind.version, kind.plural) for kind in KINDS)
"""The resources of jobs."""


MOST_IN_PAGE: Final = 500
"""Objects that one request to the API server lists."""


class ReportOptions(NamespaceOptions, ClusterOptions):
    """The arguments of `policyd report`."""

    policies: tuple[str, ...]
    objects: tuple[str, ...]
    output: Literal["text", "yaml", "json", "sarif", "markdown"]
    api: str
    summary: bool
    team: str
    workers: int | None
    as_written: bool


def looked_up(policies: Sequence[CompiledPolicy]) -> set[str]:
    """Return the kinds of objects that decisions on others depend on."""
    params = [policy.policy.spec.param_kind for policy in policies]
    claims = CLAIM_KINDS if any(policy.counts_claims for policy in policies) else ()
    kinds = {"Namespace", "CustomResourceDefinition", *claims}
    return {*kinds, *(kind.kind for kind in params if kind)}


async def take_objects(
    reader: Reader,
    listed: Listed,
    take: Callable[[Resource, Json], None],
    findings: list[Finding],
) -> None:
    """Take each object of a resource, if the cluster serves it and the user may list it.

    Args:
        reader: The API server.
        listed: The resource.
        take: Called with the resource as it is served, and each object.
        findings: A finding is added if the user may not list the objects.
    """
    api_version = f"{listed.group}/{listed.version}" if listed.group else listed.version
    served = await served_resources(reader, api_version)
    resource = next((each for each in served if each.plural == listed.plural), None)
    if resource is None:
        return
    try:
        async for page in pages(reader, resource, into=dict, limit=MOST_IN_PAGE):
            for item in page.items:
                take(resource, whole(resource, item))
    except ForbiddenError as error:
        name = f"{listed.plural}.{listed.group}" if listed.group else listed.plural
        findings.append(missing(f"the report lacks {name}", error))
