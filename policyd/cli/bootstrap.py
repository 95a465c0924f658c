"""What `policyd up` puts into its cluster: kinds, nodes, teams, and the policy library."""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import yaml

from policyd.api.crd import KINDS, definition
from policyd.api.crd_v1beta1 import old_versions
from policyd.api.meta import Json
from policyd.cli import demo
from policyd.field_descriptions import field_descriptions
from policyd.kube import resources
from policyd.kube.client import Client
from policyd.kube.errors import AlreadyExistsError, NotFoundError
from policyd.policy_files import default_files

INITIAL_KINDS = {
    resource.kind: resource
    for resource in (
        resources.NAMESPACES,
        resources.PRIORITY_CLASSES,
        resources.RESOURCE_FLAVORS,
        resources.COHORTS,
        resources.CLUSTER_QUEUES,
        resources.LOCAL_QUEUES,
        resources.WORKLOAD_PRIORITY_CLASSES,
        resources.POLICIES,
    )
}


async def bootstrap(
    client: Client, *, nodes: int, racks: int, library: bool, old: bool = False
) -> None:
    """Create policyd's kinds, the nodes, the teams with their queues, and the policy library.

    Teams and library belong to the user once they exist: deleted objects are not created again.

    Args:
        client: The API server.
        nodes: How many nodes there are.
        racks: How many racks they stand in.
        library: Whether the policy library is wanted.
        old: Whether v1beta1 of Kueue's kinds is served, too.
    """
    for made in definitions(old=old):
        await _ensure(client, resources.CUSTOM_RESOURCE_DEFINITIONS, made)
    for item in demo.nodes(nodes, racks):
        await _ensure(client, resources.NODES, item)
    await _once(client, "teams", demo.teams())
    if library:
        await _once(client, "library", default_policies(shipped("policies")))


def definitions(*, old: bool = False) -> list[Json]:
    """Return the definitions of policyd's kinds; with `old`, those of Kueue's have v1beta1, too."""
    made = [definition(kind, notes=field_descriptions) for kind in KINDS]
    versions = old_versions(notes=field_descriptions) if old else {}
    for each in made:
        name = each["metadata"]["name"]
        each["spec"]["versions"] += [versions[name]] if name in versions else []
    return made


def default_policies(library: Path) -> list[Json]:
    """Return the policies of a library that are installed unless others are chosen."""
    # A subclass of SafeLoader, several times as fast.
    return [yaml.load(file.read_text(), yaml.CSafeLoader) for file in default_files(library)]


async def _once(client: Client, what: str, items: Iterable[Json]) -> None:
    """Create objects, unless an earlier run did, as a ConfigMap in its state tells."""
    name, namespace = f"policyd-up-{what}", "kube-system"
    with suppress(NotFoundError):
        await client.get(resources.CONFIG_MAPS, name, namespace=namespace, into=dict)
        return
    for item in items:
        await _ensure(client, INITIAL_KINDS[item["kind"]], item)
    created = {"metadata": {"name": name, "namespace": namespace}}
    marker = {"apiVersion": "v1", "kind": "ConfigMap", **created}
    await _ensure(client, resources.CONFIG_MAPS, marker)


async def _ensure(client: Client, resource: resources.Resource, item: Json) -> None:
    """Create an object, unless an earlier run's state has it."""
    with suppress(AlreadyExistsError):
        namespace = item["metadata"].get("namespace", "")
        await client.create(resource, item, into=dict, namespace=namespace)


def shipped(name: str) -> Path:
    """Return a folder that comes with policyd: in a checkout at its top, else in the package."""
    packaged = Path(__file__).parents[1] / "_shipped" / name
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / name
