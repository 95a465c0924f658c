"""Read the files of kat's tests, whose names say which request they are part of."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from policyd.api.admission import (
    NO_OBJECT,
    AdmissionRequest,
    GroupVersionKind,
    GroupVersionResource,
    Operation,
    UserInfo,
)
from policyd.api.inject import Closed
from policyd.api.meta import Json
from policyd.engine.objects.workloads import value_at
from policyd.engine.offline.requests import DEFAULT_USER, RequestCircumstances, request_for
from policyd.errors import PolicydError

FOLDER: Final = "tests"
"""The folder of tests, beside their policies."""

_INPUTS: Final = (
    "request.yaml",
    "object.yaml",
    "oldObject.yaml",
    "namespaceObject.yaml",
    "params.yaml",
    "authorizer.yaml",
    "annotations.yaml",
    "warnings.txt",
)
_COMPANIONS: Final = ("gold.yaml", "message.txt")
_OBJECTS: Final = ("object", "oldObject", "namespaceObject", "params")
_CONNECTED: Final = {"exec": "PodExecOptions", "attach": "PodAttachOptions"}


class KatError(PolicydError):
    """The files of a test do not go together."""


class TestRequest(Closed, frozen=True):
    """The parts of a request besides its objects, or with them."""

    api_version: str = ""
    kind: str = ""
    operation: Operation | Literal[""] = ""
    sub_resource: str = ""
    name: str = ""
    namespace: str = ""
    resource: GroupVersionResource | None = None
    object: dict[str, Any] | None = None
    old_object: dict[str, Any] | None = None
    params: dict[str, Any] | None = None
    namespace_object: dict[str, Any] | None = None
    user_info: UserInfo | None = None
    options: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class KatTest:
    """The files of one test, by their content; the name is their common prefix."""

    name: str
    files: Mapping[str, Any]

    @property
    def words(self) -> Sequence[str]:
        """The parts of the name."""
        return self.name.split(".")


def is_input(name: str) -> bool:
    """Tell whether a file holds a test, or a part of one."""
    return any(name.endswith(f".{suffix}") for suffix in _INPUTS)


def tests_of(names: Iterable[str], read: Callable[[str], Any]) -> Iterator[KatTest]:
    """Yield the tests that the files of a folder are, in the order of their names.

    Args:
        names: The names of the files.
        read: Returns the content of a file: decoded YAML, or a text.
    """
    found: dict[str, dict[str, str]] = {}
    for name in names:
        for suffix in (*_INPUTS, *_COMPANIONS):
            if name.endswith(f".{suffix}"):
                base = name.removesuffix(f".{suffix}")
                found.setdefault(base, {})[suffix.rpartition(".")[0]] = name
    inputs = {suffix.rpartition(".")[0] for suffix in _INPUTS}
    for base, files in sorted(found.items()):
        if not inputs.isdisjoint(files):
            yield KatTest(base, {what: read(name) for what, name in files.items()})


def merged(test: KatTest) -> TestRequest:
    """Put the request together out of the files that hold a part of it.

    Raises:
        KatError: If one holds no object, two hold the same part, or the operation does not go with
            the objects.
    """
    given = test.files.get("request") or {}
    if not isinstance(given, dict):
        raise KatError("the request is not an object")
    written = dict(given)
    for name in _OBJECTS:
        if name not in test.files:
            continue
        if name in written:
            raise KatError(f"`{name}` is in two files")
        written[name] = test.files[name]
    request = msgspec.convert(written, TestRequest)
    implied = _operation(request)
    if request.operation not in ("", "CONNECT", implied) and implied:
        raise KatError(f"`{request.operation}` does not go with these objects: {implied}")
    operation = request.operation or implied
    if not operation:
        raise KatError("neither an object nor an `operation` is given")
    return msgspec.structs.replace(request, operation=operation)


def _operation(request: TestRequest) -> Operation | Literal[""]:
    match request.object is not None, request.old_object is not None:
        case True, True:
            return "UPDATE"
        case True, False:
            return "CREATE"
        case False, True:
            return "DELETE"
        case _:
            return ""


def request_of(given: TestRequest) -> AdmissionRequest:
    """Return the request that the API server would send.

    Raises:
        ObjectError: If the object is none of Kubernetes.
    """
    obj = given.object if given.object is not None else given.old_object
    operation = given.operation
    assert operation, "it was found out before"
    namespace = given.namespace or name_of(given.namespace_object) or "default"
    circumstances = RequestCircumstances(
        operation="CREATE" if operation == "CONNECT" else operation,
        user=given.user_info or DEFAULT_USER,
        namespace=namespace,
    )
    old = given.old_object if operation == "UPDATE" else None
    if obj is None:
        request = _connection(given, namespace)
    else:
        request = request_for(obj, circumstances, old_object=old)
    options = (
        NO_OBJECT if given.options is None else msgspec.Raw(msgspec.json.encode(given.options))
    )
    return msgspec.structs.replace(
        request,
        operation=operation,
        name=given.name or request.name,
        sub_resource=given.sub_resource,
        resource=given.resource or request.resource,
        options=options,
    )


def _connection(given: TestRequest, namespace: str) -> AdmissionRequest:
    """Return a request without any object: a connection to a pod."""
    kind = _CONNECTED.get(given.sub_resource, "Pod")
    return AdmissionRequest(
        uid="offline",
        kind=GroupVersionKind(group="", version="v1", kind=kind),
        resource=given.resource or GroupVersionResource(group="", version="v1", resource="pods"),
        operation="CONNECT",
        namespace=namespace,
        user_info=given.user_info or DEFAULT_USER,
    )


def name_of(obj: Json) -> str:
    """Return the name of an object; empty if it has none."""
    return str(value_at(obj, ("metadata", "name")) or "")
