"""The built-in kinds that are served: one version of each, as nothing converts between them."""

from collections.abc import Iterator

from policyd.api import kinds
from policyd.local.apiserver.registry import Served

IMPLEMENTED = frozenset({"binding", "eviction", "finalize", "log", "scale", "status"})
"""The subresources that are answered; others need real nodes."""

LEFT_OUT = frozenset(
    {
        ("", "bindings"),
        ("", "componentstatuses"),
        ("apiregistration.k8s.io", "apiservices"),
        ("authentication.k8s.io", "tokenreviews"),
        ("authorization.k8s.io", "localsubjectaccessreviews"),
    }
)
"""Resources that would be of no use here."""

OTHER_VERSIONS = frozenset({"autoscaling/v1"})
"""Older versions of groups that are served in a newer one."""

EVENTS = "events"
"""Where events are kept: those of events.k8s.io are the core group's, written differently."""


def builtin_kinds() -> Iterator[Served]:
    """Yield the built-in kinds."""
    for known in kinds.resources():
        left_out = (known.group, known.plural) in LEFT_OUT
        if not left_out and known.api_version not in OTHER_VERSIONS:
            yield _served(known)


def _served(known: kinds.BuiltinResource) -> Served:
    is_event = known.kind == "Event" and known.group != ""
    return Served(
        group=known.group,
        version=known.version,
        kind=known.kind,
        plural=known.plural,
        singular=known.singular,
        namespaced=known.namespaced,
        short_names=known.short_names,
        categories=known.categories,
        subresources=tuple(name for name in known.subresources if name in IMPLEMENTED),
        verbs=known.verbs,
        list_kind=f"{known.kind}List",
        type_name=known.type_name,
        kept_as=EVENTS if is_event else "",
        stored_as="v1" if is_event else "",
    )
