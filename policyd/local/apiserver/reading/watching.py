"""Answering a watch: its first events, then every change, in the client's format."""

import random
from collections.abc import AsyncIterator
from functools import partial

import msgspec

from policyd.local.apiserver.checks.options import check_list_options
from policyd.local.apiserver.conversion import for_table, to_served
from policyd.local.apiserver.reading.read import form_wanted, metadata_only
from policyd.local.apiserver.reading.selectors import Selects, selection
from policyd.local.apiserver.reading.tables import table
from policyd.local.apiserver.reading.watch import Watcher, WatchLine, WatchTerms, changes, follow
from policyd.local.apiserver.requests import ApiRequest
from policyd.local.apiserver.state import ServerState
from policyd.local.apiserver.status import Object, failure
from policyd.local.apiserver.store import TooOldError
from policyd.local.apiserver.wire.responses import Form, Stream

WATCH_SECONDS = 1800.0
"""How long a watch lasts when the client does not say; up to twice that, to spread reconnects."""

INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class WatchWriter:
    """Writes the lines of one watch in the form the client wants."""

    def __init__(self, request: ApiRequest, form: Form) -> None:
        self._request = request
        self._form = form
        self._headers_sent = False

    def lines(self, notices: list[WatchLine], *, now: float) -> bytes:
        """Encode notices, one line each."""
        return b"".join(
            msgspec.json.encode({"type": n.type, "object": self._shown(n, now)}) + b"\n"
            for n in notices
        )

    def _shown(self, notice: WatchLine, now: float) -> Object:
        served = self._request.served
        if notice.type == "BOOKMARK" or notice.object is None:
            about: Object = {"resourceVersion": str(notice.version)}
            if notice.object:
                about["annotations"] = notice.object
            return {"kind": served.kind, "apiVersion": served.api_version, "metadata": about}
        shown = to_served(served, notice.object)
        match self._form:
            case "object":
                return shown
            case "PartialObjectMetadata":
                return metadata_only(shown)
            case "Table":
                about = {"resourceVersion": str(notice.version)}
                shown = for_table(served, notice.object)
                written = table(self._request, [shown], about=about, now=now)
                if self._headers_sent:
                    written["columnDefinitions"] = None
                self._headers_sent = True
                return written


async def watch(state: ServerState, request: ApiRequest) -> Stream:
    """Answer GET on a collection with `watch=true`."""
    check_list_options(request)
    form, selects = form_wanted(request), selection(request)
    watcher = Watcher(selects)
    stop = state.store.listen(watcher.offer, request.served.storage)
    # No await is between listening and reading: no change is missed or sent twice.
    try:
        first = _first_notices(state, request, selects)
    except TooOldError as error:
        stop()
        text = f"too old resource version: {request.options.text('resourceVersion')} ({error})"
        return Stream(chunks=_once(failure(410, "Expired", text)), close=watcher.close)
    state.watchers.add(watcher)

    def close() -> None:
        # The client's hanging up and the end of the answer both close a watch.
        if watcher in state.watchers:
            state.watchers.discard(watcher)
            watcher.close()
            stop()

    return Stream(
        chunks=_chunks(state, request, watcher, first, WatchWriter(request, form)), close=close
    )


def _first_notices(state: ServerState, request: ApiRequest, selects: Selects) -> list[WatchLine]:
    """Return the first events of a watch: the present objects, or the changes since a version."""
    resource, version = request.served.storage, request.options.integer("resourceVersion") or 0
    initial = request.options.flag("sendInitialEvents")
    if version and not initial:
        return changes(state.store.since(resource, version), selects)
    notices = [
        WatchLine("ADDED", value, int(value["metadata"]["resourceVersion"]))
        for _, value in state.store.items(resource, request.target.namespace)
        if selects(value)
    ]
    if initial:
        notices.append(WatchLine("BOOKMARK", {INITIAL_EVENTS_END: "true"}, state.store.version))
    return notices


async def _once(status: Object) -> AsyncIterator[bytes]:
    yield msgspec.json.encode({"type": "ERROR", "object": status}) + b"\n"


async def _chunks(
    state: ServerState,
    request: ApiRequest,
    watcher: Watcher,
    first: list[WatchLine],
    writer: WatchWriter,
) -> AsyncIterator[bytes]:
    def now() -> float:
        return state.clock.now()

    if first:
        yield writer.lines(first, now=now())
    terms = _terms(request)
    version = partial(getattr, state.store, "version")
    async for notices in follow(watcher, terms, clock=state.clock, version=version):
        yield writer.lines(notices, now=now())


def _terms(request: ApiRequest) -> WatchTerms:
    seconds = request.options.integer("timeoutSeconds")
    spread = WATCH_SECONDS * (1 + random.random())  # noqa: S311 - nothing depends on the number
    return WatchTerms(
        seconds=spread if seconds is None else float(seconds),
        bookmarks=request.options.flag("allowWatchBookmarks"),
    )
