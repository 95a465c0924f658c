"""The attributes of a write, for admission."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from policyd.local.apiserver.registry import Served
from policyd.local.apiserver.requests import ApiRequest, ApiUser
from policyd.local.apiserver.status import Object

Operation = Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]

OPTION_KINDS = {
    "CREATE": "CreateOptions",
    "UPDATE": "UpdateOptions",
    "DELETE": "DeleteOptions",
    "CONNECT": "",
}
"""The objects that webhooks get for each operation; a patch is an update or a creation."""


@dataclass(slots=True, kw_only=True)
class WriteAttributes:
    """One write on its way in. `object` changes while mutations run; it is None when deleting.

    `options` is the CreateOptions, UpdateOptions … as it is shown to webhooks.
    """

    served: Served
    operation: Operation
    namespace: str
    name: str
    user: ApiUser
    subresource: str = ""
    object: Object | None = None
    old_object: Object | None = None
    kind: tuple[str, str, str] | None = None
    """Group, version and kind of the object, if a subresource has another than the resource."""
    dry_run: bool = False
    options: Object
    warn: Callable[[str], None]


def attributes_of(
    request: ApiRequest,
    operation: Operation,
    *,
    new: Object | None = None,
    old: Object | None = None,
) -> WriteAttributes:
    """Describe a write. A Namespace's own name counts as its namespace, as rules expect."""
    about = (new or old or {}).get("metadata", {})
    name = about.get("name", "")
    is_namespace = request.served.resource == "namespaces"
    return WriteAttributes(
        served=request.served,
        operation=operation,
        namespace=name if is_namespace else about.get("namespace", ""),
        name=name,
        user=request.user,
        subresource=request.target.subresource,
        object=new,
        old_object=old,
        dry_run=request.options.dry_run,
        options=_options(request, operation),
        warn=request.warn,
    )


def _options(request: ApiRequest, operation: Operation) -> Object:
    shown: Object = {"kind": OPTION_KINDS[operation], "apiVersion": "meta.k8s.io/v1"}
    for name in ("fieldManager", "fieldValidation"):
        if request.options.text(name):
            shown[name] = request.options.text(name)
    if request.options.dry_run:
        shown["dryRun"] = ["All"]
    return shown
