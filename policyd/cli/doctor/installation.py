"""Checks of what is installed: kinds, versions, the controller, and what it serves."""

from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from policyd import __version__
from policyd.api.crd import KINDS, definition
from policyd.api.kueue.visibility import GROUP as VISIBILITY_GROUP
from policyd.api.meta import Json, ObjectMeta, Wire
from policyd.cli.doctor.report import CheckedCluster, Checks, InstallationProblem
from policyd.kube.client import PartialObject
from policyd.kube.errors import ApiError, ForbiddenError, NotFoundError, UnreachableError
from policyd.kube.leader import Lease
from policyd.kube.resources import (
    CUSTOM_RESOURCE_DEFINITIONS,
    LEASES,
    MUTATING_WEBHOOK_CONFIGURATIONS,
)
from policyd.registration.configurations import NAME
from policyd.snapshot.values import API_VERSION as SNAPSHOTS

VERSION_LABEL: Final = "app.kubernetes.io/version"
PODS: Final = "kubectl get pods -A -l app.kubernetes.io/part-of=policyd"
"""Shows the processes of the chart."""
INSTALL: Final = "helm install policyd charts/policyd -n policyd-system --create-namespace"
LEASE: Final = "policyd-controller"
_SHOWN: Final = 3
"""Fields that a finding names."""
_OPEN: Final = "x-kubernetes-preserve-unknown-fields"


class _Version(Wire, frozen=True):
    name: str
    served: bool = True
    schema: dict[str, Json] = {}


class _DefinitionSpec(Wire, frozen=True):
    versions: tuple[_Version, ...] = ()


class _Definition(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _DefinitionSpec = _DefinitionSpec()


async def versions(cluster: CheckedCluster) -> AsyncIterator[InstallationProblem]:
    """Find kinds that are missing or older than this program, and a chart of another version."""
    installed = {
        each.metadata.name: each
        async for each in cluster.all(CUSTOM_RESOURCE_DEFINITIONS, _Definition)
    }
    names = {f"{kind.plural}.{kind.group}" for kind in KINDS}
    if names.isdisjoint(installed):
        yield InstallationProblem("versions", "error", "policyd", "it is not installed", INSTALL)
        return
    for kind in KINDS:
        wanted = definition(kind)
        name = wanted["metadata"]["name"]
        for message in _wrong_with(installed.get(name), wanted["spec"]["versions"][0]):
            fix = "policyd crds | kubectl apply --server-side -f -"
            yield InstallationProblem(
                "versions", "error", f"CustomResourceDefinition {name}", message, fix
            )
    try:
        chart = await cluster.client.get(MUTATING_WEBHOOK_CONFIGURATIONS, NAME, into=PartialObject)
    except NotFoundError:
        return
    version = chart.metadata.labels.get(VERSION_LABEL, __version__)
    if version != __version__:
        yield InstallationProblem(
            "versions",
            "warning",
            "chart policyd",
            f"it has version {version}, and this program {__version__}",
            f"pip install policyd=={version}",
        )


def _wrong_with(found: _Definition | None, wanted: Mapping[str, Any]) -> Iterator[str]:
    if found is None:
        yield "it is not installed"
        return
    served = {each.name: each for each in found.spec.versions if each.served}
    version = served.get(wanted["name"])
    if version is None:
        yield f"it does not serve {wanted['name']}, only {', '.join(sorted(served)) or 'nothing'}"
        return
    ours = wanted["schema"]["openAPIV3Schema"]
    missing = list(missing_fields(ours, version.schema.get("openAPIV3Schema", {})))
    if missing:
        some = ", ".join(missing[:_SHOWN])
        more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        yield f"it lacks {some}{more}: the API server drops what is written there"


def missing_fields(
    ours: Mapping[str, Json], theirs: Mapping[str, Json], path: str = ""
) -> Iterator[str]:
    """Yield the fields of a schema that another one lacks, such as `spec.active`."""
    if theirs.get(_OPEN):
        return
    for part in ("items", "additionalProperties"):
        inner, other = ours.get(part), theirs.get(part)
        if isinstance(inner, Mapping) and isinstance(other, Mapping):
            yield from missing_fields(inner, other, path)
    known = theirs.get("properties", {})
    for name, field in ours.get("properties", {}).items():
        place = f"{path}.{name}" if path else name
        if name not in known:
            yield place
        else:
            yield from missing_fields(field, known[name], place)


async def leader(cluster: CheckedCluster) -> AsyncIterator[InstallationProblem]:
    """Find that no controller leads."""
    found = [
        each async for each in cluster.all(LEASES, Lease, field_selector=f"metadata.name={LEASE}")
    ]
    if not found:
        if await _serves(cluster, SNAPSHOTS) is None:
            return  # one controller, without leader election
        message = f"there is no Lease {LEASE}: no controller has been started"
        yield _controller("controller", message)
    for lease in found:
        for message in without_leader(lease, now=cluster.now):
            yield _controller(f"Lease {lease.metadata.key}", message)


def _controller(what: str, message: str) -> InstallationProblem:
    return InstallationProblem("leader", "error", what, f"{message}: nothing is admitted", PODS)


def without_leader(lease: Lease, *, now: float) -> Iterator[str]:
    """Yield why a Lease tells that no controller leads."""
    spec = lease.spec
    if not spec.holder_identity:
        yield "no controller holds it"
        return
    if spec.renew_time is None:
        return
    age = now - datetime.fromisoformat(spec.renew_time).timestamp()
    if age > 2 * (spec.lease_duration_seconds or 15):
        yield f"{spec.holder_identity} holds it, and last renewed it {age:.0f} s ago"


async def visibility(cluster: CheckedCluster) -> AsyncIterator[InstallationProblem]:
    """Find that the controller answers no questions about queues."""
    for version in (SNAPSHOTS, f"{VISIBILITY_GROUP}/v1beta2"):
        why = await _serves(cluster, version)
        if why is not None:
            yield InstallationProblem(
                "visibility",
                "warning",
                f"API {version}",
                f"it is not available ({why}): `why`, `queue` and `quota` have no numbers",
                f"kubectl describe apiservice {'.'.join(reversed(version.split('/')))}",
            )


async def _serves(cluster: CheckedCluster, api_version: str) -> str | None:
    """Return why an API is not served; None if it is."""
    try:
        await cluster.client.served(api_version)
    except (ForbiddenError, UnreachableError):
        raise
    except ApiError as error:
        return str(error)
    return None


CHECKS: Checks = {"versions": versions, "leader": leader, "visibility": visibility}
