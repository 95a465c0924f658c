"""Answers of the API server as typed values: objects, pages, and the lines of a watch.

A watch sends one JSON object a line. An event is decoded in one go, type and object together; only
other lines are decoded twice: bookmarks (whose object is empty but for its version),
errors (which carry a Status), and objects that are not as expected.
"""

import sys
from collections.abc import AsyncGenerator, AsyncIterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Generic, TypeVar, cast

import msgspec

from policyd.api.meta import ObjectMeta, Wire
from policyd.kube.client import Bookmark, ListPage, PartialObject, WatchEvent
from policyd.kube.errors import ApiStatus, UndecodableError, error_from_status

T = TypeVar("T")

MOST_LEVELS = 10_000
"""The deepest nesting that the API server accepts: objects may keep unknown fields."""

Problem = msgspec.DecodeError | RecursionError
"""Why an object cannot be read: it has another shape, or is nested deeper than Python allows."""


class _ListMeta(Wire, frozen=True):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct, Generic[T], frozen=True, gc=False):
    items: tuple[T, ...] | None = None
    metadata: _ListMeta = _ListMeta()


class _AnyEvent(msgspec.Struct, frozen=True, gc=False):
    type: str
    object: msgspec.Raw


@lru_cache(maxsize=256)
def _decoder(into: Any) -> "msgspec.json.Decoder[Any]":  # noqa: ANN401 - a type, or a generic of one
    return msgspec.json.Decoder(into)


def decode_object(body: bytes, into: type[T]) -> T:
    """Decode one object.

    Raises:
        UndecodableError: If it is not an *into*.
    """
    try:
        decoded: T = _decoder(cast("Any", into)).decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise undecodable(body, error) from error
    return decoded


def decode_page(body: bytes, into: type[T]) -> ListPage[T]:
    """Decode a list.

    Raises:
        UndecodableError: If it is not one, or an item is not an *into*.
    """
    if into is msgspec.Raw:
        with _any_depth():
            decoded = decode_object(body, _List[into])  # type: ignore[valid-type]
    else:
        decoded = decode_object(body, _List[into])  # type: ignore[valid-type]
    return ListPage(
        decoded.items or (), decoded.metadata.resource_version, decoded.metadata.continue_
    )


def decode_event(line: bytes, into: type[T]) -> WatchEvent[T] | Bookmark:
    """Decode one line of a watch.

    Raises:
        ApiError: The server's error in an event of type ERROR.
        UndecodableError: If the line is not an event, or its object not an *into*.
    """
    try:
        event: WatchEvent[T] = _decoder(WatchEvent[into]).decode(line)  # type: ignore[valid-type]
    except (msgspec.DecodeError, RecursionError) as error:
        return _decode_bookmark(line, error)
    return event


def _decode_bookmark(line: bytes, problem: Problem) -> Bookmark:
    with _any_depth():
        event = decode_object(line, _AnyEvent)
    if event.type == "BOOKMARK":
        metadata = decode_object(event.object, PartialObject).metadata
        return Bookmark(metadata.resource_version)
    if event.type == "ERROR":
        raise error_from_status(decode_object(event.object, ApiStatus), asked="watch")
    error = undecodable(event.object, problem)
    error.deleted = event.type == "DELETED"
    raise error from problem


@contextmanager
def _any_depth() -> Iterator[None]:
    """Let the decoder pass over values that are nested as deep as the API server accepts."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + 2 * MOST_LEVELS)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def undecodable(body: bytes | msgspec.Raw, problem: Problem) -> UndecodableError:
    """Return an error that names the object, as far as its metadata can be read."""
    try:
        with _any_depth():
            metadata = msgspec.json.decode(body, type=PartialObject).metadata
    except (msgspec.DecodeError, RecursionError):
        metadata = ObjectMeta()
    what = f"object `{metadata.key}`" if metadata.name else "an answer of the API server"
    why = "it is nested too deep" if isinstance(problem, RecursionError) else problem
    error = UndecodableError(f"{what} cannot be read: {why}")
    error.key, error.resource_version = metadata.key, metadata.resource_version
    return error


def too_long(what: str, most_bytes: int) -> UndecodableError:
    """Return an error that says that something is too long to be read."""
    return UndecodableError(f"{what} is longer than {most_bytes} bytes, and is not read")


async def split_lines(
    chunks: AsyncIterable[bytes], *, most_bytes: int | None = None
) -> AsyncGenerator[bytes, None]:
    """Cut a stream at its newlines, wherever its chunks end; an unfinished last line is lost.

    Raises:
        UndecodableError: If a line has more bytes than it may have.
    """
    unfinished: list[bytes] = []
    length = 0
    async for chunk in chunks:
        finished, newline, rest = chunk.rpartition(b"\n")
        if newline:
            for line in b"".join((*unfinished, finished)).split(b"\n"):
                if most_bytes is not None and len(line) > most_bytes:
                    raise too_long("an event of a watch", most_bytes)
                if line:
                    yield line
            unfinished.clear()
            length = 0
        if rest:
            unfinished.append(rest)
            length += len(rest)
            if most_bytes is not None and length > most_bytes:
                raise too_long("an event of a watch", most_bytes)
