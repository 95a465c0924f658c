"""Write `match` and `exclude` as match constraints, and what these cannot say as conditions."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from policyd.api.kinds import resources
from policyd.api.meta import Json
from policyd.cel.syntax.literals import text_literal
from policyd.dialects.kyverno.filters import is_pattern, parse_kind
from policyd.engine.objects.equivalents import plural_of
from policyd.migrate.cel_values import Untranslatable, all_of, has_wildcards, wildcard
from policyd.migrate.kyverno.patterns import grouped, negated

OPERATIONS: Final = ("CREATE", "UPDATE", "DELETE", "CONNECT")

_CONNECTED: Final = {
    "PodExecOptions": ("Pod", "exec"),
    "PodAttachOptions": ("Pod", "attach"),
    "PodPortForwardOptions": ("Pod", "portforward"),
    "PodProxyOptions": ("Pod", "proxy"),
    "NodeProxyOptions": ("Node", "proxy"),
    "ServiceProxyOptions": ("Service", "proxy"),
}
"""The objects of CONNECT, and the subresources that they are sent to."""

_OF_ONE_GROUP: Final = frozenset(
    [
        *("Pod", "Deployment", "DaemonSet", "StatefulSet", "ReplicaSet", "ReplicationController"),
        *("CronJob", "Namespace", "ConfigMap", "Secret", "ServiceAccount", "Node"),
        *("PersistentVolume", "PersistentVolumeClaim", "PodDisruptionBudget", "PriorityClass"),
        *("StorageClass", "HorizontalPodAutoscaler", "ValidatingWebhookConfiguration"),
    ]
)
"""Kinds of one group only: a `Service` of Kyverno is one of Knative, too."""

CONTROLLERS: Final[Mapping[str, tuple[str, ...]]] = {
    "apps": ("daemonsets", "deployments", "replicasets", "statefulsets"),
    "batch": ("cronjobs", "jobs"),
    "": ("replicationcontrollers",),
}
"""The controllers to which Kyverno extends a rule for pods, by group."""

_FIELDS: Final = frozenset(
    [
        *("kinds", "names", "name", "namespaces", "annotations", "selector"),
        *("namespaceSelector", "operations"),
    ]
)


@dataclass(frozen=True)
class RequestFilter:
    """One filter of `match` or `exclude`."""

    resources: Mapping[str, Any] = field(default_factory=dict)
    subjects: Sequence[Mapping[str, Any]] = ()
    roles: Sequence[str] = ()
    cluster_roles: Sequence[str] = ()

    @property
    def kinds(self) -> Sequence[str]:
        """The kinds that it picks; all if it names none."""
        kinds: Sequence[str] = self.resources.get("kinds") or ()
        return kinds

    @property
    def picks_kinds_only(self) -> bool:
        """Whether rules of match constraints can say all of it."""
        plain = set(filter(lambda name: self.resources[name], self.resources)) <= {
            "kinds",
            "operations",
        }
        user = self.subjects or self.roles or self.cluster_roles
        return plain and not user and not any(map(_is_partial, self.kinds))


def _is_partial(kind: str) -> bool:
    return any(is_pattern(part) and part != "*" for part in parse_kind(kind))


@dataclass(frozen=True)
class Matching:
    """The constraints of a policy, as its fields are written, and further conditions by name."""

    constraints: dict[str, Any]
    conditions: dict[str, str]


def filters_of(block: Json) -> tuple[list[RequestFilter], bool]:
    """Return the filters of a block, and whether all must pick a request.

    Raises:
        Untranslatable: If it has a field that Kyverno does not know.
    """
    if not block:
        return [], False
    if not isinstance(block, Mapping):
        raise Untranslatable("`match` and `exclude` are maps")
    if "any" in block or "all" in block:
        if set(block) - {"any", "all"}:
            raise Untranslatable("`any` or `all` is beside other filters, of which it is one")
        every = bool(block.get("all"))
        return [_filter(each) for each in block.get("all") or block.get("any") or ()], every
    return [_filter(block)], False


def kinds_of(match: Json) -> list[str]:
    """Return the kinds that a rule is for; none if it is for all."""
    picked = filters_of(match)[0]
    return [kind for each in picked for kind in each.kinds] if all(p.kinds for p in picked) else []


def _filter(given: Json) -> RequestFilter:
    if not isinstance(given, Mapping):
        raise Untranslatable("a filter of `match` or `exclude` is a map")
    wanted = given.get("resources") or {}
    unknown = sorted(set(wanted) - _FIELDS) if isinstance(wanted, Mapping) else ["resources"]
    if unknown:
        raise Untranslatable(f"a filter has the field `{unknown[0]}`, which Kyverno does not know")
    return RequestFilter(
        resources=wanted,
        subjects=given.get("subjects") or (),
        roles=given.get("roles") or (),
        cluster_roles=given.get("clusterRoles") or (),
    )


def extends_to_controllers(match: Json, exclude: Json, annotation: str | None) -> tuple[str, ...]:
    """Return the plurals of the controllers that Kyverno extends a rule for pods to."""
    if annotation is not None and annotation.strip() == "none":
        return ()
    picked, left_out = filters_of(match)[0], filters_of(exclude)[0]
    if not all(map(_may_be_extended, (*picked, *left_out))):
        return ()
    if not any(_names_pods(each) for each in picked):
        return ()
    if any(each.kinds for each in left_out) and not any(map(_names_pods, left_out)):
        return ()
    known = [plural for group in CONTROLLERS.values() for plural in group]
    if annotation is None or annotation.strip() in ("", "all"):
        return tuple(known)
    named = [f"{kind.strip().lower()}s" for kind in annotation.split(",")]
    return tuple(plural for plural in known if plural in named)


def _may_be_extended(each: RequestFilter) -> bool:
    wanted = each.resources
    named = any(wanted.get(name) for name in ("name", "names", "selector", "annotations"))
    return not named and (len(each.kinds) <= 1 or not _names_pods(each))


def _names_pods(each: RequestFilter) -> bool:
    return any(parse_kind(kind)[2:] == ("Pod", "") for kind in each.kinds)


def matching_of(
    match: Json, exclude: Json, operations: Sequence[str], controllers: Sequence[str]
) -> Matching:
    """Return the constraints and conditions of a rule.

    Args:
        match: Kyverno's block.
        exclude: Kyverno's block; empty if there is none.
        operations: The operations of filters that name none.
        controllers: Plurals of the controllers that a rule for pods is extended to.

    Raises:
        Untranslatable: If a filter has no counterpart.
    """
    picked, every = filters_of(match)
    if not picked:
        raise Untranslatable("the rule has no `match`")
    constraints: dict[str, Any] = {
        "resourceRules": _rules(picked, operations, controllers, every=every)
    }
    conditions: dict[str, str] = {}
    if len(picked) == 1:
        conditions |= _alone(picked[0], constraints)
    elif every or not all(each.picks_kinds_only for each in picked):
        conditions["matched"] = _several(picked, every=every)
    left_out, every_left_out = filters_of(exclude)
    by_kind = all(each.picks_kinds_only and each.kinds for each in left_out)
    if left_out and by_kind and not every_left_out:
        constraints["excludeResourceRules"] = _rules(left_out, OPERATIONS, controllers)
    elif left_out:
        conditions["not-excluded"] = negated(_several(left_out, every=every_left_out))
    return Matching(constraints, {name: text for name, text in conditions.items() if text})


def _alone(each: RequestFilter, constraints: dict[str, Any]) -> dict[str, str]:
    """Write what one filter says of objects: selectors as such, the rest as conditions."""
    wanted = dict(each.resources)
    for name, target in (("selector", "objectSelector"), ("namespaceSelector",) * 2):
        selector = wanted.get(name)
        if selector and not has_patterns(selector):
            constraints[target] = wanted.pop(name)
    conditions = dict(_conditions(each, wanted))
    if "namespaceSelector" in constraints and may_be_in_no_namespace(each.kinds):
        if not _holds_without_labels(constraints["namespaceSelector"]):
            for rule in constraints["resourceRules"]:
                rule["scope"] = "Namespaced"
        elif not each.kinds or any(is_pattern(kind) or kind == "Namespace" for kind in _bare(each)):
            conditions["no-namespace"] = _NO_NAMESPACE
    return conditions


def _bare(each: RequestFilter) -> list[str]:
    return [parse_kind(kind)[2] for kind in each.kinds]


_NO_NAMESPACE: Final = "request.kind.kind != 'Namespace'"


def may_be_in_no_namespace(kinds: Sequence[str]) -> bool:
    """Tell whether objects of one of several kinds may be in no namespace."""
    for _, _, kind, _ in map(parse_kind, kinds):
        known = [each for each in resources() if each.kind == kind]
        if is_pattern(kind) or not known or not all(each.namespaced for each in known):
            return True
    return not kinds


def _holds_without_labels(selector: Mapping[str, Any]) -> bool:
    """Tell whether a selector picks what has no labels."""
    requirements = selector.get("matchExpressions") or ()
    absent = all(each.get("operator") in ("NotIn", "DoesNotExist") for each in requirements)
    return absent and not selector.get("matchLabels")


def namespace_selected(selector: Mapping[str, Any], kinds: Sequence[str] = ()) -> str:
    """Return the condition that the namespace of an object is selected.

    Kyverno selects no Namespace by it, and other objects without a namespace as if that had no
    labels.
    """
    text = selected("namespaceObject.metadata.?labels", selector)
    if not text or not may_be_in_no_namespace(kinds):
        return text
    if _holds_without_labels(selector):
        return f"(namespaceObject == null ? {_NO_NAMESPACE} : ({text}))"
    return all_of(["namespaceObject != null", text])


def has_patterns(selector: Mapping[str, Any]) -> bool:
    """Tell whether the labels of a selector have patterns, which only Kyverno's may."""
    labels = selector.get("matchLabels") or {}
    return any(has_wildcards(f"{key}{text}") or "{{" in f"{text}" for key, text in labels.items())


def _several(filters: list[RequestFilter], *, every: bool) -> str:
    ways = []
    for each in filters:
        parts = [_kind_condition(each.kinds), _operations(each)]
        parts += [text for _, text in _conditions(each, each.resources)]
        ways.append(all_of(filter(None, parts)) or "true")
    if every:
        return all_of(ways)
    return " || ".join(map(grouped, ways) if len(ways) > 1 else ways)


def _operations(each: RequestFilter) -> str:
    wanted = each.resources.get("operations") or ()
    return one_of("request.operation", wanted) if wanted else ""


def connects(kinds: Iterable[str]) -> bool:
    """Tell whether requests of CONNECT may be of one of several kinds."""
    subresources = {each for _, each in _CONNECTED.values()} | {"*"}
    return any(
        kind in _CONNECTED or subresource in subresources
        for _, _, kind, subresource in map(parse_kind, kinds)
    )


def _requested(text: str) -> str:
    """Return the kind of the object of a request, which is of CONNECT for some subresources."""
    _, _, kind, subresource = parse_kind(text)
    named = (name for name, of in _CONNECTED.items() if of == (kind, subresource))
    return next(named, kind)


def _kind_condition(kinds: Sequence[str]) -> str:
    names = [_requested(kind) for kind in kinds]
    if not names or "*" in names:
        return ""
    return one_of("request.kind.kind", names)


def one_of(text: str, patterns: Sequence[str]) -> str:
    """Return the condition that a text is like one of several patterns."""
    plain = [each for each in patterns if not has_wildcards(each)]
    ways = [wildcard(text, each) for each in patterns if has_wildcards(each)]
    if len(plain) == 1:
        ways.insert(0, f"{text} == {text_literal(plain[0])}")
    elif plain:
        ways.insert(0, f"{text} in [{', '.join(map(text_literal, plain))}]")
    return ways[0] if len(ways) == 1 else f"({' || '.join(ways)})"


def _conditions(each: RequestFilter, wanted: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if any(map(_is_partial, each.kinds)):
        yield "kind", _kind_condition(each.kinds)
    names = [*(wanted.get("names") or ()), *([wanted["name"]] if wanted.get("name") else ())]
    if names:
        yield "name", one_of("request.name", names)
    if wanted.get("namespaces"):
        of_namespaces = {parse_kind(kind)[2] for kind in each.kinds} == {"Namespace"}
        namespace = "request.name" if of_namespaces else "request.namespace"
        yield "namespace", one_of(namespace, wanted["namespaces"])
    yield "annotations", _annotated(wanted.get("annotations") or {})
    yield "labels", selected("object.metadata.?labels", wanted.get("selector") or {})
    yield "namespace-labels", namespace_selected(wanted.get("namespaceSelector") or {}, each.kinds)
    yield "user", _user(each)


def _annotated(wanted: Mapping[str, Any]) -> str:
    found = [_entry("annotations", key, str(text)) for key, text in wanted.items()]
    return all_of(found) if found else ""


def _entry(field_name: str, key: str, text: str) -> str:
    entries = f"object.metadata.?{field_name}"
    if has_wildcards(key):
        named = wildcard("key", key)
        shown = wildcard(f"object.metadata.{field_name}[key]", text)
        return f"{entries}.orValue({{}}).exists(key, {all_of([named, shown])})"
    if text == "*":
        return f"{entries}[?{text_literal(key)}].hasValue()"
    return wildcard(f"{entries}[?{text_literal(key)}].orValue('')", text)


def selected(labels: str, selector: Mapping[str, Any]) -> str:
    """Return the condition that labels are selected, of which the CEL is an optional field."""
    parts = []
    for key, text in (selector.get("matchLabels") or {}).items():
        if has_wildcards(key) and labels.startswith("object."):
            parts.append(_entry("labels", key, str(text)))
        else:
            value = f"{labels}[?{text_literal(key)}]"
            shown = f"{value}.orValue('')"
            parts.append(f"{value}.hasValue()" if text == "*" else wildcard(shown, str(text)))
    parts += [label_requirement(labels, each) for each in selector.get("matchExpressions") or ()]
    return all_of(parts) if parts else ""


def label_requirement(labels: str, given: Mapping[str, Any]) -> str:
    """Return the condition that labels meet a requirement of a selector.

    Args:
        labels: The CEL text of the map of labels, as an optional field.
        given: The requirement: `key`, `operator`, `values`.

    Raises:
        Untranslatable: If the operator is not known.
    """
    value = f"{labels}[?{text_literal(given['key'])}]"
    listed = f"[{', '.join(map(text_literal, given.get('values') or ()))}]"
    there = f"{value}.hasValue()"
    ways = {
        "In": f"{there} && {value}.value() in {listed}",
        "NotIn": f"(!{there} || !({value}.value() in {listed}))",
        "Exists": there,
        "DoesNotExist": f"!{there}",
    }
    operator = str(given.get("operator"))
    if operator not in ways:
        raise Untranslatable(f"a label selector has no operator `{operator}`")
    return ways[operator]


def _user(each: RequestFilter) -> str:
    ways = [_subject(subject) for subject in each.subjects]
    either = " || ".join(ways)
    parts = [f"({either})" if len(ways) > 1 else either] if ways else []
    if each.roles or each.cluster_roles:
        if list(each.cluster_roles) != ["cluster-admin"] or each.roles:
            named = ", ".join((*each.roles, *each.cluster_roles))
            raise Untranslatable(
                f"who has the role {named} is not known in CEL: name users or groups"
            )
        parts.append("authorizer.group('*').resource('*').check('*').allowed()")
    return all_of(parts) if parts else ""


def _subject(subject: Mapping[str, Any]) -> str:
    name = str(subject.get("name", ""))
    if subject.get("kind") == "Group":
        if has_wildcards(name):
            return f"request.userInfo.groups.exists(g, {wildcard('g', name)})"
        return f"{text_literal(name)} in request.userInfo.groups"
    if subject.get("kind") == "ServiceAccount":
        name = f"system:serviceaccount:{subject.get('namespace', '')}:{name}"
    return wildcard("request.userInfo.username", name)


# Rules of match constraints.


def _rules(
    filters: Iterable[RequestFilter],
    operations: Sequence[str],
    controllers: Sequence[str],
    *,
    every: bool = False,
) -> list[dict[str, Any]]:
    named = [each for each in filters if each.kinds]
    found = [
        (group, version, tuple(each.resources.get("operations") or operations), plural)
        for each in (named[:1] if every else named)
        for kind in each.kinds
        for group, version, plural in _resources(kind)
    ] or [("*", "*", tuple(operations), "*")]
    found += [
        (group, "*" if group else "v1", found[0][2], plural)
        for group, plurals in CONTROLLERS.items()
        for plural in plurals
        if plural in controllers
    ]
    by_rule: dict[tuple[Any, ...], list[str]] = {}
    for group, version, wanted, plural in found:
        by_rule.setdefault((group, version, wanted), []).append(plural)
    return [
        {
            "apiGroups": [group],
            "apiVersions": [version],
            "operations": list(wanted),
            "resources": list(dict.fromkeys(plurals)),
        }
        for (group, version, wanted), plurals in by_rule.items()
    ]


def _resources(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield the group, version and plural of what a kind may mean."""
    group, version, kind, subresource = parse_kind(text)
    kind, subresource = _CONNECTED.get(kind, (kind, subresource))
    if is_pattern(kind):
        plurals = ["*"]
    else:
        plurals = sorted({r.plural for r in resources() if r.kind == kind}) or [plural_of(kind)]
    if kind in _OF_ONE_GROUP and group == "*":
        group = next(r.group for r in resources() if r.kind == kind)
    if kind == "Pod" and version == "*":
        version = "v1"
    group, version = ("*" if is_pattern(part) else part for part in (group, version))
    for plural in plurals:
        yield group, version, f"{plural}/{subresource}" if subresource else plural
