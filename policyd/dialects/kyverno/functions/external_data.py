"""Read external data for Kyverno's policies: the cluster, HTTP, registries.

The variables `resource`, `http`, `globalContext` and `image` come from the caller; one that it
does not provide is refused when it is used. A namespaced policy has `resource` for
that namespace alone: its functions take no namespace.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, cast

from policyd.api.kinds import resources
from policyd.api.meta import Json
from policyd.cel.cost import Budget, deep_size
from policyd.cel.errors import CelCostError, CelError
from policyd.cel.functions import Overload, Size, method
from policyd.cel.types import DYN, STRING, Type, map_of
from policyd.cel.values import Struct
from policyd.dialects.kyverno.functions.providers import (
    ClusterReads,
    GlobalContext,
    Http,
    ImageData,
    OwnObjects,
)
from policyd.engine.model.confinement import Confinable
from policyd.engine.objects.equivalents import plural_of
from policyd.errors import PolicydError

RESOURCE = Type("resource.Context")
HTTP = Type("http.Context")
GLOBAL_CONTEXT = Type("globalcontext.Context")
IMAGE_DATA = Type("imagedata.Context")
GVR = Type("kyverno.GroupVersionResource")


class Provider(Confinable):
    """The value of one of the variables: a provider, or None where there is none."""

    __slots__ = ("cel_type_name", "name", "provider")

    def __init__(self, name: str, kind: Type, provider: object | None) -> None:
        self.name = name
        self.cel_type_name = kind.name
        self.provider = provider

    def ask(self, question: str, *arguments: object) -> Any:  # noqa: ANN401 - any JSON
        """Ask the provider.

        Raises:
            CelError: If there is none, or it cannot answer.
        """
        if self.provider is None:
            reads = _NEEDS[self.name]
            raise CelError(f"`{self.name}` is not available here: it needs {reads}")
        try:
            return getattr(self.provider, question)(*arguments)
        except CelCostError:
            raise
        except PolicydError as error:
            raise CelError(f"failed to {question} {self.name}: {error}") from error

    def within(self, namespace: str) -> "Provider":
        """Return the provider of one namespace, which has that namespace's objects alone."""
        return Provider(self.name, RESOURCE, self._own(namespace))

    def _own(self, namespace: str) -> OwnObjects | None:
        given = self.provider
        if self.name != "resource" or given is None:
            return None
        if isinstance(given, OwnObjects):  # an exception of one namespace, from a policy of one
            return given if given.namespace == namespace else None
        return OwnObjects(cast("ClusterReads", given), namespace)


_NEEDS = {
    "resource": "a cluster to read from",
    "http": "permission to send requests",
    "globalContext": "GlobalContextEntries",
    "image": "a registry to read from",
}


def external_values(
    *,
    resources: ClusterReads | None = None,
    http: Http | None = None,
    global_context: GlobalContext | None = None,
    images: ImageData | None = None,
) -> dict[str, Provider]:
    """Return the values of the variables by name, for an evaluation."""
    return {
        "resource": Provider("resource", RESOURCE, resources),
        "http": Provider("http", HTTP, http),
        "globalContext": Provider("globalContext", GLOBAL_CONTEXT, global_context),
        "image": Provider("image", IMAGE_DATA, images),
    }


EXTERNAL_VARIABLES: Mapping[str, Type] = {
    "resource": RESOURCE,
    "http": HTTP,
    "globalContext": GLOBAL_CONTEXT,
    "image": IMAGE_DATA,
}
"""The types of the variables."""
EXTERNAL_STRUCTS: Mapping[str, Mapping[str, Type]] = {
    GVR.name: {"Group": STRING, "Version": STRING, "Resource": STRING}
}
"""The fields of the results."""


def _get(context: Provider, version: str, resource: str, namespace: str, name: str) -> Json:
    return context.ask("get", version, resource, namespace, name)


def _list(
    context: Provider, version: str, resource: str, namespace: str, labels: Json = None
) -> Json:
    return context.ask("list", version, resource, namespace, labels or {})


def _post(context: Provider, version: str, resource: str, namespace: str, body: Json) -> Json:
    return context.ask("post", version, resource, namespace, body)


def _post_cluster(context: Provider, version: str, resource: str, body: Json) -> Json:
    return context.ask("post", version, resource, "", body)


def _get_own(context: Provider, version: str, resource: str, name: str) -> Json:
    return context.ask("get", version, resource, name)


def _list_own(context: Provider, version: str, resource: str, labels: Json = None) -> Json:
    return context.ask("list", version, resource, labels or {})


def _post_own(context: Provider, version: str, resource: str, body: Json) -> Json:
    return context.ask("post", version, resource, body)


def _to_gvr(_context: Provider, version: str, kind: str) -> Json:
    group, slash, number = version.rpartition("/")
    parts = {"Group": group if slash else "", "Version": number, "Resource": _plural(version, kind)}
    return Struct(GVR.name, parts)


def _plural(version: str, kind: str) -> str:
    """Return the plural of a kind; a name in small letters is one already."""
    if not kind[:1].isupper():
        return kind
    return _built_in().get((version, kind)) or plural_of(kind)


@cache
def _built_in() -> Mapping[tuple[str, str], str]:
    """Return the plurals of the built-in kinds, by version and kind."""
    found: dict[tuple[str, str], str] = {}
    for each in resources():
        found.setdefault((each.api_version, each.kind), each.plural)
    return found


def _by_gvr(run: Callable[..., Json]) -> Callable[..., Json]:
    def call(context: Provider, gvr: Json, *rest: object) -> Json:
        group, version = gvr["Group"], gvr["Version"]
        return run(context, f"{group}/{version}" if group else version, gvr["Resource"], *rest)

    return call


def _sending(verb: str) -> Callable[..., Json]:
    def send(context: Provider, url: str, body: Json = None, headers: Json = None) -> Json:
        return context.ask("send", verb, url, body, headers or {})

    return send


def _http_get(context: Provider, url: str, headers: Json = None) -> Json:
    return context.ask("send", "GET", url, None, headers or {})


def _client(context: Provider, certificates: str) -> Provider:
    return Provider("http", HTTP, context.ask("trusting", certificates))


def _entry(context: Provider, name: str, *rest: object) -> Json:
    """Ask for an entry: after its name come a projection, an expression, and the budget."""
    *texts, budget = rest
    projection, expression = (*texts, "", "")[:2]
    assert isinstance(budget, Budget), "a counted call is given the budget"
    return context.ask("get", name, projection, expression, budget.charge_work)


def _metadata(context: Provider, image: str) -> Json:
    return context.ask("metadata", image)


def _asking_work(*given: object) -> int:
    """Return the work of writing a question down: all that is in it is looked at."""
    return 5 + 2 * sum(deep_size(each) for each in given if type(each) is not Budget)


# External data costs about as much as a hundred selections, even from a cache.
_ASKING = Size(cost=100, work=_asking_work)
_NAMING = Size(work=_asking_work)
_SELECTING = Size(cost=100, work=_asking_work, counted=True)


def _both(
    name: str, *parameters: Type, run: Callable[..., Json], size: Size = _ASKING
) -> tuple[Overload, ...]:
    """Declare a method by its older name and by its newer one."""
    newer = name[0].lower() + name[1:]
    return tuple(
        method(each, *parameters, returns=DYN, run=run, size=size) for each in (name, newer)
    )


def _typed(name: str, *parameters: Type, returns: Type, run: object) -> tuple[Overload, ...]:
    assert callable(run), "a method has code"
    newer = name[0].lower() + name[1:]
    return tuple(
        method(each, *parameters, returns=returns, run=run, size=_NAMING) for each in (name, newer)
    )


_LABELS = map_of(STRING, STRING)
_BODY = map_of(STRING, DYN)
_THREE = (STRING, STRING, STRING)
_GVR = (RESOURCE, GVR, STRING)

RESOURCES: tuple[Overload, ...] = (
    *_both("Get", RESOURCE, *_THREE, STRING, run=_get),
    *_both("Get", *_GVR, STRING, run=_by_gvr(_get)),
    *_both("List", RESOURCE, *_THREE, run=_list),
    *_both("List", RESOURCE, *_THREE, _LABELS, run=_list),
    *_both("List", *_GVR, run=_by_gvr(_list)),
    *_both("List", *_GVR, _LABELS, run=_by_gvr(_list)),
    *_both("Post", RESOURCE, *_THREE, _BODY, run=_post),
    *_both("Post", RESOURCE, STRING, STRING, _BODY, run=_post_cluster),
)
"""The functions of `resource` for policies of the cluster."""
OWN_RESOURCES: tuple[Overload, ...] = (
    *_both("Get", RESOURCE, *_THREE, run=_get_own),
    *_both("Get", *_GVR, run=_by_gvr(_get_own)),
    *_both("List", RESOURCE, STRING, STRING, run=_list_own),
    *_both("List", RESOURCE, STRING, STRING, _LABELS, run=_list_own),
    *_both("List", RESOURCE, GVR, run=_by_gvr(_list_own)),
    *_both("List", RESOURCE, GVR, _LABELS, run=_by_gvr(_list_own)),
    *_both("Post", RESOURCE, STRING, STRING, _BODY, run=_post_own),
)
"""The functions of `resource` for namespaced policies."""
EXTERNAL_DATA: tuple[Overload, ...] = (
    *_typed("ToGVR", RESOURCE, STRING, STRING, returns=GVR, run=_to_gvr),
    *_both("Get", HTTP, STRING, run=_http_get),
    *_both("Get", HTTP, STRING, _LABELS, run=_http_get),
    *_both("Post", HTTP, STRING, DYN, run=_sending("POST")),
    *_both("Post", HTTP, STRING, DYN, _LABELS, run=_sending("POST")),
    *_both("Put", HTTP, STRING, DYN, run=_sending("PUT")),
    *_both("Put", HTTP, STRING, DYN, _LABELS, run=_sending("PUT")),
    *_typed("Client", HTTP, STRING, returns=HTTP, run=_client),
    *_both("Get", GLOBAL_CONTEXT, STRING, run=_entry, size=_SELECTING),
    *_both("Get", GLOBAL_CONTEXT, STRING, STRING, run=_entry, size=_SELECTING),
    *_both("Get", GLOBAL_CONTEXT, *_THREE, run=_entry, size=_SELECTING),
    *_both("GetMetadata", IMAGE_DATA, STRING, run=_metadata),
)
