"""The match and exclude blocks of ClusterPolicies: which requests a rule concerns."""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

from policyd.api.admission import Rule
from policyd.api.kinds import resources
from policyd.api.kyverno import Filter, Filters, ResourceFilter, Subject
from policyd.engine.equivalents import plural_of
from policyd.engine.facts import Facts
from policyd.engine.match import labels_of, selects_namespace
from policyd.engine.workloads import value_at

OPERATIONS: Final = ("CREATE", "UPDATE")
"""What a rule concerns that names no operations."""

_KIND = re.compile(
    r"(?:(?:(?P<group>[^/]+)/)?(?P<version>v\d\w*|\*)/)?(?P<kind>[^/.]+)"
    r"(?:[/.](?P<sub>[a-z*]+))?"
)


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
                api_groups=(group,),
                api_versions=(version,),
                operations=wanted.operations or OPERATIONS,
                resources=(f"{plural}/{subresource}" if subresource else plural,),
            )


@lru_cache(maxsize=256)
def parse_kind(text: str) -> tuple[str, str, str, str]:
    """Read `Pod`, `apps/v1/Deployment`, `v1/Pod`, `batch/*/CronJob`, `Pod/exec` or `Pod.status`.

    Returns:
        Group, version, kind and subresource; `*` stands for any.
    """
    found = _KIND.fullmatch(text)
    if found is None:
        return "*", "*", text, ""
    version = found["version"] or "*"
    group = found["group"]
    if group is None:
        group = "" if found["version"] and version != "*" else "*"
    return group, version, found["kind"], found["sub"] or ""


def _plurals(kind: str) -> Iterable[str]:
    if kind == "*":
        return ("*",)
    built_in = {found.plural for found in resources() if found.kind == kind}
    return sorted(built_in) or (plural_of(kind),)


def is_plain(filters: Filters) -> bool:
    """Tell whether a block says nothing that rules cannot say."""
    plain = ("kinds", "operations")
    return not filters.all and all(
        each == Filter(ResourceFilter(**{name: getattr(each.resources, name) for name in plain}))
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
    namespace = request.name if request.kind.kind == "Namespace" else request.namespace
    return (
        (not wanted.kinds or any(_of_kind(k, facts, templates=templates) for k in wanted.kinds))
        and request.operation in (wanted.operations or (request.operation,))
        and (not names or any(_like(name, request.name) for name in names))
        and (not wanted.namespaces or any(_like(name, namespace) for name in wanted.namespaces))
        and (wanted.selector is None or wanted.selector.matches(labels_of(subject)))
        and _annotated(wanted, facts)
        and _in_namespace(wanted, facts)
    )


def _of_kind(text: str, facts: Facts, *, templates: bool) -> bool:
    group, version, kind, subresource = parse_kind(text)
    request = facts.request
    if templates and kind == "Pod" and request.kind.kind != "Pod":
        return bool(facts.kind)
    return (
        kind in ("*", request.kind.kind)
        and group in ("*", request.kind.group)
        and version in ("*", request.kind.version)
        and subresource in ("*", request.sub_resource)
    )


def _annotated(wanted: ResourceFilter, facts: Facts) -> bool:
    annotations = value_at(facts.subject, ("metadata", "annotations")) or {}
    return all(
        any(_like(key, name) and _like(text, str(value)) for name, value in annotations.items())
        for key, text in wanted.annotations.items()
    )


def _in_namespace(wanted: ResourceFilter, facts: Facts) -> bool:
    selector = wanted.namespace_selector
    if selector is None:
        return True
    attributes = facts.attributes
    obj = facts.object if attributes.for_namespace else None
    return selects_namespace(selector, attributes, obj, namespaces=facts.namespaces)


def _is(subject: Subject, facts: Facts) -> bool:
    user = facts.request.user_info
    if subject.kind == "Group":
        return any(_like(subject.name, group) for group in user.groups)
    if subject.kind == "ServiceAccount":
        return user.username == f"system:serviceaccount:{subject.namespace}:{subject.name}"
    return _like(subject.name, user.username)


def _like(pattern: str, text: str) -> bool:
    return _wildcards(pattern).fullmatch(text) is not None


@lru_cache(maxsize=1024)
def _wildcards(pattern: str) -> re.Pattern[str]:
    escaped = re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")
    return re.compile(escaped, re.DOTALL)
