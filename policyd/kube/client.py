"""The operations of an API server, as Protocols; HTTP and memory both implement them.

A caller says which type an answer should have, and gets that type: Structs that name only the
fields they read decode fastest and stay smallest. `dict` gives plain JSON, `msgspec.Raw` the bytes
(copy them before they are kept).
"""

from collections.abc import AsyncGenerator, Callable
from typing import Generic, Literal, Protocol, TypedDict, TypeVar, Unpack

import msgspec

from policyd.api.meta import ObjectMeta, Wire
from policyd.kube.resources import Resource

T = TypeVar("T")

PatchKind = Literal["merge", "json", "strategic", "apply"]
"""RFC 7386; RFC 6902; the API server's own; server-side apply."""

Propagation = Literal["Background", "Foreground", "Orphan"]


class PartialObject(Wire, frozen=True):
    """The metadata of any object, for callers that need no more of an answer."""

    metadata: ObjectMeta = ObjectMeta()


class ListPage(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """Some of a collection's objects, all as of one resource version."""

    items: tuple[T, ...]
    resource_version: str = ""
    continue_: str = ""
    """Ask for the next page with this; empty on the last."""


class WatchEvent(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """One change of a collection. A deletion carries the object's last state."""

    type: Literal["ADDED", "MODIFIED", "DELETED"]
    object: T


class Bookmark(msgspec.Struct, frozen=True, gc=False):
    """All changes up to this version have been sent: a watch can resume from here."""

    resource_version: str


class Selection(TypedDict, total=False):
    """Which objects of a collection are meant: all, unless something here says otherwise."""

    namespace: str
    label_selector: str
    field_selector: str


class Paging(Selection, total=False):
    """Which part of a selection is asked for."""

    limit: int
    """Objects a page, default 500; 0 asks for all at once."""
    continue_: str


class WriteOptions(TypedDict, total=False):
    """How something is written."""

    namespace: str
    subresource: str
    """Such as `status` or `scale`; its object is the answer then, too."""
    dry_run: bool
    """Everything but the storing: admission, defaults and validation take place."""
    field_manager: str
    """The owner of the fields that are set; default `policyd`."""
    warned: Callable[[str], None]
    """Called with each warning of the API server and of webhooks; fields that are not known are
    warned of then, too."""


class PatchOptions(WriteOptions, total=False):
    """How a patch is meant."""

    kind: PatchKind
    """Default `merge`."""
    force: bool
    """With `apply` only: take the fields over that others own."""


class DeleteOptions(TypedDict, total=False):
    """The preconditions of a deletion, and its propagation."""

    namespace: str
    uid: str
    """Delete only if the object has this uid."""
    resource_version: str
    """Delete only if the object has this version."""
    grace_seconds: int
    propagation: Propagation
    dry_run: bool


class Lister(Protocol):
    """Lists and watches. Every method raises an ApiError if it cannot answer."""

    async def page(
        self, resource: Resource, *, into: type[T], **options: Unpack[Paging]
    ) -> ListPage[T]:
        """Return the first part of a collection, or the next after `continue_`.

        Raises:
            GoneError: If `continue_` is too old.
        """
        ...

    def watch(
        self,
        resource: Resource,
        *,
        into: type[T],
        resource_version: str,
        **selection: Unpack[Selection],
    ) -> AsyncGenerator[WatchEvent[T] | Bookmark, None]:
        """Iterate over changes after `resource_version`.

        The iterator ends when the server ends the watch, as it does every few minutes: go on from
        the last version seen. Bookmarks come about once a minute.

        Raises:
            GoneError: If the version is too old to continue from: list again.
            UnreachableError: If the connection broke; earlier events are valid.
            UndecodableError: If an object does not fit `into`; continue from its version.
        """
        ...


class Reader(Lister, Protocol):
    """Reads from an API server. Every method raises an ApiError if it cannot answer."""

    async def get(
        self,
        resource: Resource,
        name: str,
        *,
        into: type[T],
        namespace: str = "",
        subresource: str = "",
    ) -> T:
        """Return one object.

        Raises:
            NotFoundError: If there is none.
        """
        ...

    async def served(self, api_version: str) -> tuple[Resource, ...]:
        """Return the resources of `group/version`, subresources left out.

        Raises:
            NotFoundError: If that version is not served.
        """
        ...


class Writer(Protocol):
    """Writes to an API server. Every method raises an ApiError if it does not succeed."""

    async def create(
        self, resource: Resource, body: object, *, into: type[T], **options: Unpack[WriteOptions]
    ) -> T:
        """Store a new object, and return it as stored.

        `body` is a Struct or plain JSON; `apiVersion` and `kind` are added if they are missing.
        Retried only for reviews and dry runs: after an UnreachableError the object may exist.

        Raises:
            AlreadyExistsError: If the name is taken.
        """
        ...

    async def replace(
        self, resource: Resource, body: object, *, into: type[T], **options: Unpack[WriteOptions]
    ) -> T:
        """Store an object in the place of the one of its name, and return it.

        Raises:
            ConflictError: If `body` has a resource version and it is not the current one.
        """
        ...

    async def patch(
        self,
        resource: Resource,
        name: str,
        patch: object,
        *,
        into: type[T],
        **options: Unpack[PatchOptions],
    ) -> T:
        """Change an object, and return it as stored.

        A merge patch with `metadata.resourceVersion`, or a JSON patch with a `test`, fails when
        the object changed meanwhile.

        Raises:
            ConflictError: If the version is not the current one, or a field has another owner.
        """
        ...

    async def delete(self, resource: Resource, name: str, **options: Unpack[DeleteOptions]) -> None:
        """Delete an object, or have it marked for deletion while finalizers or grace hold it.

        Raises:
            NotFoundError: If there is none.
            ConflictError: If a precondition does not hold.
        """
        ...


class Client(Reader, Writer, Protocol):
    """Reads and writes."""
