"""The rules of metadata: names, labels, annotations, owners and finalizers."""

from collections.abc import Iterator

from policyd.api.meta import Json
from policyd.api.names import (
    LABEL,
    LABEL_1035,
    LABEL_1035_RULE,
    LABEL_RULE,
    LONGEST_LABEL,
    LONGEST_SUBDOMAIN,
    SUBDOMAIN,
    SUBDOMAIN_RULE,
    label_key_problems,
    label_value_problems,
    name_problems,
)
from policyd.local.apiserver.registry import Served
from policyd.local.apiserver.status import Cause, Object, not_permitted, wrong


def subdomain(text: str) -> list[str]:
    """Return why a text is not a DNS-1123 subdomain."""
    return name_problems(text, SUBDOMAIN, SUBDOMAIN_RULE, LONGEST_SUBDOMAIN, unit="characters")


def label(text: str) -> list[str]:
    """Return why a text is not a DNS-1123 label."""
    if "." in text:
        return ["must not contain dots"]
    return name_problems(text, LABEL, LABEL_RULE, LONGEST_LABEL, unit="characters")


def label_1035(text: str) -> list[str]:
    """Return why a text is not a DNS-1035 label, as the names of services are."""
    return name_problems(text, LABEL_1035, LABEL_1035_RULE, LONGEST_LABEL)


def path_segment(text: str) -> list[str]:
    """Return why a text is not a segment of a path, as the names of roles are."""
    if text in {".", ".."}:
        return [f"may not be '{text}'"]
    return [f"may not contain '{sign}'" for sign in "/%" if sign in text]


def qualified_name(text: str) -> list[str]:
    """Return why a text is not a key of a label: `prefix/name` or `name`."""
    return label_key_problems(text)


def label_value(text: str) -> list[str]:
    """Return why a text is not a value of a label."""
    return label_value_problems(text)


def check_labels(labels: Json, path: str) -> Iterator[Cause]:
    """Check the keys and values of labels, or of a node selector."""
    for key, value in (labels or {}).items():
        for line in qualified_name(key):
            yield wrong(path, key, line)
        for line in label_value(value):
            yield wrong(path, value, line)


def check_keys(annotations: Json, path: str) -> Iterator[Cause]:
    """Check the keys of annotations, whose letters may be of either case."""
    for key in annotations or {}:
        for line in qualified_name(key.lower()):
            yield wrong(path, key, line)


LABEL_NAMED = frozenset({"namespaces"})
LABEL_1035_NAMED = frozenset({"services"})
FREELY_NAMED = "rbac.authorization.k8s.io"

PLAIN_FINALIZERS = frozenset({"foregroundDeletion", "kubernetes", "orphan"})
"""The finalizers without a domain."""

ANNOTATIONS_LIMIT = 256 * 1024
"""Bytes of all annotations together."""


def check_metadata(new: Object, served: Served, old: Object | None = None) -> Iterator[Cause]:
    """Check an object's metadata; what is as in `old` was checked before."""
    before = {} if old is None else old["metadata"]
    about = {name: part for name, part in new["metadata"].items() if part != before.get(name)}
    about["name"] = new["metadata"]["name"]
    yield from _check_name(about, served)
    yield from check_labels(about.get("labels"), "metadata.labels")
    yield from check_keys(about.get("annotations"), "metadata.annotations")
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
    check = subdomain
    if served.resource in LABEL_NAMED:
        check = label
    elif served.resource in LABEL_1035_NAMED:
        check = label_1035
    elif served.group == FREELY_NAMED:
        check = path_segment
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
    lines = qualified_name(finalizer)
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
