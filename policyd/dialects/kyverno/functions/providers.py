"""Define providers of external data, and confine them to one namespace."""

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from policyd.api.meta import Json
from policyd.engine.evaluate.patches import to_json
from policyd.engine.model.confinement import ElsewhereError
from policyd.engine.objects.workloads import value_at


class ClusterReads(Protocol):
    """Reads the cluster's objects."""

    def get(self, api_version: str, resource: str, namespace: str, name: str) -> Json | None:
        """Return an object; None if it is not there."""
        ...

    def list(
        self, api_version: str, resource: str, namespace: str, labels: Mapping[str, str]
    ) -> Json:
        """Return a list object, with `items`."""
        ...

    def post(self, api_version: str, resource: str, namespace: str, body: Json) -> Json:
        """Ask a question by creating an object, as a SubjectAccessReview; return the answer."""
        ...

    def namespaced(self, api_version: str, resource: str) -> bool:
        """Tell whether the objects of a resource live in namespaces."""
        ...


class Http(Protocol):
    """Sends requests."""

    def send(self, method: str, url: str, body: Json | None, headers: Mapping[str, str]) -> Json:
        """Return the decoded answer."""
        ...

    def trusting(self, certificates: str) -> "Http":
        """Return a client that trusts the authorities of a PEM bundle."""
        ...


class GlobalContext(Protocol):
    """Reads GlobalContextEntries."""

    def get(
        self, name: str, projection: str, expression: str, charge: Callable[[int], None]
    ) -> Json:
        """Return the data of an entry, or what JMESPath selects of it; None if there is none.

        Args:
            name: The entry.
            projection: One of its projections; empty for all of its data.
            expression: JMESPath to evaluate on that; empty for all of it.
            charge: Is called with the work of each step.
        """
        ...


class ImageData(Protocol):
    """Reads registries."""

    def metadata(self, image: str) -> Json:
        """Return an image's manifest and configuration."""
        ...


_GROUP: Final = "authorization.k8s.io/v1"
_REVIEW: Final = "localsubjectaccessreviews"


class OwnObjects:
    """The objects of one namespace."""

    def __init__(self, resources: ClusterReads, namespace: str) -> None:
        """Read the objects of a namespace from those of the cluster."""
        self._resources = resources
        self.namespace = namespace

    def get(self, api_version: str, resource: str, name: str) -> Json | None:
        """Return an object; None if it is not there.

        Raises:
            PolicydError: If objects of the kind belong to the cluster, or cannot be read.
        """
        self._check(api_version, resource)
        return self._resources.get(api_version, resource, self.namespace, name)

    def list(self, api_version: str, resource: str, labels: Mapping[str, str]) -> Json:
        """Return a list object.

        Raises:
            PolicydError: If objects of the kind belong to the cluster, or cannot be read.
        """
        self._check(api_version, resource)
        return self._resources.list(api_version, resource, self.namespace, labels)

    def post(self, api_version: str, resource: str, body: Json) -> Json:
        """Answer a LocalSubjectAccessReview: permissions in the namespace.

        Raises:
            PolicydError: If it is another question, or there is no answer.
        """
        if (api_version, resource) != (_GROUP, _REVIEW):
            asked = f"`{api_version}/{resource}`: it asks by `{_GROUP}/{_REVIEW}`"
            raise ElsewhereError(self.namespace, asked)
        spec = value_at(to_json(body), ("spec",))
        about = value_at(spec, ("resourceAttributes", "namespace"))
        if about != self.namespace or value_at(spec, ("nonResourceAttributes",)) is not None:
            asked = "permissions elsewhere: give `resourceAttributes.namespace`"
            raise ElsewhereError(self.namespace, asked)
        found = self._resources.post(_GROUP, "subjectaccessreviews", "", {"spec": spec})
        named = {"kind": "LocalSubjectAccessReview", "metadata": {"namespace": self.namespace}}
        return {**found, **named}

    def _check(self, api_version: str, resource: str) -> None:
        if not self._resources.namespaced(api_version, resource):
            asked = f"`{api_version}/{resource}`, which belongs to the cluster"
            raise ElsewhereError(self.namespace, asked)
