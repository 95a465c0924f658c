"""The objects of a cluster as `policyd report --cluster` evaluates them: listed, page by page."""

from collections.abc import Callable
from dataclasses import dataclass, field

from policyd.cli.clusters import missing, read_cluster
from policyd.cli.options import ClusterOptions
from policyd.cli.policies.request_options import ObjectSurroundings
from policyd.cli.policies.surroundings import read_scan_surroundings
from policyd.controller.policies.scanning import PAGE, found_of
from policyd.engine.compile.load import Loaded
from policyd.engine.documents.findings import Finding
from policyd.engine.evaluate.policy_set import PolicySet
from policyd.engine.offline.scan import Listed, PolicyScan, resources_to_list
from policyd.jobs.kinds.registry import KINDS
from policyd.kube.client import Reader
from policyd.kube.discovery import served_resources
from policyd.kube.errors import ForbiddenError
from policyd.kube.pages import pages

_KNOWN = tuple(Listed(kind.group, kind.version, kind.plural) for kind in KINDS)


@dataclass(slots=True)
class ClusterScan:
    """A scan of the objects of a cluster, and what could not be read."""

    scan: PolicyScan
    findings: list[Finding] = field(default_factory=list)


def scan_cluster(
    given: ClusterOptions, loaded: Loaded, policies_with: Callable[[ObjectSurroundings], PolicySet]
) -> ClusterScan:
    """Evaluate policies on all objects of a cluster that they concern.

    Args:
        given: Which cluster.
        loaded: The policies.
        policies_with: Makes a set of them with the surroundings.

    Returns:
        The results. If the cluster does not answer, the command ends with 2.
    """

    async def read(reader: Reader, _namespace: str) -> ClusterScan:
        surroundings = await read_scan_surroundings(reader, loaded.policies)
        found = ClusterScan(PolicyScan(policies_with(surroundings)), surroundings.findings)
        for each in resources_to_list(found.scan.policies, _KNOWN):
            await _look_at(reader, each, found)
        return found

    return read_cluster(given, read)


async def _look_at(reader: Reader, listed: Listed, found: ClusterScan) -> None:
    """Evaluate all objects of a resource, if the cluster serves it."""
    api_version = f"{listed.group}/{listed.version}" if listed.group else listed.version
    served = await served_resources(reader, api_version)
    resource = next((each for each in served if each.plural == listed.plural), None)
    if resource is None:
        return
    try:
        async for page in pages(reader, resource, into=dict, limit=PAGE):
            for item in page.items:
                found.scan.evaluate(found_of(listed, resource, item))
    except ForbiddenError as error:
        name = f"{listed.plural}.{listed.group}" if listed.group else listed.plural
        found.findings.append(missing(f"the report lacks {name}", error))
