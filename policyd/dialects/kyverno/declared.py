"""Read the external data that a Kyverno test declares: objects, images, responses, entries.

Undeclared data does not exist; no cluster, registry or server is ever called.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from policyd.api.kinds import resource as built_in_resource
from policyd.api.kinds import resource_for_kind
from policyd.api.meta import Json
from policyd.dialects.kyverno.environments import kyverno_values
from policyd.dialects.kyverno.projections import Charge, selected
from policyd.engine.objects.match import labels_of
from policyd.engine.objects.workloads import value_at
from policyd.errors import PolicydError


class UndeclaredError(PolicydError):
    """An expression reads external data that a test does not declare."""


def declared_values(
    objects: Iterable[Json] = (),
    images: Iterable[Json] = (),
    responses: Iterable[Json] = (),
    entries: Iterable[Json] = (),
) -> dict[str, Any]:
    """Return the values of Kyverno's variables of external data.

    Args:
        objects: The objects of the cluster.
        images: Images, each with its name in `image` and its data in a registry.
        responses: Answers to calls by HTTP, each with `method`, `url` and `response`.
        entries: Entries of the global context, each with `name`, and `resources` or `data`.
    """
    return kyverno_values(
        resources=_Cluster(tuple(objects)),
        images=_Registry({str(image.get("image")): image for image in images}),
        http=_Web({_call(each): each.get("response") for each in responses}),
        global_context=_Entries({str(entry.get("name")): entry for entry in entries}),
    )


def _call(response: Mapping[str, Json]) -> tuple[str, str]:
    url = response.get("url") or response.get("urlPath")
    return str(response.get("method") or "GET"), str(url)


class _Cluster:
    def __init__(self, objects: Sequence[Json]) -> None:
        self._objects = objects

    def get(self, api_version: str, resource: str, namespace: str, name: str) -> Json | None:
        found = self._of(api_version, resource, namespace)
        return next((o for o in found if value_at(o, ("metadata", "name")) == name), None)

    def list(
        self, api_version: str, resource: str, namespace: str, labels: Mapping[str, str]
    ) -> Json:
        found = self._of(api_version, resource, namespace)
        return {"items": [obj for obj in found if labels.items() <= dict(labels_of(obj)).items()]}

    def post(
        self,
        api_version: str,
        resource: str,
        namespace: str,  # noqa: ARG002 - declared data has no namespaces
        body: Json,  # noqa: ARG002
    ) -> Json:
        raise UndeclaredError(f"nothing answers {api_version} {resource}")

    def namespaced(self, api_version: str, resource: str) -> bool:
        """Tell whether a resource lives in namespaces: a custom one if an object of it does."""
        plural = resource.partition("/")[0]
        group, _, version = api_version.rpartition("/")
        built_in = built_in_resource(group, version, plural)
        if built_in is not None:
            return built_in.namespaced
        return any(map(_namespace, self._of(api_version, plural, "")))

    def _of(self, api_version: str, resource: str, namespace: str) -> Sequence[Json]:
        plural = resource.partition("/")[0]
        return [
            obj
            for obj in self._objects
            if value_at(obj, ("apiVersion",)) == api_version
            and _is_of(obj, plural)
            and (not namespace or (_namespace(obj) or "default") == namespace)
        ]


def _is_of(obj: Json, plural: str) -> bool:
    """Tell whether an object is of a resource; the plural of a custom kind may be irregular."""
    group, _, version = str(obj["apiVersion"]).rpartition("/")
    kind = str(obj.get("kind", ""))
    built_in = resource_for_kind(group, version, kind)
    return plural == built_in.plural if built_in else plural.startswith(kind.lower()[:-1])


def _namespace(obj: Json) -> Json:
    return value_at(obj, ("metadata", "namespace"))


class _Registry:
    def __init__(self, images: Mapping[str, Json]) -> None:
        self._images = images

    def metadata(self, image: str) -> Json:
        if image not in self._images:
            raise UndeclaredError(f"image {image} not found")
        return self._images[image]


class _Web:
    def __init__(self, responses: Mapping[tuple[str, str], Json]) -> None:
        self._responses = responses

    def send(
        self,
        method: str,
        url: str,
        body: Json | None,  # noqa: ARG002 - an answer is declared by its address
        headers: Mapping[str, str],  # noqa: ARG002
    ) -> Json:
        if (method, url) not in self._responses:
            raise UndeclaredError(f"nothing answers {method} {url}")
        return self._responses[method, url]

    def trusting(self, certificates: str) -> "_Web":  # noqa: ARG002 - without a connection
        return self


class _Entries:
    def __init__(self, entries: Mapping[str, Mapping[str, Json]]) -> None:
        self._entries = entries

    def get(self, name: str, projection: str, expression: str, charge: Charge) -> Json:
        entry = self._entries.get(name)
        if entry is None:
            return None
        if entry.get("fieldPath"):
            raise UndeclaredError(f"`fieldPath` of entry `{name}` is not known")
        data = entry.get("resources", entry.get("data"))
        declared = entry.get("projections") or ()
        projections = {str(each.get("name")): str(each.get("path")) for each in declared}
        return selected(data, projections, name, projection, expression, charge=charge)
