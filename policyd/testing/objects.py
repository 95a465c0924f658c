"""Objects in memory, as the API server keeps them: versions, generations, finalizers, history.

No admission, defaulting, validation or garbage collection: a test that needs these uses the
embedded cluster. Every object has a status that only its subresource changes.

The embedded API server has a store of its own: it knows only compare-and-swap, as the server's
handlers check and complete objects by the schemas of their kinds first. This one needs no schemas,
so that a test can use any resource, and imports nothing of the embedded cluster.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import UUID

from policyd.api.meta import Json, rfc3339
from policyd.api.queries import parse_query
from policyd.clock import Clock
from policyd.kube.client import Selection
from policyd.kube.errors import ApiError, ApiStatus, error_from_status
from policyd.kube.resources import Resource
from policyd.testing.clock import FakeClock

_SYSTEM_FIELDS = ("uid", "creationTimestamp", "deletionTimestamp", "generation", "namespace")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredChange:
    """One write: the object before and after it; None for no object."""

    version: int
    resource: Resource
    old: Json
    new: Json
    last: Json
    """The object with this change's version, deleted ones included."""


@dataclass(slots=True)
class ObjectStore:
    """All objects of one API server."""

    clock: Clock = field(default_factory=FakeClock)
    version: int = 0
    oldest: int = 0
    """Watches from before this version cannot go on."""
    history: list[StoredChange] = field(default_factory=list)
    listeners: list[Callable[[], None]] = field(default_factory=list)
    """Called after each write."""
    lists: dict[str, tuple[int, list[Json]]] = field(default_factory=dict)
    """Lists given out in part, with their versions: later pages are of the same moment."""
    _objects: dict[tuple[str, str], dict[str, Json]] = field(default_factory=dict)

    def get(self, resource: Resource, namespace: str, name: str) -> Json:
        """Return one object, not to be changed."""
        found = self._all(resource).get(_key(resource, namespace, name))
        if found is None:
            raise refusal(404, "NotFound", f"{_named(resource, name)} not found")
        return found

    def select(self, resource: Resource, selection: Selection) -> list[Json]:
        """Return the selected objects, ordered by key."""
        matches = selector(resource, selection)
        return [obj for _, obj in sorted(self._all(resource).items()) if matches(obj)]

    def create(
        self, resource: Resource, body: Json, *, namespace: str = "", dry_run: bool = False
    ) -> Json:
        """Store a new object without its status."""
        metadata = dict(body.get("metadata") or {})
        namespace = namespace or metadata.get("namespace", "")
        number = self.version + 1
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = f"{metadata['generateName']}{number:05}"
        key = _key(resource, namespace, metadata.get("name", ""))
        if key in self._all(resource):
            message = f"{_named(resource, metadata['name'])} already exists"
            raise refusal(409, "AlreadyExists", message)
        metadata |= {
            "uid": str(UUID(int=number)),
            "generation": 1,
            "creationTimestamp": rfc3339(self.clock.now()),
        }
        if resource.namespaced:
            metadata["namespace"] = namespace
        new = {key: value for key, value in body.items() if key != "status"}
        return self._commit(resource, None, new | {"metadata": metadata}, dry_run=dry_run)

    def put(self, resource: Resource, body: Json) -> Json:
        """Store an object as it is, status included, in the place of any other: to set a scene."""
        metadata = body["metadata"]
        key = _key(resource, metadata.get("namespace", ""), metadata["name"])
        old = self._all(resource).get(key)
        if old is None:
            self.create(resource, body)
            old = self._all(resource)[key]
        whole = old["metadata"] | metadata
        kinds = {"apiVersion": resource.api_version, "kind": resource.kind}
        return self._commit(resource, old, kinds | body | {"metadata": whole}, dry_run=False)

    def replace(
        self, resource: Resource, old: Json, new: Json, *, part: str = "", dry_run: bool = False
    ) -> Json:
        """Store `new` in the place of `old`: all but the status, or the status alone as `part`."""
        given = new.get("metadata", {}).get("resourceVersion")
        if given and given != old["metadata"]["resourceVersion"]:
            name = _named(resource, old["metadata"]["name"])
            raise refusal(409, "Conflict", f"{name} has been modified since it was read")
        merged = _with_status(old, new) if part == "status" else _without_status(old, new)
        if merged == old:
            return old
        return self._commit(resource, old, merged, dry_run=dry_run)

    def delete(  # noqa: PLR0913 - the preconditions and options of a deletion
        self,
        resource: Resource,
        old: Json,
        *,
        uid: str = "",
        version: str = "",
        grace: int | None = None,
        dry_run: bool,
    ) -> None:
        """Delete an object or, if it has finalizers, mark it for deletion.

        A pod that waits for its kubelet, so that it has a grace period, goes if `grace` is 0.
        """
        metadata = old["metadata"]
        if (uid or metadata["uid"], version or metadata["resourceVersion"]) != (
            metadata["uid"],
            metadata["resourceVersion"],
        ):
            name = _named(resource, metadata["name"])
            raise refusal(409, "Conflict", f"a precondition for deleting {name} does not hold")
        if metadata.get("deletionGracePeriodSeconds"):
            if grace == 0:
                now = metadata | {"deletionGracePeriodSeconds": 0}
                self._commit(resource, old, old | {"metadata": now}, dry_run=dry_run)
        elif not metadata.get("finalizers"):
            self._commit(resource, old, None, dry_run=dry_run)
        elif not metadata.get("deletionTimestamp"):
            marked = metadata | {"deletionTimestamp": rfc3339(self.clock.now())}
            self._commit(resource, old, old | {"metadata": marked}, dry_run=dry_run)

    def compact(self) -> None:
        """Drop the past: watches from earlier versions, and unfinished lists, are answered 410."""
        self.oldest = self.version
        self.history.clear()
        self.lists.clear()

    def _all(self, resource: Resource) -> dict[str, Json]:
        return self._objects.setdefault((resource.group, resource.plural), {})

    def _commit(self, resource: Resource, old: Json, new: Json, *, dry_run: bool) -> Json:
        last = new or old
        if new is not None and _is_released(new):
            new = None
        kinds = {"apiVersion": resource.api_version, "kind": resource.kind}
        metadata = last["metadata"] | {"resourceVersion": str(self.version + 1)}
        last = kinds | last | {"metadata": metadata}
        if dry_run:
            return last
        self.version += 1
        key = _key(resource, metadata.get("namespace", ""), metadata["name"])
        if new is None:
            del self._all(resource)[key]
        else:
            new = self._all(resource)[key] = last
        self.history.append(
            StoredChange(version=self.version, resource=resource, old=old, new=new, last=last)
        )
        for listener in self.listeners:
            listener()
        return last


def refusal(code: int, reason: str, message: str) -> ApiError:
    """Return the error that an API server's answer with this Status becomes."""
    return error_from_status(ApiStatus(message=message, reason=reason, code=code), asked="fake")


def selector(resource: Resource, selection: Selection) -> Callable[[Json], bool]:
    """Return whether an object is selected, as a function of it."""
    namespace = selection.get("namespace", "") if resource.namespaced else ""
    labels = parse_query(selection.get("label_selector", ""))
    fields = [term for term in selection.get("field_selector", "").split(",") if term]

    def matches(obj: Json) -> bool:
        metadata = obj["metadata"]
        return (
            (not namespace or metadata.get("namespace") == namespace)
            and labels.matches(metadata.get("labels") or {})
            and all(_field_matches(obj, term) for term in fields)
        )

    return matches


def event_type(
    change: StoredChange, matches: Callable[[Json], bool]
) -> Literal["ADDED", "MODIFIED", "DELETED"] | None:
    """Return the type of a change for a watch: an object that no longer matches is DELETED."""
    before = change.old is not None and matches(change.old)
    after = change.new is not None and matches(change.new)
    if after:
        return "MODIFIED" if before else "ADDED"
    return "DELETED" if before else None


def _field_matches(obj: Json, term: str) -> bool:
    path, _, wanted = term.replace("==", "=").partition("=")
    value: Any = obj
    for step in path.removesuffix("!").split("."):
        value = value.get(step, "") if isinstance(value, Mapping) else ""
    return bool(value == wanted) != path.endswith("!")


def _key(resource: Resource, namespace: str, name: str) -> str:
    if not name:
        raise refusal(422, "Invalid", f"a {resource.kind} needs a name")
    if resource.namespaced and not namespace:
        raise ValueError(f"{resource.kind} `{name}` needs a namespace")
    return f"{namespace}/{name}" if resource.namespaced else name


def _named(resource: Resource, name: str) -> str:
    plural = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
    return f'{plural} "{name}"'


def _is_released(obj: Json) -> bool:
    metadata = obj["metadata"]
    held = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
    return bool(metadata.get("deletionTimestamp")) and not held


def _with_status(old: Json, new: Json) -> Json:
    rest = {key: value for key, value in old.items() if key != "status"}
    return rest | ({"status": new["status"]} if "status" in new else {})


def _without_status(old: Json, new: Json) -> Json:
    metadata = dict(new.get("metadata") or {})
    for name in (*_SYSTEM_FIELDS, "resourceVersion"):
        metadata.pop(name, None)
        if name in old["metadata"]:
            metadata[name] = old["metadata"][name]
    merged = new | {"metadata": metadata}
    merged.pop("status", None)
    if "status" in old:
        merged["status"] = old["status"]
    if _wish(merged) != _wish(old):
        metadata["generation"] = metadata.get("generation", 0) + 1
    return merged


def _wish(obj: Json) -> Json:
    return {key: value for key, value in obj.items() if key not in {"metadata", "status"}}
