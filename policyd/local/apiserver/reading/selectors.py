"""Field selectors, and the selection of lists and watches."""

from collections.abc import Callable

from policyd.api.meta import Json
from policyd.api.queries import SelectorError, parse_query
from policyd.local.apiserver.registry import Served
from policyd.local.apiserver.requests import ApiRequest
from policyd.local.apiserver.status import Object, bad_request

EVERYWHERE = ("metadata.name", "metadata.namespace")
"""The fields that every kind can be selected by."""

SELECTABLE: dict[str, tuple[str, ...]] = {
    "events": (
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
    "jobs.batch": ("status.successful",),
    "namespaces": ("status.phase",),
    "nodes": ("spec.unschedulable",),
    "pods": (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    "replicasets.apps": ("status.replicas",),
    "secrets": ("type",),
}

Selects = Callable[[Object], bool]


def selection(request: ApiRequest) -> Selects:
    """Build the test for the objects that a list, watch or collection's deletion is about.

    Raises:
        StatusError: If a selector cannot be read, or the field is not selectable.
    """
    target = request.target
    tests: list[Selects] = []
    if target.namespace:
        tests.append(lambda value: value["metadata"].get("namespace") == target.namespace)
    if target.name:
        tests.append(lambda value: value["metadata"]["name"] == target.name)
    tests.extend(_fields(request))
    tests.extend(_labels(request.options.text("labelSelector")))
    return lambda value: all(test(value) for test in tests)


def is_selective(request: ApiRequest) -> bool:
    """Tell whether a request has a selector."""
    return any(request.options.text(name) for name in ("fieldSelector", "labelSelector"))


def _labels(text: str) -> list[Selects]:
    if not text:
        return []
    try:
        query = parse_query(text)
    except SelectorError as error:
        raise bad_request(str(error)) from error
    return [lambda value: query.matches(value["metadata"].get("labels") or {})]


def _fields(request: ApiRequest) -> list[Selects]:
    terms = [t for t in request.options.text("fieldSelector").split(",") if t.strip()]
    return [_field(term.strip(), request.served) for term in terms]


def _field(term: str, served: Served) -> Selects:
    path, operator, wanted = _split(term)
    known = served.custom.selectable if served.custom else SELECTABLE.get(served.resource, ())
    if served.group == "events.k8s.io":
        known, path = SELECTABLE["events"], path.replace("regarding.", "involvedObject.")
    if path not in EVERYWHERE and path not in known:
        raise bad_request(_unknown_field(path, served))
    negated = operator == "!="
    return lambda value: (text_at(value, path) == wanted) is not negated


def _unknown_field(path: str, served: Served) -> str:
    if served.custom is not None or served.resource in SELECTABLE:
        return f"field label not supported: {path}"
    return f'"{path}" is not a known field selector: only "metadata.name", "metadata.namespace"'


def _split(term: str) -> tuple[str, str, str]:
    for operator in ("!=", "==", "="):
        path, found, wanted = term.partition(operator)
        if found:
            return path, operator, wanted
    raise bad_request(f"invalid selector: '{term}'; can't understand '{term}'")


def text_at(value: Object, path: str) -> str:
    """Return the field at a dotted path as selectors compare it; empty if it is not there."""
    found: Json = value
    for name in path.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    match found:
        case None:
            return "false" if path == "spec.unschedulable" else ""
        case bool():
            return "true" if found else "false"
        case dict():
            return str(found.get("component", ""))
        case _:
            return str(found)
