"""A Client without a server, for tests of controllers and informers."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import TypeVar, Unpack, cast

import msgspec

from policyd.api.meta import Json
from policyd.kube.client import (
    Bookmark,
    DeleteOptions,
    ListPage,
    Paging,
    PatchOptions,
    Selection,
    WatchEvent,
    WriteOptions,
)
from policyd.kube.decoding import decode_event, decode_object, decode_page
from policyd.kube.errors import ApiError
from policyd.kube.resources import Resource
from policyd.patch.json_patch import apply_json_patch
from policyd.patch.merge_patch import apply_merge_patch
from policyd.patch.operations import PatchError, parse_operations
from policyd.testing.objects import ObjectStore, event_type, refusal, selector

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Write:
    """One write that was asked for, refused ones included."""

    verb: str
    """`create`, `replace`, `patch` or `delete`."""
    resource: Resource
    namespace: str
    name: str
    subresource: str = ""
    body: Json = None


@dataclass(slots=True)
class _Failure:
    error: ApiError
    verb: str
    plural: str
    times: int


@dataclass(slots=True)
class FakeClient:
    """Answers like an API server, from memory; ObjectStore documents the limits.

    `strategic` and `apply` patches need a schema, and are refused.
    """

    store: ObjectStore = field(default_factory=ObjectStore)
    writes: list[Write] = field(default_factory=list)
    """Every write since the beginning."""
    resources: list[Resource] = field(default_factory=list)
    """The resources that discovery lists."""
    _failures: list[_Failure] = field(default_factory=list)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _round: int = 0

    def __post_init__(self) -> None:
        self.store.listeners.append(self._wake)

    def fail(self, error: ApiError, *, verb: str = "", plural: str = "", times: int = 1) -> None:
        """Answer the next requests of this verb and resource with `error`; empty means any."""
        self._failures.append(_Failure(error, verb, plural, times))

    def end_watches(self) -> None:
        """End all watches that are open, as the server does now and then."""
        self._round += 1
        self._wake()

    async def get(
        self,
        resource: Resource,
        name: str,
        *,
        into: type[T],
        namespace: str = "",
        subresource: str = "",
    ) -> T:
        """Return one object; a subresource is the whole object."""
        del subresource
        self._fail_if_set("get", resource)
        return _typed(self.store.get(resource, namespace, name), into)

    async def served(self, api_version: str) -> tuple[Resource, ...]:
        """Return the `resources` of a version."""
        found = tuple(each for each in self.resources if each.api_version == api_version)
        if not found:
            raise refusal(404, "NotFound", "the server could not find the requested resource")
        return found

    async def page(
        self, resource: Resource, *, into: type[T], **options: Unpack[Paging]
    ) -> ListPage[T]:
        """Return a part of a collection; `continue_` fails with 410 after `store.compact()`."""
        self._fail_if_set("page", resource)
        selected = self.store.select(resource, cast("Selection", options))
        return decode_page(msgspec.json.encode(page_of(self.store, selected, options)), into)

    async def watch(
        self,
        resource: Resource,
        *,
        into: type[T],
        resource_version: str,
        **selection: Unpack[Selection],
    ) -> AsyncGenerator[WatchEvent[T] | Bookmark, None]:
        """Iterate over the changes after `resource_version`."""
        self._fail_if_set("watch", resource)
        matches = selector(resource, selection)
        seen, watched = int(resource_version), self._round
        while True:
            # Both before the first yield: changes while the caller works come next.
            changed, lines = self._changed, lines_after(self.store, resource, seen, matches)
            seen = self.store.version
            for line in lines:
                yield decode_event(line, into)
            if watched != self._round:
                return
            await changed.wait()
            self._fail_if_set("watch", resource)

    async def create(
        self, resource: Resource, body: object, *, into: type[T], **options: Unpack[WriteOptions]
    ) -> T:
        """Store a new object, and return it as stored."""
        plain = _plain(body)
        metadata = plain.get("metadata") or {}
        namespace = options.get("namespace", "") or metadata.get("namespace", "")
        self._note(Write("create", resource, namespace, metadata.get("name", ""), "", plain))
        dry_run = options.get("dry_run", False)
        return _typed(
            self.store.create(resource, plain, namespace=namespace, dry_run=dry_run), into
        )

    async def replace(
        self, resource: Resource, body: object, *, into: type[T], **options: Unpack[WriteOptions]
    ) -> T:
        """Store an object in the place of the one of its name, and return it."""
        plain = _plain(body)
        metadata, part = plain["metadata"], options.get("subresource", "")
        namespace = options.get("namespace", "") or metadata.get("namespace", "")
        self._note(Write("replace", resource, namespace, metadata["name"], part, plain))
        old = self.store.get(resource, namespace, metadata["name"])
        dry_run = options.get("dry_run", False)
        return _typed(self.store.replace(resource, old, plain, part=part, dry_run=dry_run), into)

    async def patch(
        self,
        resource: Resource,
        name: str,
        patch: object,
        *,
        into: type[T],
        **options: Unpack[PatchOptions],
    ) -> T:
        """Change an object by a merge patch or a JSON patch, and return it as stored."""
        plain = msgspec.to_builtins(patch)
        namespace, part = options.get("namespace", ""), options.get("subresource", "")
        self._note(Write("patch", resource, namespace, name, part, plain))
        old = self.store.get(resource, namespace, name)
        new = patched(old, plain, kind=options.get("kind", "merge"))
        dry_run = options.get("dry_run", False)
        return _typed(self.store.replace(resource, old, new, part=part, dry_run=dry_run), into)

    async def delete(self, resource: Resource, name: str, **options: Unpack[DeleteOptions]) -> None:
        """Delete an object at once, or mark it if finalizers hold it."""
        namespace = options.get("namespace", "")
        policy = options.get("propagation")
        body = None if policy is None else {"propagationPolicy": policy}
        self._note(Write("delete", resource, namespace, name, body=body))
        self.store.delete(
            resource,
            self.store.get(resource, namespace, name),
            uid=options.get("uid", ""),
            version=options.get("resource_version", ""),
            grace=options.get("grace_seconds"),
            dry_run=options.get("dry_run", False),
        )

    def _note(self, write: Write) -> None:
        self.writes.append(write)
        self._fail_if_set(write.verb, write.resource)

    def _fail_if_set(self, verb: str, resource: Resource) -> None:
        for failure in self._failures:
            if failure.verb in {"", verb} and failure.plural in {"", resource.plural}:
                failure.times -= 1
                if failure.times == 0:
                    self._failures.remove(failure)
                raise failure.error

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def page_of(store: ObjectStore, selected: list[Json], options: Paging) -> Json:
    """Return the part of a list that is asked for, as a list of the API server."""
    token, _, start = options.get("continue_", "").partition(":")
    if token and token not in store.lists:
        raise refusal(410, "Expired", "the continuation of the list is too old")
    version, items = store.lists[token] if token else (store.version, selected)
    first = int(start or 0)
    end = first + (options.get("limit", 500) or len(items))
    metadata = {"resourceVersion": str(version)}
    if end < len(items):
        token = token or str(len(store.lists))
        store.lists[token] = (version, items)
        metadata["continue"] = f"{token}:{end}"
    return {"kind": "List", "metadata": metadata, "items": items[first:end]}


def lines_after(
    store: ObjectStore, resource: Resource, version: int, matches: Callable[[Json], bool]
) -> list[bytes]:
    """Return the events after a version as lines of a watch.

    Raises:
        GoneError: If the history does not go back as far.
    """
    if version < store.oldest:
        raise refusal(410, "Expired", f"too old resource version: {version} ({store.oldest})")
    return [
        msgspec.json.encode({"type": kind, "object": change.last})
        for change in store.history
        if change.version > version
        and (change.resource.group, change.resource.plural) == (resource.group, resource.plural)
        and (kind := event_type(change, matches))
    ]


def patched(old: Json, patch: Json, *, kind: str) -> Json:
    """Return the object that a patch makes of another."""
    try:
        if kind == "merge":
            return apply_merge_patch(old, patch)
        if kind == "json":
            return apply_json_patch(old, parse_operations(patch))
    except PatchError as error:
        raise refusal(422, "Invalid", str(error)) from error
    raise refusal(415, "UnsupportedMediaType", f"the fake client knows no {kind} patches")


def _plain(body: object) -> dict[str, Json]:
    plain: dict[str, Json] = msgspec.to_builtins(body)
    return plain


def _typed(obj: Json, into: type[T]) -> T:
    return decode_object(msgspec.json.encode(obj), into)
