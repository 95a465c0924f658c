"""What a pass of `policyd background` reads of the cluster, besides the objects of its policies."""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime

from policyd.api.meta import Json
from policyd.engine.objects.match import labels_of
from policyd.engine.objects.workloads import value_at
from policyd.errors import ConfigurationError, PolicydError
from policyd.kube.client import Reader
from policyd.kube.errors import NotFoundError
from policyd.kube.resources import Resource


class UnlistedError(PolicydError):
    """An expression reads a resource that the command may not read for it."""


class DeclaredReads:
    """The objects of the resources that `--reads` lists, as they were when the pass began."""

    def __init__(self, objects: Mapping[Resource, Sequence[Json]]) -> None:
        """Answer from objects by their resource."""
        self._objects = {(each.api_version, each.plural): o for each, o in objects.items()}
        self._scopes = {(each.api_version, each.plural): each.namespaced for each in objects}

    def get(self, api_version: str, resource: str, namespace: str, name: str) -> Json | None:
        """Return an object; None if it is not there."""
        for obj in self._of(api_version, resource, namespace):
            if value_at(obj, ("metadata", "name")) == name:
                return obj
        return None

    def list(
        self, api_version: str, resource: str, namespace: str, labels: Mapping[str, str]
    ) -> Json:
        """Return a list of objects."""
        found = self._of(api_version, resource, namespace)
        return {"items": [obj for obj in found if labels.items() <= dict(labels_of(obj)).items()]}

    def post(self, api_version: str, resource: str, _namespace: str, _body: Json) -> Json:
        """Refuse a question: the pass has no user to ask about.

        Raises:
            UnlistedError: Always.
        """
        raise UnlistedError(f"`{api_version}/{resource}` cannot be asked here")

    def namespaced(self, api_version: str, resource: str) -> bool:
        """Tell whether the objects of a resource live in namespaces."""
        self._of(api_version, resource, "")
        return self._scopes[api_version, resource]

    def _of(self, api_version: str, resource: str, namespace: str) -> Sequence[Json]:
        found = self._objects.get((api_version, resource))
        if found is None:
            text = f"{api_version}/{resource}"
            raise UnlistedError(f"policies may not read `{text}` without `--reads {text}`")
        if not namespace:
            return found
        return [obj for obj in found if value_at(obj, ("metadata", "namespace")) == namespace]


def created_at(obj: Json) -> float:
    """Return when an object was created, in seconds since the epoch; 0 if it does not say."""
    return moment(value_at(obj, ("metadata", "creationTimestamp")))


def moment(text: Json) -> float:
    """Return a time of the API in seconds since the epoch; 0 if it is none."""
    try:
        return datetime.fromisoformat(str(text)).astimezone(UTC).timestamp()
    except (OverflowError, ValueError):
        return 0.0


async def served_kinds(
    reader: Reader, group: str, versions: Sequence[str], kinds: Collection[str]
) -> list[Resource]:
    """Return the resources of some kinds, each in the first version that serves it.

    Raises:
        ApiError: If the cluster cannot be asked.
    """
    found: dict[str, Resource] = {}
    for version in versions:
        try:
            served = await reader.served(f"{group}/{version}")
        except NotFoundError:
            continue
        for each in served:
            if each.kind in kinds:
                found.setdefault(each.kind, each)
    return [found[kind] for kind in sorted(found)]


async def resource_named(reader: Reader, text: str) -> Resource:
    """Return the resource of `v1/secrets` or `apps/v1/deployments`.

    Raises:
        ConfigurationError: If the cluster does not serve it.
        ApiError: If the cluster cannot be asked.
    """
    api_version, _, plural = text.rpartition("/")
    try:
        served = await reader.served(api_version) if api_version else ()
    except NotFoundError:
        served = ()
    for each in served:
        if each.plural == plural:
            return each
    raise ConfigurationError(
        f"the cluster serves no `{text}`", hint="write v1/secrets, or apps/v1/deployments"
    )
