"""The namespaces of a cluster, as policies see them."""

from collections.abc import Mapping

import msgspec

from policyd.api.meta import Json, ObjectMeta, Wire

NAME_LABEL = "kubernetes.io/metadata.name"
"""The label that the API server gives every namespace."""


class Namespace(Wire, frozen=True):
    """The part of a Namespace that policies can look at."""

    metadata: ObjectMeta
    spec: Json = None
    status: Json = None


class Namespaces:
    """What is known of each namespace, kept by an informer."""

    def __init__(self) -> None:
        self._known: dict[str, Mapping[str, Json]] = {}

    def take(self, old: Namespace | None, new: Namespace | None) -> None:
        """Take over a namespace that is new, changed, or gone."""
        if new is not None:
            self._known[new.metadata.name] = msgspec.to_builtins(new)
        elif old is not None:
            self._known.pop(old.metadata.name, None)

    def find(self, name: str) -> Mapping[str, Json] | None:
        """Return the Namespace object of a name, None if it is not known (yet)."""
        return self._known.get(name)


def without_cluster(name: str) -> Mapping[str, Json]:
    """Make up a namespace that has nothing but its name, where there is no cluster to ask."""
    return {"metadata": {"name": name, "labels": {NAME_LABEL: name}}}
