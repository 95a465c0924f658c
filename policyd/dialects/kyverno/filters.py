"""Match requests with the `match` and `exclude` blocks of ClusterPolicies."""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Final

from policyd.api.admission import Operation, Rule
from policyd.api.kinds import resources
from policyd.api.meta import Json
from policyd.api.selectors import LabelSelector
from policyd.dialects.kyverno.api import ActionOverride, Filter, Filters, ResourceFilter, Subject
from policyd.engine.model.facts import Facts
from policyd.engine.objects.equivalents import plural_of
from policyd.engine.objects.match import labels_of
from policyd.engine.objects.workloads import value_at

OPERATIONS: Final[tuple[Operation, ...]] = ("CREATE", "UPDATE", "DELETE", "CONNECT")
"""The operations of a rule that names none."""

_KIND = re.compile(
    r"(?:(?:(?P<group>[^/]+)/)?(?P<version>v\d\w*|\*)/)?(?P<kind>[^/.]+)"
    r"(?:[/.](?P<sub>[a-z*]+))?"
)
_ANY_WITH = re.compile(r"\*/(?P<sub>[a-z]+|\*)")


def filters_of(filters: Filters) -> tuple[Filter, ...]:
    """Return the filters of a block, one of which must pick a request, or all of them."""
    if filters.any or filters.all:
        return (*filters.any, *filters.all)
    alone = Filter(filters.resources, filters.subjects, filters.roles, filters.cluster_roles)
    return () if alone == Filter() else (alone,)


def rules_of(filters: Filters) -> tuple[Rule, ...]:
    """Return rules that concern everything the filters may pick by kind and operation."""
    return tuple(rule for each in filters_of(filters) for rule in _rules(each.resources))


def _rules(wanted: ResourceFilter) -> Iterator[Rule]:
    for text in wanted.kinds:
        group, version, kind, subresource = parse_kind(text)
        for plural in _plurals(kind):
            yield Rule(
                api_groups=("*" if is_pattern(group) else group,),
                api_versions=("*" if is_pattern(version) else version,),
                operations=wanted.operations or OPERATIONS,
                resources=(f"{plural}/{subresource}" if subresource else plural,),
            )


@lru_cache(maxsize=256)
def parse_kind(text: str) -> tuple[str, str, str, str]:
    """Read `Pod`, `apps/v1/Deployment`, `v1/Pod`, `batch/*/CronJob`, `Pod/exec` or `Pod.status`.

    `*/*` is everything with all subresources, `*/scale` one of anything. A version without a group
    is that of any.

    Returns:
        Group, version, kind and subresource; `*` stands for any.
    """
    of_any = _ANY_WITH.fullmatch(text)
    if of_any is not None:
        return "*", "*", "*", of_any["sub"]
    found = _KIND.fullmatch(text)
    if found is None:
        return "*", "*", text, ""
    return found["group"] or "*", found["version"] or "*", found["kind"], found["sub"] or ""


def is_pattern(text: str) -> bool:
    """Tell whether a text stands for several, of which a rule can name all only."""
    return "*" in text or "?" in text


def _plurals(kind: str) -> Iterable[str]:
    if is_pattern(kind):
        return ("*",)
    built_in = {found.plural for found in resources() if found.kind == kind}
    return sorted(built_in) or (plural_of(kind),)


def _is_partial(kind: str) -> bool:
    return any(is_pattern(part) and part != "*" for part in parse_kind(kind))


def is_plain(filters: Filters) -> bool:
    """Tell whether a block says nothing that rules cannot say."""
    plain = ("kinds", "operations")
    return not filters.all and all(
        each == Filter(ResourceFilter(**{name: getattr(each.resources, name) for name in plain}))
        and not any(map(_is_partial, each.resources.kinds))
        for each in filters_of(filters)
    )


def picks(filters: Filters, facts: Facts, *, templates: bool) -> bool:
    """Tell whether a block picks a request.

    Args:
        filters: The block.
        facts: The request.
        templates: Whether a filter for pods picks the controllers of pods too.
    """
    found = [_picks(each, facts, templates=templates) for each in filters_of(filters)]
    return all(found) and bool(found) if filters.all else any(found)


def _picks(wanted: Filter, facts: Facts, *, templates: bool) -> bool:
    if wanted.roles or wanted.cluster_roles:
        return False  # whose roles those are, only the cluster knows
    if wanted.subjects and not any(_is(subject, facts) for subject in wanted.subjects):
        return False
    return wanted.resources == ResourceFilter() or _is_one(
        wanted.resources, facts, templates=templates
    )


def _is_one(wanted: ResourceFilter, facts: Facts, *, templates: bool) -> bool:
    subject = facts.subject
    request = facts.request
    names = (*wanted.names, *((wanted.name,) if wanted.name else ()))
    called = request.name or str(value_at(subject, ("metadata", "generateName")) or "")
    namespace = request.name if request.kind.kind == "Namespace" else request.namespace
    return (
        (not wanted.kinds or any(_of_kind(k, facts, templates=templates) for k in wanted.kinds))
        and request.operation in (wanted.operations or (request.operation,))
        and (not names or any(like(name, called) for name in names))
        and (not wanted.namespaces or any(like(name, namespace) for name in wanted.namespaces))
        and (wanted.selector is None or _selects(wanted.selector, labels_of(subject)))
        and _has(wanted.annotations, value_at(subject, ("metadata", "annotations")))
        and _in_namespace(wanted, facts)
    )


def _of_kind(text: str, facts: Facts, *, templates: bool) -> bool:
    group, version, kind, subresource = parse_kind(text)
    request = facts.request
    if templates and kind == "Pod" and request.kind.kind != "Pod":
        return bool(facts.kind)
    return (
        like(kind, request.kind.kind)
        and like(group, request.kind.group)
        and like(version, request.kind.version)
        and subresource in ("*", request.sub_resource)
    )


def _selects(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    return _has(selector.match_labels, labels) and all(
        requirement.matches(labels) for requirement in selector.match_expressions
    )


def _has(wanted: Mapping[str, str], entries: Json) -> bool:
    """Tell whether there is an entry for each that is wanted, whose parts may be patterns."""
    given = entries.items() if isinstance(entries, Mapping) else ()
    return all(
        any(like(key, name) and like(text, str(value)) for name, value in given)
        for key, text in wanted.items()
    )


def _in_namespace(wanted: ResourceFilter, facts: Facts) -> bool:
    """Tell whether the namespace matches; cluster-scoped objects have no labels."""
    selector = wanted.namespace_selector
    if selector is None or facts.attributes.for_namespace:
        return selector is None
    return _selects(selector, labels_of(facts.namespace_object))


def overrides(override: ActionOverride, facts: Facts) -> bool:
    """Tell whether an override is for the namespace of a request."""
    names, selector = override.namespaces, override.namespace_selector
    namespace = facts.attributes.namespace if facts.attributes.namespaced else ""
    named = any(like(name, namespace) for name in names)
    if selector is None:
        return named
    return (named or not names) and _selects(selector, labels_of(facts.namespace_object))


def _is(subject: Subject, facts: Facts) -> bool:
    user = facts.request.user_info
    if subject.kind == "Group":
        return any(like(subject.name, group) for group in user.groups)
    if subject.kind == "ServiceAccount":
        name = f"system:serviceaccount:{subject.namespace}:{subject.name}"
        return like(name, user.username)
    return like(subject.name, user.username)


def like(pattern: str, text: str) -> bool:
    """Compare with a pattern of `*` and `?`."""
    return _wildcards(pattern).fullmatch(text) is not None


@lru_cache(maxsize=1024)
def _wildcards(pattern: str) -> re.Pattern[str]:
    escaped = re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")
    return re.compile(escaped, re.DOTALL)
