"""Serve GlobalContextEntries that are in files beside policies, for `globalContext.Get`.

An entry names a resource, whose objects are in a watched cache, or a call, whose answer is kept.
Its projections, and the third argument of `globalContext.Get`, are JMESPath on these.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final, Literal, NamedTuple, Protocol

import msgspec

from policyd.api.configuration.duration import DurationError, duration_seconds
from policyd.api.meta import Json, Wire
from policyd.dialects.kyverno.cluster_policies import GROUP
from policyd.dialects.kyverno.functions.providers import ClusterReads
from policyd.dialects.kyverno.projections import LONGEST, Charge, fault_of, selected
from policyd.engine.objects.workloads import value_at
from policyd.errors import PolicydError

KIND: Final = "GlobalContextEntry"
"""The kind of entries, which is not in namespaces."""

_PATH: Final = re.compile(
    r"/(?:api/(v[^/?%]+)|apis/([^/?%]+/[^/?%]+))"
    r"(?:/namespaces/([^/?%]+)(?=/))?/([^/?%]+)(?:/([^/?%]+))?"
)


class EntryError(PolicydError):
    """An entry cannot be answered."""


class EntryCall(NamedTuple):
    """The HTTP call of an entry.

    Attributes:
        method: `GET` or `POST`.
        url: The address.
        body: The body; None for none.
        headers: Headers besides those of every request.
        certificates: PEM of the authorities to trust; those of the machine if it is empty.
        seconds: How long an answer counts.
    """

    method: str
    url: str
    body: Json | None
    headers: dict[str, str]
    certificates: str
    seconds: float


class Caller(Protocol):
    """Sends the HTTP calls of entries."""

    def call(self, call: EntryCall) -> Json:
        """Return the decoded answer."""
        ...


class _Pair(Wire, frozen=True):
    key: str = ""
    value: Json = None


class _Service(Wire, frozen=True):
    url: str = ""
    ca_bundle: str = ""
    headers: tuple[_Pair, ...] = ()


class _ApiCall(Wire, frozen=True):
    url_path: str = ""
    method: Literal["GET", "POST"] = "GET"
    data: tuple[_Pair, ...] = ()
    service: _Service | None = None
    refresh_interval: str = "10m"


class _Resource(Wire, frozen=True):
    group: str = ""
    version: str = ""
    resource: str = ""
    namespace: str = ""


class _Projection(Wire, frozen=True):
    name: str = ""
    jmes_path: str = ""


class _Spec(Wire, frozen=True):
    kubernetes_resource: _Resource | None = None
    api_call: _ApiCall | None = None
    projections: tuple[_Projection, ...] = ()


class Entries:
    """The entries among objects; each names a resource, whose objects it holds, or a call."""

    def __init__(self, objects: Iterable[Json], resources: ClusterReads, caller: Caller) -> None:
        """Read objects of the cluster from `resources`, and all other data by `caller`."""
        self._resources = resources
        self._caller = caller
        self._specs = {
            value_at(obj, ("metadata", "name")): value_at(obj, ("spec",))
            for obj in objects
            if value_at(obj, ("kind",)) == KIND
            and str(value_at(obj, ("apiVersion",))).startswith(f"{GROUP}/")
        }

    def get(self, name: str, projection: str, expression: str, charge: Charge) -> Json:
        """Return the data of an entry; None if there is no such entry.

        Args:
            name: The entry.
            projection: One of its projections; empty for all of its data.
            expression: JMESPath to evaluate on that; empty for all of it.
            charge: Is called with the work of each step.

        Raises:
            PolicydError: If the call is not supported, or fails, or there is no such projection.
        """
        if name not in self._specs:
            return None
        spec = _read(name, self._specs[name])
        data = self._data(name, spec)
        projections = {each.name: each.jmes_path for each in spec.projections}
        return selected(data, projections, name, projection, expression, charge=charge)

    def _data(self, name: str, spec: _Spec) -> Json:
        if spec.kubernetes_resource is not None:
            return self._objects(spec.kubernetes_resource)
        call = spec.api_call or _ApiCall()
        if call.service is not None:
            return self._caller.call(_call(name, call, call.service))
        return self._at(name, call)

    def _objects(self, wanted: _Resource) -> Json:
        api_version = f"{wanted.group}/{wanted.version}" if wanted.group else wanted.version
        found = self._resources.list(api_version, wanted.resource, wanted.namespace, {})
        return found["items"]

    def _at(self, name: str, call: _ApiCall) -> Json:
        """Return the object or list at a path of the API server."""
        if call.method != "GET":
            raise EntryError(f"entry `{name}` posts to the API server, of which it can only read")
        parts = _PATH.fullmatch(call.url_path)
        if parts is None:
            raise EntryError(
                f"`{call.url_path}` of entry `{name}` is not a path of objects:"
                " write `/apis/group/version/namespaces/name/plural`, without a query"
            )
        core, grouped, namespace, plural, named = parts.groups("")
        if not named:
            return self._resources.list(core or grouped, plural, namespace, {})
        found = self._resources.get(core or grouped, plural, namespace, named)
        if found is None:
            raise EntryError(f"entry `{name}` names `{call.url_path}`, which does not exist")
        return found


def mistakes_of(name: str, spec: Json) -> Iterator[tuple[str, str]]:
    """Yield the mistakes for which Kyverno refuses an entry, each as a path and a message."""
    try:
        read = _read(name, spec)
    except EntryError:  # its definition refuses it
        return
    resource, call = read.kubernetes_resource, read.api_call
    if (resource is None) is (call is None):
        yield "spec", "an entry has one of `kubernetesResource` and `apiCall`"
    if resource is not None:
        yield from _mistakes_of_resource(resource)
    if call is not None:
        yield from _mistakes_of_call(call)
    left = LONGEST  # parsing takes long: an evaluation reports what is wrong with the rest
    for index, each in enumerate(read.projections):
        at = f"spec.projections[{index}]"
        if each.name in ("", name):
            yield f"{at}.name", "a projection has a name of its own, other than that of the entry"
        left -= len(each.jmes_path)
        fault = fault_of(each.jmes_path) if left >= 0 else ""
        if fault:
            yield f"{at}.jmesPath", fault


def _mistakes_of_resource(resource: _Resource) -> Iterator[tuple[str, str]]:
    at = "spec.kubernetesResource"
    if not resource.group and resource.version != "v1":
        yield (
            f"{at}.group",
            f"version `{resource.version}` is not of the core group: name its group",
        )
    if not resource.resource:
        yield f"{at}.resource", "name a resource, such as `configmaps`"


def _mistakes_of_call(call: _ApiCall) -> Iterator[tuple[str, str]]:
    if _seconds(call.refresh_interval) <= 0:
        message = f"`{call.refresh_interval}` is not longer than 0 seconds: write `10m`"
        yield "spec.apiCall.refreshInterval", message
    if (call.service is None) is not bool(call.url_path):
        yield "spec.apiCall.service", "a call has one of `service` and `urlPath`"
    if call.data and call.method != "POST":
        yield "spec.apiCall.method", "a call with `data` has the method POST"


def _read(name: str, spec: Json) -> _Spec:
    try:
        return msgspec.convert(spec, _Spec)
    except msgspec.ValidationError as error:
        raise EntryError(f"entry `{name}` cannot be read: {error}") from error


def _call(name: str, call: _ApiCall, service: _Service) -> EntryCall:
    seconds = _seconds(call.refresh_interval)
    if seconds <= 0:
        raise EntryError(
            f"`{call.refresh_interval}` of entry `{name}` is not a refreshInterval: write `10m`"
        )
    return EntryCall(
        method=call.method,
        url=service.url,
        body={each.key: each.value for each in call.data} if call.method == "POST" else None,
        headers={each.key: str(each.value) for each in service.headers},
        certificates=service.ca_bundle,
        seconds=seconds,
    )


def _seconds(text: str) -> float:
    try:
        return duration_seconds(text)
    except DurationError:
        return 0.0
