"""The rules of every object's metadata."""

from collections.abc import Iterator

from policyd.local.apiserver.checks import names
from policyd.local.apiserver.registry import Served
from policyd.local.apiserver.status import Cause, Object, not_permitted, wrong

LABEL_NAMED = frozenset({"namespaces"})
LABEL_1035_NAMED = frozenset({"services"})
FREELY_NAMED = "rbac.authorization.k8s.io"

PLAIN_FINALIZERS = frozenset({"foregroundDeletion", "kubernetes", "orphan"})
"""The finalizers without a domain."""

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
    for owner in about.get("ownerReferences") or ():
        yield from _check_owner(owner)
    for index, finalizer in enumerate(about.get("finalizers") or ()):
        yield from _check_finalizer(finalizer, index, custom=served.custom is not None)


def _check_name(about: Object, served: Served) -> Iterator[Cause]:
    name = about["name"]
    check = names.subdomain
    if served.resource in LABEL_NAMED:
        check = names.label
    elif served.resource in LABEL_1035_NAMED:
        check = names.label_1035
    elif served.group == FREELY_NAMED:
        check = names.path_segment
    base = about.get("generateName", "")
    for line in check(base.removesuffix("-") + "x") if base else ():
        yield wrong("metadata.generateName", base, line)
    for line in check(name):
        yield wrong("metadata.name", name, line)


def _check_owner(owner: Object) -> Iterator[Cause]:
    for field, subject in (("apiVersion", "version "), ("kind", ""), ("name", ""), ("uid", "")):
        if not owner.get(field):
            path = f"metadata.ownerReferences.{field}"
            yield wrong(path, owner.get(field, ""), f"{subject}must not be empty")


def _check_finalizer(finalizer: str, index: int, *, custom: bool) -> Iterator[Cause]:
    lines = names.qualified_name(finalizer)
    yield from (wrong("metadata.finalizers", finalizer, line) for line in lines)
    if not lines and "/" not in finalizer and finalizer not in PLAIN_FINALIZERS and not custom:
        why = "name is neither a standard finalizer name nor is it fully qualified"
        yield wrong(f"metadata.finalizers[{index}]", finalizer, why)


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
