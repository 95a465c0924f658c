"""Discovery: which resources a version of an API group has, and what their kinds are called."""

from urllib.parse import quote

from policyd.api.meta import Wire
from policyd.kube.resources import Resource


class ServedResource(Wire, frozen=True):
    """One line of a discovery document."""

    name: str
    kind: str
    namespaced: bool = False


class ResourceList(Wire, frozen=True):
    """The discovery document of one version."""

    resources: tuple[ServedResource, ...] = ()


def discovery_path(api_version: str) -> str:
    """Return where the discovery document of `group/version` is, whatever the text says."""
    root = "apis" if "/" in api_version else "api"
    # Dots alone would lead elsewhere; a name that is empty is none that is served.
    parts = (quote(part, safe="") for part in api_version.split("/"))
    return "/".join(["", root, *(part if part.strip(".") else "-" for part in parts)])


def resources_of(found: ResourceList, api_version: str) -> tuple[Resource, ...]:
    """Return what a discovery document lists, subresources left out."""
    group, _, version = api_version.rpartition("/")
    return tuple(
        Resource(group, version, line.name, line.kind, namespaced=line.namespaced)
        for line in found.resources
        if "/" not in line.name
    )
