"""Requests to the API server as data: which path, query and body each verb has. Nothing is sent."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

import msgspec

from policyd.kube.client import (
    DeleteOptions,
    Paging,
    PatchKind,
    PatchOptions,
    Selection,
    WriteOptions,
)
from policyd.kube.resources import Resource

FIELD_MANAGER = "policyd"
PAGE_LIMIT = 500

_PATCH_TYPES: dict[PatchKind, str] = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    # The server takes YAML here, and JSON is YAML.
    "apply": "application/apply-patch+yaml",
}


_QUESTIONS: Final = frozenset({"authentication.k8s.io", "authorization.k8s.io"})
"""Groups of kinds whose creation is a question: TokenReview, SubjectAccessReview and others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiCall:
    """One request."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    content_type: str = "application/json"
    idempotent: bool = False
    """Carried out twice, it leaves the same as once."""
    warned: Callable[[str], None] | None = None
    """Called with each warning of the answer."""

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def get_call(path: str, query: Mapping[str, str] | None = None) -> ApiCall:
    """Ask for the object at a path."""
    return ApiCall(method="GET", path=path, query=query or {}, idempotent=True)


def page_call(resource: Resource, options: Paging) -> ApiCall:
    """Ask for a part of a collection."""
    query = _selection_query(cast("Selection", options))
    if limit := options.get("limit", PAGE_LIMIT):
        query["limit"] = str(limit)
    if continue_ := options.get("continue_"):
        query["continue"] = continue_
    path = resource.path(options.get("namespace", ""))
    return ApiCall(method="GET", path=path, query=query, idempotent=True)


def watch_call(
    resource: Resource, selection: Selection, *, resource_version: str, seconds: int
) -> ApiCall:
    """Ask for the changes after a version, for so many seconds."""
    query = _selection_query(selection) | {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": resource_version,
        "timeoutSeconds": str(seconds),
    }
    path = resource.path(selection.get("namespace", ""))
    return ApiCall(method="GET", path=path, query=query)


def create_call(resource: Resource, body: object, options: WriteOptions) -> ApiCall:
    """Ask to store a new object, or to perform the action of a subresource such as `binding`."""
    encoded, namespace, name = _encode(resource, body, options)
    subresource = options.get("subresource", "")
    if resource.namespaced and not namespace:
        raise ValueError(f"a new {resource.kind} needs a namespace")
    path = resource.path(namespace, name if subresource else "", subresource)
    return ApiCall(
        method="POST",
        path=path,
        query=_write_query(options),
        body=encoded,
        warned=options.get("warned"),
        # An answer to a question is stored nowhere, so that it may be asked twice.
        idempotent=resource.group in _QUESTIONS or bool(options.get("dry_run")),
    )


def replace_call(resource: Resource, body: object, options: WriteOptions) -> ApiCall:
    """Ask to store an object in the place of the one of its name."""
    encoded, namespace, name = _encode(resource, body, options)
    path = object_path(resource, namespace, name, options.get("subresource", ""))
    query = _write_query(options)
    return ApiCall(method="PUT", path=path, query=query, body=encoded, idempotent=True)


def patch_call(resource: Resource, name: str, patch: object, options: PatchOptions) -> ApiCall:
    """Ask to change an object."""
    kind = options.get("kind", "merge")
    query = _write_query(cast("WriteOptions", options))
    if kind == "apply":
        body, _, _ = _encode(resource, patch, cast("WriteOptions", options))
        query["force"] = "true" if options.get("force") else "false"
    else:
        body = msgspec.json.encode(patch)
    path = object_path(resource, options.get("namespace", ""), name, options.get("subresource", ""))
    return ApiCall(
        method="PATCH",
        path=path,
        query=query,
        body=body,
        content_type=_PATCH_TYPES[kind],
        # A JSON patch may append: twice is not once.
        idempotent=kind != "json",
    )


def delete_call(resource: Resource, name: str, options: DeleteOptions) -> ApiCall:
    """Ask to delete an object, if the preconditions hold."""
    preconditions = {"uid": options.get("uid"), "resourceVersion": options.get("resource_version")}
    body = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": _given(preconditions) or None,
        "gracePeriodSeconds": options.get("grace_seconds"),
        "propagationPolicy": options.get("propagation"),
        "dryRun": ["All"] if options.get("dry_run") else None,
    }
    return ApiCall(
        method="DELETE",
        path=object_path(resource, options.get("namespace", ""), name),
        body=msgspec.json.encode(_given(body)),
        idempotent=True,
    )


def object_path(resource: Resource, namespace: str, name: str, subresource: str = "") -> str:
    """Return the path of one object.

    Raises:
        ValueError: If there is no name: the path would be that of all objects.
    """
    if not name:
        raise ValueError(f"a {resource.kind} needs a name")
    return resource.path(namespace, name, subresource)


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None and value != ""}


def _selection_query(selection: Selection) -> dict[str, str]:
    return _given(
        {
            "labelSelector": selection.get("label_selector"),
            "fieldSelector": selection.get("field_selector"),
        }
    )


def _write_query(options: WriteOptions) -> dict[str, str]:
    # Else the API server decodes strictly, a tenth of its work, to warn of fields it does not know.
    query = {
        "fieldManager": options.get("field_manager", FIELD_MANAGER),
        "fieldValidation": "Warn" if options.get("warned") else "Ignore",
    }
    if options.get("dry_run"):
        query["dryRun"] = "All"
    return query


def _encode(resource: Resource, body: object, options: WriteOptions) -> tuple[bytes, str, str]:
    """Encode an object; also return its namespace and name.

    Structs omit fields with default values, often `apiVersion` and `kind`: these are put back.
    """
    plain = msgspec.to_builtins(body) if isinstance(body, msgspec.Struct) else body
    if not isinstance(plain, dict):
        raise TypeError(f"an object is a Struct or a dict, not {type(body).__name__}")
    metadata = plain.get("metadata") or {}
    whole = {"apiVersion": resource.api_version, "kind": resource.kind} | plain
    namespace = options.get("namespace", "") or metadata.get("namespace", "")
    return msgspec.json.encode(whole), namespace, metadata.get("name", "")
