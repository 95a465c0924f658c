"""The rules of every object's metadata."""

from collections.abc import Iterator

from policyd.local.apiserver.checks import names
from policyd.local.apiserver.registry import Served
from policyd.local.apiserver.status import Cause, Object, not_permitted, wrong

LABEL_NAMED = frozenset({"namespaces"})
LABEL_1035_NAMED = frozenset({"services"})
FREELY_NAMED = "rbac.authorization.k8s.io"

ANNOTATIONS_LIMIT = 256 * 1024
"""Bytes of all annotations together."""


def check_metadata(new: Object, served: Served) -> Iterator[Cause]:
    """Check an object's metadata."""
    about = new["metadata"]
    yield from _check_name(about, served)
    yield from names.check_labels(about.get("labels"), "metadata.labels")
    yield from names.check_keys(about.get("annotations"), "metadata.annotations")
    size = sum(len(k) + len(v) for k, v in (about.get("annotations") or {}).items())
    if size > ANNOTATIONS_LIMIT:
        message = f"Too long: may not be more than {ANNOTATIONS_LIMIT} bytes"
        yield Cause("FieldValueTooLong", message, "metadata.annotations")
    for index, owner in enumerate(about.get("ownerReferences") or ()):
        yield from _check_owner(owner, f"metadata.ownerReferences[{index}]")
    for finalizer in about.get("finalizers") or ():
        for line in names.qualified_name(finalizer):
            yield wrong("metadata.finalizers", finalizer, line)


def _check_name(about: Object, served: Served) -> Iterator[Cause]:
    name = about["name"]
    check = names.subdomain
    if served.resource in LABEL_NAMED:
        check = names.label
    elif served.resource in LABEL_1035_NAMED:
        check = names.label_1035
    elif served.group == FREELY_NAMED:
        check = names.path_segment
    for line in check(name):
        yield wrong("metadata.name", name, line)


def _check_owner(owner: Object, path: str) -> Iterator[Cause]:
    for field in ("apiVersion", "kind", "name", "uid"):
        if not owner.get(field):
            yield wrong(f"{path}.{field}", owner.get(field, ""), "must not be empty")


def check_metadata_update(new: Object, old: Object) -> Iterator[Cause]:
    """Check a change of metadata."""
    about, before = new["metadata"], old["metadata"]
    if "deletionTimestamp" in before:
        added = set(about.get("finalizers", ())) - set(before.get("finalizers", ()))
        if added:
            listed = ", ".join(f'"{name}"' for name in sorted(added))
            yield not_permitted(
                "metadata.finalizers",
                "no new finalizers can be added if the object is being deleted, found new"
                f" finalizers []string{{{listed}}}",
            )
