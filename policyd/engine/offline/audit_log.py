"""Turn events of the API server's audit log into the requests that policies decide on.

An event (`audit.k8s.io/v1`) names the user, the resource and the object of a request; the objects
themselves are in it if the audit policy logs them. Objects before a change come from earlier events
of the log. What cannot be judged is counted with its reason.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, Literal, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

from policyd.api.admission import (
    MAXIMUM_LEVELS,
    NO_OBJECT,
    AdmissionRequest,
    GroupVersionKind,
    GroupVersionResource,
    Operation,
    UserInfo,
    nested_deeper,
)
from policyd.api.kueue.names import QUEUE_NAME
from policyd.api.meta import Json
from policyd.errors import PolicydError

API_GROUP: Final = "audit.k8s.io"
API_VERSION: Final = "audit.k8s.io/v1"

MOST_OLD_BYTES: Final = 128 * 1024 * 1024
"""Bytes of objects that are kept as they were before a change; the oldest are dropped."""

MOST_IDS: Final = 1_000_000
"""Requests of which a second event is noticed, at least; of the latest."""

MOST_OWNERS: Final = 100_000
"""Objects whose controller is kept."""

MOST_NAMESPACES: Final = 20_000
"""Namespaces of the log that are kept."""

_MOST_RESOURCES: Final = 10_000
_DEEPEST_OWNER: Final = 8

Unjudged = Literal["metadata", "truncated", "patch", "old-object", "collection", "body", "nested"]
"""The reason why a request cannot be judged; each has a sentence in `UNJUDGED`."""

UNJUDGED: Final[Mapping[Unjudged, tuple[str, str]]] = {
    "metadata": (
        "logged without their objects (level Metadata)",
        "log these resources at level RequestResponse in the audit policy",
    ),
    "truncated": (
        "logged without their objects, which were too large (`audit.k8s.io/truncated`)",
        "raise --audit-log-truncate-max-event-size of the API server",
    ),
    "patch": (
        "patches without the resulting object (level Request)",
        "log these resources at level RequestResponse in the audit policy",
    ),
    "old-object": (
        "changes or deletions of objects that the log does not have as they were before,"
        " which the policies read",
        "add earlier files of the log",
    ),
    "collection": (
        "deletions of collections without the deleted objects",
        "log these resources at level RequestResponse in the audit policy",
    ),
    "body": ("logged without an object of Kubernetes", ""),
    "nested": (f"objects nested deeper than {MAXIMUM_LEVELS} levels", ""),
}
"""Why requests cannot be judged, and what helps."""


class AuditError(PolicydError):
    """A line is not an audit event."""


class LoggedReference(msgspec.Struct, frozen=True, rename="camel"):
    """The object that a request names."""

    resource: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    api_group: str = ""
    api_version: str = ""
    subresource: str = ""


class _ResponseStatus(msgspec.Struct, frozen=True):
    code: int = 0


class AuditEvent(msgspec.Struct, frozen=True, rename="camel"):
    """One event; the objects in it stay bytes."""

    kind: str
    api_version: str
    level: str = ""
    audit_id: str = msgspec.field(name="auditID", default="")
    stage: str = ""
    request_uri: str = msgspec.field(name="requestURI", default="")
    verb: str = ""
    user: UserInfo = UserInfo()
    impersonated_user: UserInfo | None = None
    object_ref: LoggedReference | None = None
    response_status: _ResponseStatus | None = None
    request_object: msgspec.Raw = NO_OBJECT
    response_object: msgspec.Raw = NO_OBJECT
    request_received_timestamp: str = ""
    stage_timestamp: str = ""
    annotations: dict[str, str] | None = None

    @property
    def code(self) -> int:
        """The HTTP status of the answer; 0 if it is not known."""
        return self.response_status.code if self.response_status else 0

    @property
    def time(self) -> str:
        """When the request came, as the log writes it."""
        return self.request_received_timestamp or self.stage_timestamp


class _Owner(msgspec.Struct, frozen=True):
    kind: str = ""
    name: str = ""
    controller: bool | None = None


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    labels: dict[str, str] | None = None
    owner_references: tuple[_Owner, ...] | None = None


class _Status(msgspec.Struct, frozen=True):
    phase: str = ""


class ObjectHead(msgspec.Struct, frozen=True, rename="camel"):
    """The fields of an object that say which one it is, and what became of it."""

    api_version: str = ""
    kind: str = ""
    metadata: _Metadata = _Metadata()
    status: msgspec.Raw = NO_OBJECT

    @property
    def controller(self) -> tuple[str, str] | None:
        """Kind and name of its controller."""
        for owner in self.metadata.owner_references or ():
            if owner.controller:
                return owner.kind, owner.name
        return None

    @property
    def phase(self) -> str:
        """Its phase, such as `Running`; empty if it has none."""
        try:
            return _STATUS.decode(self.status).phase
        except (msgspec.DecodeError, UnicodeDecodeError):
            return ""


class _Events(msgspec.Struct, frozen=True, rename="camel"):
    kind: Literal["EventList"]
    api_version: str
    items: tuple[msgspec.Raw, ...] = ()


class _Listed(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str = ""
    kind: str = ""
    items: tuple[msgspec.Raw, ...] | None = None


_EVENT: Final = msgspec.json.Decoder(AuditEvent)
_EVENTS: Final = msgspec.json.Decoder(_Events)
_HEAD: Final = msgspec.json.Decoder(ObjectHead)
_STATUS: Final = msgspec.json.Decoder(_Status)
_ANY: Final = msgspec.json.Decoder()
_NULL: Final = b"null"

_LIST: Final = "List"
_SUCCEEDED: Final = frozenset({"Succeeded", "Failed"})

_WRITES: Final[Mapping[str, Operation]] = {
    "create": "CREATE",
    "update": "UPDATE",
    "patch": "UPDATE",
    "delete": "DELETE",
    "deletecollection": "DELETE",
}
_CONNECTIONS: Final = {
    ("pods", "exec"): "PodExecOptions",
    ("pods", "attach"): "PodAttachOptions",
    ("pods", "portforward"): "PodPortForwardOptions",
    ("pods", "proxy"): "PodProxyOptions",
    ("services", "proxy"): "ServiceProxyOptions",
    ("nodes", "proxy"): "NodeProxyOptions",
}
"""The kinds of the options with which something is connected to; the log has them in the URI."""

_WHOLE: Final = frozenset({"", "status", "ephemeralcontainers", "resize", "finalize", "approval"})
"""Subresources whose requests and answers have the whole object."""


class LoggedKey(NamedTuple):
    """The names of an object in the log; the name is empty if the API server made it up unseen."""

    group: str
    resource: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Gone:
    """An object is deleted, or has ended; without a name, all of a namespace, or everywhere.

    Attributes:
        key: The names; an empty resource stands for everything in the namespace.
    """

    key: LoggedKey


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedRequest:
    """A request of the log, as the webhooks would have got it.

    Attributes:
        request: The request.
        key: The names of its object, as it was stored.
        name: The name of the object; with `*` at the end if the log has only its beginning.
        owner: Kind and name of the topmost controller of the object; of itself if it has none.
        controlled: Whether it has a controller.
        queue: The queue that the object names by its label.
        refused: Whether the API server refused it then, for any reason.
        time: When it came, as the log writes it.
    """

    request: AdmissionRequest
    key: LoggedKey
    name: str
    owner: tuple[str, str]
    controlled: bool
    queue: str
    refused: bool
    time: str


@dataclass(slots=True)
class LogCounts:
    """The events of a log, by what became of them.

    Attributes:
        events: All that could be read.
        others: Reads, and earlier stages of requests.
        repeated: Events of requests that were counted before.
        unconcerned: Writes that no policy concerns.
        first_unconcerned: The first of these.
        unjudged: Requests that policies concern and that cannot be judged, by the reason.
        first: The first of these, by the reason.
    """

    events: int = 0
    others: int = 0
    repeated: int = 0
    unconcerned: int = 0
    first_unconcerned: AdmissionRequest | None = None
    unjudged: Counter[Unjudged] = field(default_factory=Counter)
    first: dict[Unjudged, str] = field(default_factory=dict)


def read_events(line: bytes) -> Iterator[AuditEvent]:
    """Yield the event of a line, or the events of a list.

    Raises:
        AuditError: If it is none of `audit.k8s.io/v1`.
    """
    if nested_deeper(line, MAXIMUM_LEVELS * 2):
        raise AuditError(f"nested deeper than {MAXIMUM_LEVELS * 2} levels")
    event = _decoded(line)
    if event.kind != "EventList":
        yield _checked(event)
        return
    try:
        items = _EVENTS.decode(line).items
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise AuditError(f"not a list of audit events: {error}") from error
    for item in items:
        yield _checked(_decoded(bytes(item)))


def _decoded(line: bytes) -> AuditEvent:
    try:
        try:
            return _EVENT.decode(line)
        except UnicodeDecodeError:
            return _EVENT.decode(line.decode(errors="replace").encode())
    except (msgspec.DecodeError, RecursionError) as error:
        raise AuditError(f"not an audit event: {error}") from error


def _checked(event: AuditEvent) -> AuditEvent:
    if event.api_version != API_VERSION or event.kind not in ("Event", "EventList"):
        found = f"{event.kind} of {event.api_version}"
        raise AuditError(f"not an Event of {API_VERSION}: {found[:100]}")
    return event


def is_audit_log(line: bytes) -> bool:
    """Tell whether a line is an audit event, of any version."""
    try:
        event = _decoded(line)
    except AuditError:
        return False
    return event.api_version.startswith(f"{API_GROUP}/")


class _Latest:
    """Ids that were seen: the latest, in two halves, so that memory is bounded."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._new: set[int] = set()
        self._old: set[int] = set()

    def is_new(self, text: str) -> bool:
        """Tell whether an id was not seen before, and note it."""
        digest = blake2b(text.encode(errors="replace"), digest_size=8).digest()
        number = int.from_bytes(digest)
        if number in self._new or number in self._old:
            return False
        if len(self._new) >= self._most:
            self._old, self._new = self._new, set()
        self._new.add(number)
        return True


class _Stored:
    """Objects as they were stored last, up to a number of bytes."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._bytes = 0
        self._objects: OrderedDict[LoggedKey, bytes] = OrderedDict()

    def get(self, key: LoggedKey) -> bytes | None:
        return self._objects.get(key)

    def put(self, key: LoggedKey, obj: bytes) -> None:
        self.drop(key)
        self._objects[key] = obj
        self._bytes += len(obj)
        while self._bytes > self._most:
            _, oldest = self._objects.popitem(last=False)
            self._bytes -= len(oldest)

    def drop(self, key: LoggedKey) -> None:
        self._bytes -= len(self._objects.pop(key, b""))


class RecentOwners:
    """The controllers of objects, of those that were seen last."""

    def __init__(self) -> None:
        self._owners: OrderedDict[tuple[str, str, str], tuple[str, str]] = OrderedDict()

    def learn(
        self, namespace: str, kind: str, name: str, controller: tuple[str, str] | None
    ) -> None:
        """Keep kind and name of the controller of an object, if it has one."""
        if controller is not None:
            self._owners[namespace, kind, name] = controller
            if len(self._owners) > MOST_OWNERS:
                self._owners.popitem(last=False)

    def learn_from(self, obj: Json) -> None:
        """Keep the controller of an object, be it one or not."""
        head = head_of(msgspec.Raw(msgspec.json.encode(obj)))
        self.learn(head.metadata.namespace, head.kind, head.metadata.name, head.controller)

    def topmost(self, namespace: str, owner: tuple[str, str]) -> tuple[str, str]:
        """Return kind and name of the topmost controller above an owner, or the owner."""
        for _ in range(_DEEPEST_OWNER):
            above = self._owners.get((namespace, *owner))
            if above is None or above == owner:
                break
            owner = above
        return owner


class AuditReader:
    """Makes requests of events, in the order of the log."""

    def __init__(
        self,
        concerned: Callable[[AdmissionRequest], bool],
        reads_old: Callable[[AdmissionRequest], bool],
        *,
        as_stored: bool = True,
    ) -> None:
        """Take what matters of the log.

        Args:
            concerned: Tells whether something decides on requests for a resource and operation.
            reads_old: Tells whether that reads the object before the change.
            as_stored: Whether to judge objects as they were stored, rather than as they were sent.
                Stored ones have the defaults of the API server and of its admission plugins, which
                policies see, too.
        """
        self._concerned = concerned
        self._reads_old = reads_old
        self._as_stored = as_stored
        self.counts = LogCounts()
        """The events so far."""
        self.namespaces: dict[str, Json] = {}
        """The Namespaces that the log has, as they were last."""
        self._ids = _Latest(MOST_IDS)
        self._stored = _Stored(MOST_OLD_BYTES)
        self._owners = RecentOwners()
        self._kept: dict[tuple[str, str, str], bool] = {}

    def take(self, event: AuditEvent) -> Iterator[LoggedRequest | Gone]:
        """Yield the requests of an event, and then the objects that are gone by it."""
        self.counts.events += 1
        asked = _Asked.of(event) if event.stage in ("ResponseComplete", "Panic") else None
        if asked is None:
            self.counts.others += 1
            if event.stage == "ResponseComplete" and event.verb == "get":
                self._learn(event)
            return
        if event.audit_id and not self._ids.is_new(event.audit_id):
            self.counts.repeated += 1
            return
        if self._concerned(asked.request):
            yield from self._requests(event, asked)
        else:
            self.counts.unconcerned += 1
            self.counts.first_unconcerned = self.counts.first_unconcerned or asked.request
        if not asked.failed and not asked.request.dry_run:
            yield from self._effects(event, asked)

    def _requests(self, event: AuditEvent, asked: "_Asked") -> Iterator[LoggedRequest]:
        if event.verb == "deletecollection":
            yield from self._of_collection(event, asked)
            return
        try:
            request = self._completed(event, asked)
        except _UnjudgedError as error:
            self._skip(error.reason, event)
            return
        yield self._logged(event, asked, request)

    def _logged(
        self, event: AuditEvent, asked: "_Asked", request: AdmissionRequest
    ) -> LoggedRequest:
        present = bytes(request.object) != _NULL
        head = head_of(request.object if present else request.old_object)
        stored = head_of(event.response_object) if event.verb == "create" else head
        key = asked.key
        if not key.name:
            key = key._replace(name=head.metadata.name or stored.metadata.name)
        name = key.name or f"{head.metadata.generate_name}*"
        owner = head.controller or (head.kind or request.kind.kind or key.resource, name)
        if head.controller:
            owner = self._owners.topmost(key.namespace, owner)
        labels = head.metadata.labels or {}
        return LoggedRequest(
            request=request,
            key=key,
            name=name,
            owner=owner,
            controlled=head.controller is not None,
            queue=labels.get(QUEUE_NAME, ""),
            refused=asked.failed,
            time=event.time,
        )

    def _of_collection(self, event: AuditEvent, asked: "_Asked") -> Iterator[LoggedRequest]:
        """Yield the deletion of each object of a collection."""
        try:
            listed = msgspec.json.decode(event.response_object, type=_Listed)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            listed = _Listed()
        if listed.items is None or not listed.kind.endswith(_LIST):
            self._skip(_without_body(event) or "collection", event)
            return
        kind = listed.kind.removesuffix(_LIST)
        for item in listed.items:
            try:
                old = _named(item, listed.api_version, kind)
            except _UnjudgedError as error:
                self._skip(error.reason, event)
                continue
            request = msgspec.structs.replace(
                asked.request, kind=_kind(listed.api_version, kind), old_object=old
            )
            yield self._logged(event, asked, request)

    def _completed(self, event: AuditEvent, asked: "_Asked") -> AdmissionRequest:
        """Return the request of an event with its objects.

        Raises:
            _UnjudgedError: If the log does not have them.
        """
        request = asked.request
        if request.operation == "CONNECT":
            return request
        if request.operation == "DELETE":
            old = self._old(event, asked)
            head = head_of(old)
            kind = _kind(head.api_version, head.kind)
            return msgspec.structs.replace(request, kind=kind, old_object=old)
        obj = self._object(event, asked)
        head = head_of(obj)
        if not head.kind:
            raise _UnjudgedError("body")
        if request.namespace and head.metadata.namespace != request.namespace:
            obj = _in_namespace(obj, request)
        name = request.name or head.metadata.name
        request = msgspec.structs.replace(
            request,
            object=obj,
            kind=_kind(head.api_version, head.kind),
            name=name,
            namespace=name if _is_namespace(request) else request.namespace,
        )
        if request.operation == "UPDATE":
            old = self._old(event, asked, obj)
            return msgspec.structs.replace(request, old_object=old)
        return request

    def _object(self, event: AuditEvent, asked: "_Asked") -> msgspec.Raw:
        """Return the object that a request creates or changes."""
        sent = head_of(event.request_object)
        answer = head_of(event.response_object)
        is_patch = event.verb == "patch"
        whole = not asked.failed and answer.kind and answer.kind != "Status"
        same = (answer.api_version, answer.kind) == (sent.api_version, sent.kind)
        if whole and (is_patch or (self._as_stored and same)):
            return _bounded(event.response_object)
        if is_patch:
            raise _UnjudgedError(_without_body(event) or "patch")
        if not sent.kind:
            raise _UnjudgedError(_without_body(event) or "body")
        return _bounded(event.request_object)

    def _old(self, event: AuditEvent, asked: "_Asked", new: msgspec.Raw = NO_OBJECT) -> msgspec.Raw:
        """Return the object before a change; the new one if no policy reads it.

        Raises:
            _UnjudgedError: If the log does not have it, and a policy reads it.
        """
        stored = self._stored.get(_stored_key(asked))
        if stored is not None:
            return msgspec.Raw(stored)
        if event.verb == "delete":
            head = head_of(event.response_object)
            if head.kind and head.kind != "Status" and not asked.request.sub_resource:
                return _before_deletion(_bounded(event.response_object))
        if self._reads_old(asked.request):
            raise _UnjudgedError(_without_body(event) or "old-object")
        return new

    def _effects(self, event: AuditEvent, asked: "_Asked") -> Iterator[Gone]:
        """Keep what a request stored, and yield what is gone by it."""
        key, request = asked.key, asked.request
        if request.operation == "CONNECT":
            return
        evicted = (request.resource.resource, request.sub_resource) == ("pods", "eviction")
        if evicted or (request.operation == "DELETE" and not request.sub_resource):
            selected = "Selector=" in event.request_uri
            if event.verb == "deletecollection" and selected:
                yield from self._selected(event, asked)
                return
            self._stored.drop(key)
            if _is_namespace(request):
                self.namespaces.pop(key.name, None)
                yield Gone(LoggedKey("", "", key.name, ""))
            yield Gone(key)
            return
        if request.sub_resource == "scale" and request.operation == "UPDATE":
            self._stored.drop(key)
        if request.sub_resource in _WHOLE:
            yield from self._keep(event, asked)

    def _selected(self, event: AuditEvent, asked: "_Asked") -> Iterator[Gone]:
        """Yield the objects of a collection that were deleted, as far as the log has them."""
        try:
            items = msgspec.json.decode(event.response_object, type=_Listed).items or ()
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return
        for item in items:
            metadata = head_of(item).metadata
            if metadata.name:
                namespace = metadata.namespace or asked.key.namespace
                gone = asked.key._replace(name=metadata.name, namespace=namespace)
                self._stored.drop(gone)
                yield Gone(gone)

    def _keep(self, event: AuditEvent, asked: "_Asked") -> Iterator[Gone]:
        obj, head = event.response_object, head_of(event.response_object)
        if not head.kind or head.kind == "Status":
            if event.verb == "patch":
                self._forget(asked)
                return
            obj, head = event.request_object, head_of(event.request_object)
        if not head.kind:
            self._forget(asked)
            return
        name = asked.key.name or head.metadata.name
        key = asked.key._replace(name=name)
        if _is_namespace(asked.request):
            key = key._replace(namespace="")
        if name:
            self._note(key, head, obj)
        if key.resource == "pods" and head.phase in _SUCCEEDED:
            yield Gone(key)

    def _forget(self, asked: "_Asked") -> None:
        """Drop an object that was changed, as the log does not have what became of it."""
        self._stored.drop(asked.key)
        if _is_namespace(asked.request) and not asked.request.sub_resource:
            self.namespaces.pop(asked.key.name, None)

    def _learn(self, event: AuditEvent) -> None:
        """Keep an object that was read."""
        ref, head = event.object_ref, head_of(event.response_object)
        if ref is None or ref.subresource or not head.metadata.name or head.kind == "Status":
            return
        if event.code == _OK:
            key = LoggedKey(ref.api_group, ref.resource, ref.namespace, ref.name)
            if (ref.api_group, ref.resource) == ("", "namespaces"):
                key = key._replace(namespace="")
            self._note(key, head, event.response_object)

    def _note(self, key: LoggedKey, head: ObjectHead, obj: msgspec.Raw) -> None:
        """Keep an object as it is stored, if a later request may need it."""
        self._owners.learn(key.namespace, head.kind, key.name, head.controller)
        if (key.group, key.resource) == ("", "namespaces") and len(obj) <= _LONGEST_NAMESPACE:
            self._learn_namespace(key.name, obj)
        version = head.api_version.rpartition("/")[2]
        about = key.group, version, key.resource
        kept = self._kept.get(about)
        if kept is None:
            resource = GroupVersionResource(key.group, version, key.resource)
            kept = any(
                self._concerned(
                    AdmissionRequest("", GroupVersionKind(), resource, operation, sub_resource=sub)
                )
                for operation in _CHANGES
                for sub in sorted(_WHOLE)
            )
            if len(self._kept) < _MOST_RESOURCES:
                self._kept[about] = kept
        if kept:
            self._stored.put(key, bytes(obj))

    def _learn_namespace(self, name: str, obj: msgspec.Raw) -> None:
        try:
            value = _ANY.decode(obj)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return
        self.namespaces.pop(name, None)
        self.namespaces[name] = value
        if len(self.namespaces) > MOST_NAMESPACES:
            del self.namespaces[next(iter(self.namespaces))]

    def _skip(self, reason: Unjudged, event: AuditEvent) -> None:
        self.counts.unjudged[reason] += 1
        if reason not in self.counts.first:
            ref = event.object_ref or LoggedReference()
            parts = [each for each in (ref.namespace, ref.name) if each]
            resource = f"{ref.resource}/{ref.subresource}" if ref.subresource else ref.resource
            self.counts.first[reason] = f"{event.verb} {resource} {'/'.join(parts)}".strip()[:300]


_OK: Final = 200
_CREATED: Final = 201
_FAILED: Final = 400
_CHANGES: Final[tuple[Operation, ...]] = ("UPDATE", "DELETE")
_LONGEST_NAMESPACE: Final = 64 * 1024
_LONGEST_URI: Final = 64 * 1024


class _UnjudgedError(Exception):
    def __init__(self, reason: Unjudged) -> None:
        super().__init__(reason)
        self.reason: Unjudged = reason


@dataclass(frozen=True, slots=True)
class _Asked:
    """The request of an event without its objects."""

    request: AdmissionRequest
    key: LoggedKey
    failed: bool

    @classmethod
    def of(cls, event: AuditEvent) -> "_Asked | None":
        """Return the request of an event; None if it writes nothing."""
        ref = event.object_ref
        if ref is None:
            return None
        options = _CONNECTIONS.get((ref.resource, ref.subresource))
        operation = _WRITES.get(event.verb)
        if options is not None:
            operation = "CONNECT"
        elif operation is None:
            return None
        elif operation == "UPDATE" and event.code == _CREATED:
            operation = "CREATE"  # by apply, or by an update that may create
        query = _query(event.request_uri)
        request = AdmissionRequest(
            uid=event.audit_id or "audit",
            kind=GroupVersionKind("", ref.api_version, options or ""),
            resource=GroupVersionResource(ref.api_group, ref.api_version, ref.resource),
            operation=operation,
            sub_resource=ref.subresource,
            name=ref.name,
            namespace=ref.namespace,
            user_info=event.impersonated_user or event.user,
            object=_connecting(options, event.request_uri, query) if options else NO_OBJECT,
            options=_options(event, operation, query),
            dry_run="All" in query.get("dryRun", ()),
        )
        key = LoggedKey(ref.api_group, ref.resource, ref.namespace, ref.name)
        if _is_namespace(request):
            key = key._replace(namespace="")
        failed = event.stage == "Panic" or event.code >= _FAILED
        return cls(request, key, failed)


def _query(uri: str) -> Mapping[str, list[str]]:
    if "?" not in uri or len(uri) > _LONGEST_URI:
        return {}
    try:
        return parse_qs(urlsplit(uri).query, keep_blank_values=True, max_num_fields=1000)
    except ValueError:
        return {}


def _connecting(kind: str, uri: str, query: Mapping[str, list[str]]) -> msgspec.Raw:
    """Return the options with which something is connected to."""
    obj: dict[str, Json] = {"apiVersion": "v1", "kind": kind}
    for name in ("stdin", "stdout", "stderr", "tty"):
        if query.get(name, [""])[0] in ("1", "true"):
            obj[name] = True
    if query.get("container"):
        obj["container"] = query["container"][0]
    if query.get("command"):
        obj["command"] = query["command"]
    if query.get("ports"):
        obj["ports"] = [int(each) for each in query["ports"] if each.isdecimal() and len(each) < 6]
    if kind.endswith("ProxyOptions"):
        obj["path"] = unquote(uri.partition("/proxy")[2].partition("?")[0])
    return msgspec.Raw(msgspec.json.encode(obj))


def _options(
    event: AuditEvent, operation: Operation, query: Mapping[str, list[str]]
) -> msgspec.Raw:
    """Return the options of a request as its URI has them."""
    if event.verb in ("delete", "deletecollection"):
        head = head_of(event.request_object)
        if head.kind == "DeleteOptions":
            return event.request_object
    if operation == "CONNECT":
        return NO_OBJECT
    kind = {"CREATE": "CreateOptions", "UPDATE": "UpdateOptions", "DELETE": "DeleteOptions"}
    options: dict[str, Json] = {
        "apiVersion": "meta.k8s.io/v1",
        "kind": "PatchOptions" if event.verb == "patch" else kind[operation],
    }
    for name in ("fieldManager", "fieldValidation", "propagationPolicy"):
        if query.get(name):
            options[name] = query[name][0]
    if query.get("dryRun"):
        options["dryRun"] = query["dryRun"]
    return msgspec.Raw(msgspec.json.encode(options))


def head_of(obj: msgspec.Raw) -> ObjectHead:
    """Return which object it is; an empty head if it is none."""
    if bytes(memoryview(obj)[:1]) != b"{":
        return ObjectHead()
    try:
        return _HEAD.decode(obj)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ObjectHead()


def _kind(api_version: str, kind: str) -> GroupVersionKind:
    group, _, version = api_version.rpartition("/")
    return GroupVersionKind(group=group, version=version, kind=kind)


def _is_namespace(request: AdmissionRequest) -> bool:
    return (request.resource.group, request.resource.resource) == ("", "namespaces")


def _stored_key(asked: _Asked) -> LoggedKey:
    """Return under which names the object before a change is kept."""
    subresource = asked.request.sub_resource
    if subresource in _WHOLE:
        return asked.key
    return asked.key._replace(resource=f"{asked.key.resource}/{subresource}")


def _without_body(event: AuditEvent) -> Unjudged | None:
    """Return why an event has no objects; None if that is not why it cannot be judged."""
    if (event.annotations or {}).get("audit.k8s.io/truncated") == "true":
        return "truncated"
    return "metadata" if event.level == "Metadata" else None


def _bounded(obj: msgspec.Raw) -> msgspec.Raw:
    if nested_deeper(bytes(obj), MAXIMUM_LEVELS):
        raise _UnjudgedError("nested")
    return obj


def _changed(obj: msgspec.Raw, change: Callable[[dict[str, Json]], None]) -> msgspec.Raw:
    try:
        value = _ANY.decode(obj)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _UnjudgedError("body") from error
    change(value)
    return msgspec.Raw(msgspec.json.encode(value))


def _in_namespace(obj: msgspec.Raw, request: AdmissionRequest) -> msgspec.Raw:
    """Return an object in the namespace of its request, as the API server sets it."""

    def change(value: dict[str, Json]) -> None:
        value["metadata"] = {**(value.get("metadata") or {}), "namespace": request.namespace}

    return obj if _is_namespace(request) or request.sub_resource else _changed(obj, change)


def _before_deletion(obj: msgspec.Raw) -> msgspec.Raw:
    """Return an object as it was before the deletion that returned it."""

    def change(value: dict[str, Json]) -> None:
        metadata = value.get("metadata")
        if isinstance(metadata, dict):
            metadata.pop("deletionTimestamp", None)
            metadata.pop("deletionGracePeriodSeconds", None)

    return _changed(obj, change)


def _named(item: msgspec.Raw, api_version: str, kind: str) -> msgspec.Raw:
    """Return an item of a list with its kind, as it was before it was deleted."""

    def change(value: dict[str, Json]) -> None:
        value.setdefault("apiVersion", api_version)
        value.setdefault("kind", kind)

    return _before_deletion(_changed(_bounded(item), change))
