"""The metadata that the server writes, and that clients cannot change."""

import random
from uuid import UUID

import msgspec

from policyd.api.meta import rfc3339
from policyd.local.apiserver.registry import Served
from policyd.local.apiserver.status import Object, StatusError, bad_request, conflict

SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""No vowels, so that no word comes out by accident."""

LONGEST_BASE = 58
"""Letters of a generateName that stay, so that the whole name fits 63."""

SYSTEM_FIELDS = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds",
                 "selfLink", "generation")  # fmt: skip
"""The fields that clients may send, and the server sets."""

OTHER_NAMESPACE = (
    "the namespace of the provided object does not match the namespace sent on the request"
)

WITHOUT_GENERATION = frozenset(
    {"", "coordination.k8s.io", "events.k8s.io", "rbac.authorization.k8s.io", "storage.k8s.io"}
)
"""Groups whose objects do not count the changes of their spec; pods do all the same."""

FIRST_GENERATION_ONLY = frozenset({"scheduling.k8s.io"})
"""Groups whose objects stay in their first generation."""


def own_copy(value: Object) -> Object:
    """Copy an object so that it can be changed in place."""
    copied: Object = msgspec.json.decode(msgspec.json.encode(value))
    return copied


def wipe_system_fields(new: Object) -> None:
    """Remove the fields that only the server sets, before an object is created."""
    metadata = new["metadata"]
    if metadata.pop("resourceVersion", ""):
        raise StatusError(500, "", "resourceVersion should not be set on objects to be created")
    for name in SYSTEM_FIELDS:
        metadata.pop(name, None)


def place(new: Object, served: Served, namespace: str) -> None:
    """Put an object into the namespace of the request.

    Raises:
        StatusError: If it names another one.
    """
    metadata = new["metadata"]
    if not served.namespaced:
        metadata.pop("namespace", None)
    elif not metadata.get("namespace"):
        metadata["namespace"] = namespace
    elif metadata["namespace"] != namespace:
        raise bad_request(OTHER_NAMESPACE)


def generate_name(new: Object) -> None:
    """Give an object with `generateName` and no name its name."""
    metadata = new["metadata"]
    if not metadata.get("name") and metadata.get("generateName"):
        suffix = "".join(random.choices(SUFFIX_ALPHABET, k=5))  # noqa: S311 - no secret
        metadata["name"] = metadata["generateName"][:LONGEST_BASE] + suffix


def new_uid() -> str:
    """Return the identifier of something new. It is no secret, and follows from a random seed."""
    return str(UUID(int=random.getrandbits(128), version=4))


def stamp_created(new: Object, served: Served, now: float) -> None:
    """Set the fields that a new object gets from the server."""
    metadata = new["metadata"]
    metadata["uid"] = new_uid()
    metadata["creationTimestamp"] = rfc3339(now)
    if counts_generations(served):
        metadata["generation"] = 1


def counts_generations(served: Served) -> bool:
    """Tell whether objects of this kind carry a generation."""
    if served.group == "resource.k8s.io":
        return served.plural not in ("resourceclaims", "resourceclaimtemplates")
    return served.group not in WITHOUT_GENERATION or served.plural == "pods"


def check_preconditions(old: Object, served: Served, *, uid: str, version: str) -> None:
    """Compare an object with the uid and version that the writer expects; empty matches all.

    Raises:
        StatusError: 409, if it is another one.
    """
    metadata = old["metadata"]
    if uid and uid != metadata["uid"]:
        why = (
            f"Precondition failed: UID in precondition: {uid}, "
            f"UID in object meta: {metadata['uid']}"
        )
        raise conflict(served.resource, metadata["name"], why)
    if version and version != metadata["resourceVersion"]:
        raise conflict(served.resource, metadata["name"])


def stamp_updated(new: Object, old: Object, served: Served) -> None:
    """Keep the fields that a client cannot change, and count the generation."""
    metadata, before = new["metadata"], old["metadata"]
    for name in (*SYSTEM_FIELDS, "name", "namespace", "resourceVersion", "generateName"):
        if name in before:
            metadata[name] = before[name]
        else:
            metadata.pop(name, None)
    changes = counts_generations(served) and served.group not in FIRST_GENERATION_ONLY
    if changes and wish(new) != wish(old):
        metadata["generation"] = before.get("generation", 0) + 1


def wish(value: Object) -> Object:
    """Return the desired state: all fields but type, metadata and status."""
    left_out = {"metadata", "status", "apiVersion", "kind"}
    return {name: part for name, part in value.items() if name not in left_out}
