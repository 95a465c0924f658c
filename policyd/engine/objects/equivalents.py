"""Find resources that are the same under another group or version.

A rule for one version of a resource concerns requests for the others too (`matchPolicy:
Equivalent`); the policy then sees the object in the version that its rule names.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Final

from msgspec.structs import replace

from policyd.api import kinds
from policyd.api.admission import GroupVersionKind, Rule
from policyd.api.meta import Json
from policyd.engine.objects.autoscalers import to_v1, to_v2
from policyd.engine.objects.match import RequestAttributes, rule_matches
from policyd.errors import PolicydError
from policyd.patch.builtin_types import MistypedError
from policyd.patch.builtin_views import typed_view

ServedVersions = Callable[[str, str], frozenset[str] | None]
"""Returns the versions of a resource, by group and plural, that are served; None if not known."""

_FAMILIES: Final = (
    ("events", ("", "events.k8s.io")),
    ("deployments", ("apps", "extensions")),
    ("daemonsets", ("apps", "extensions")),
    ("replicasets", ("apps", "extensions")),
    ("ingresses", ("networking.k8s.io", "extensions")),
    ("networkpolicies", ("networking.k8s.io", "extensions")),
)
"""Resources that are or were served by several groups."""

_OWN_SCALES: Final = frozenset(
    (("apps", "v1beta1"), ("apps", "v1beta2"), ("extensions", "v1beta1"))
)
"""Groups and versions that had a Scale of their own, before there was one for all resources."""

_GROUPS: Final = {(group, plural): groups for plural, groups in _FAMILIES for group in groups}


_AUTOSCALER: Final = ("autoscaling", "HorizontalPodAutoscaler")
_AUTOSCALERS: Final = (("v1", "v2"), ("v2", "v1"))


class VersionError(PolicydError):
    """An object is to be seen in a version that it cannot be put in here."""


@cache
def _built_in() -> tuple[frozenset[str], dict[tuple[str, str], frozenset[str]]]:
    groups = frozenset(found.group for found in kinds.resources())
    versions: dict[tuple[str, str], frozenset[str]] = {}
    for found in kinds.resources():
        key = (found.group, found.plural)
        versions[key] = versions.get(key, frozenset()) | {found.version}
    return groups, versions


def served_versions(group: str, plural: str) -> frozenset[str] | None:
    """Return the versions of a built-in resource that are served; None for all other groups."""
    groups, versions = _built_in()
    if group in groups or group == "extensions":
        return versions.get((group, plural), frozenset())
    return None


def equivalent_match(
    rules: Iterable[Rule], attributes: RequestAttributes, served: ServedVersions
) -> RequestAttributes | None:
    """Return the request as the first rule sees it that concerns it under another name."""
    for rule in rules:
        for other in equivalents(rule, attributes, served):
            if rule_matches(rule, other):
                return other
    return None


def equivalents(
    rule: Rule, attributes: RequestAttributes, served: ServedVersions
) -> Iterator[RequestAttributes]:
    """Yield the request under the other names of its resource that a rule may mean."""
    groups = _GROUPS.get((attributes.group, attributes.resource), (attributes.group,))
    for group in groups:
        versions = served(group, attributes.resource)
        named = rule.api_versions if versions is None else versions
        for version in sorted(named):
            if version != "*" and (group, version) != (attributes.group, attributes.version):
                yield replace(attributes, group=group, version=version)


def matched_kind(
    kind: GroupVersionKind, own: RequestAttributes, matched: RequestAttributes
) -> GroupVersionKind:
    """Return the kind of an object when its resource is seen under another name.

    A kind of another group than its resource, as the Eviction of a pod, stays unchanged.
    """
    if matched == own:
        return kind
    if matched.subresource == "scale":
        has_own = (matched.group, matched.version) in _OWN_SCALES
        scale = (matched.group, matched.version) if has_own else ("autoscaling", "v1")
        return GroupVersionKind(*scale, "Scale")
    if (kind.group, kind.version) != (own.group, own.version):
        return kind
    return GroupVersionKind(group=matched.group, version=matched.version, kind=kind.kind)


def convert(obj: Json, kind: GroupVersionKind) -> Json:
    """Put an object in another version of its kind.

    Versions of custom kinds are assumed to differ only in the version's name, as they do unless
    their definition names a webhook that converts them.

    Raises:
        ConversionError: If the versions of a built-in kind differ in more.
    """
    if not isinstance(obj, dict):
        return obj
    version = f"{kind.group}/{kind.version}" if kind.group else kind.version
    group, _, old = str(obj.get("apiVersion", "")).rpartition("/")
    if (kind.group, kind.kind) == _AUTOSCALER and (old, kind.version) in _AUTOSCALERS:
        return _autoscaler(obj, kind.version)
    if served_versions(kind.group, "") is not None and not _same_fields(group, old, kind):
        raise VersionError(
            f"failed to convert object version: {group}/{old} {kind.kind} to {version}",
            hint="name the version in the policy's rules that clients use",
        )
    return {**obj, "apiVersion": version}


def restore(obj: Json, original: Json) -> Json:
    """Put a converted object back in the version of the one it was made of."""
    version = original.get("apiVersion") if isinstance(original, dict) else None
    if not isinstance(obj, dict) or obj.get("apiVersion") == version:
        return obj
    group, _, name = str(version).rpartition("/")
    if (group, obj.get("kind")) == _AUTOSCALER:
        return _autoscaler(obj, name)
    return {**obj, "apiVersion": version}


def _autoscaler(obj: dict[str, Json], version: str) -> Json:
    """Put a HorizontalPodAutoscaler in its other version, as the API server's type writes it.

    Raises:
        ConversionError: If it is not an autoscaler, whatever its kind.
    """
    try:
        made = to_v1(obj) if version == "v1" else to_v2(obj)
        return typed_view(made, f"autoscaling/{version}.HorizontalPodAutoscaler")[0]
    except (MistypedError, AttributeError, TypeError) as error:
        raise VersionError(f"not a HorizontalPodAutoscaler: {error}") from error


def _same_fields(group: str, version: str, kind: GroupVersionKind) -> bool:
    old = kinds.resource_for_kind(group, version, kind.kind)
    new = kinds.resource_for_kind(kind.group, kind.version, kind.kind)
    return old is not None and new is not None and _same_struct(old.type_name, new.type_name)


@cache
def _same_struct(one: str, other: str) -> bool:
    """Tell whether two structs have the same fields, deep down; a struct may contain itself."""
    pending, seen = [(one, other)], set()
    while pending:
        pair = pending.pop()
        if pair in seen or pair[0] == pair[1]:
            continue
        seen.add(pair)
        first, second = map(kinds.fields, pair)
        if first.keys() != second.keys():
            return False
        for name, field in first.items():
            inner = _innermost(field), _innermost(second[name])
            if field.shape != second[name].shape or inner[0].scalar != inner[1].scalar:
                return False
            if inner[0].struct is not None and inner[1].struct is not None:
                pending.append((inner[0].struct, inner[1].struct))
    return True


def _innermost(field: kinds.FieldType) -> kinds.FieldType:
    while field.element is not None:
        field = field.element
    return field


def plural_of(kind: str) -> str:
    """Guess the plural of a kind that is not known."""
    word = kind.lower()
    if word.endswith(("s", "x", "ch", "sh")):
        return f"{word}es"
    return f"{word[:-1]}ies" if word.endswith("y") and word[-2:-1] not in "aeiou" else f"{word}s"
