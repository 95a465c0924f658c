"""Who answers what Kyverno's policies ask the world outside for: what the caller provides."""

from collections.abc import Mapping
from typing import Any, Protocol

Json = Any
"""A decoded JSON value."""


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


class OwnResources(Protocol):
    """Reads the objects of one namespace."""

    def get(self, api_version: str, resource: str, name: str) -> Json | None:
        """Return an object; None if it is not there."""
        ...

    def list(self, api_version: str, resource: str, labels: Mapping[str, str]) -> Json:
        """Return a list object, with `items`."""
        ...

    def post(self, api_version: str, resource: str, body: Json) -> Json:
        """Ask a question about the namespace; return the answer."""
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

    def get(self, name: str, projection: str) -> Json:
        """Return what an entry holds; None if there is none."""
        ...


class ImageData(Protocol):
    """Reads registries."""

    def metadata(self, image: str) -> Json:
        """Return an image's manifest and configuration."""
        ...
