"""Match requests with the `match` block of Gatekeeper's constraints."""

from collections.abc import Callable, Iterable
from functools import cache
from typing import Final, Literal

import msgspec

from policyd.api.inject import Closed
from policyd.api.meta import Json
from policyd.api.selectors import LabelSelector
from policyd.engine.compile.schema import ForeignShape, schema_of
from policyd.engine.documents.findings import Finding
from policyd.engine.documents.reading import Document
from policyd.engine.model.facts import Facts
from policyd.engine.objects.match import labels_of
from policyd.engine.objects.workloads import value_at


class Kinds(Closed, frozen=True):
    """Kinds of some groups; nothing, or `*`, matches all."""

    api_groups: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()


class ConstraintMatch(Closed, frozen=True):
    """The `match` block of a constraint; fields that are left out match everything."""

    kinds: tuple[Kinds, ...] = ()
    scope: Literal["*", "Cluster", "Namespaced"] = "*"
    namespaces: tuple[str, ...] = ()
    excluded_namespaces: tuple[str, ...] = ()
    label_selector: LabelSelector | None = None
    namespace_selector: LabelSelector | None = None
    name: str = ""
    source: Literal["All", "Generated", "Original", ""] = "All"


_NOTHING: Final = ConstraintMatch()


@cache
def _shape() -> ForeignShape:
    return ForeignShape(schema_of(ConstraintMatch))


def read_match(constraint: Document) -> tuple[ConstraintMatch | None, list[Finding]]:
    """Read the `match` block of a constraint; None if it is invalid."""
    given = value_at(constraint.value, ("spec", "match"))
    if given is None:
        return _NOTHING, []
    value, findings = _shape().read(Document(given, constraint.source))
    at = [
        constraint.finding(finding.message, ("spec", "match"), hint=finding.hint)
        for finding in findings
        if finding.severity == "error"
    ]
    return (None, at) if value is None else (msgspec.convert(value, ConstraintMatch), [])


def predicate_of(match: ConstraintMatch) -> Callable[[Facts], bool]:
    """Return a function that tells whether a constraint matches a request."""

    def applies(facts: Facts) -> bool:
        return of_kind(match, facts) and all(rule(match, facts) for rule in _RULES)

    return applies


def of_kind(match: ConstraintMatch, facts: Facts) -> bool:
    """Tell whether a constraint names the kind of a request's object."""
    kind = facts.request.kind
    return not match.kinds or any(
        _names(each.kinds, kind.kind) and _names(each.api_groups, kind.group)
        for each in match.kinds
    )


def _names(wanted: tuple[str, ...], word: str) -> bool:
    return not wanted or "*" in wanted or word in wanted


def _in_scope(match: ConstraintMatch, facts: Facts) -> bool:
    return match.scope == "*" or (match.scope == "Namespaced") == _is_namespaced(facts)


def _is_namespaced(facts: Facts) -> bool:
    return bool(_namespace(facts)) and not facts.attributes.for_namespace


def _in_namespaces(match: ConstraintMatch, facts: Facts) -> bool:
    """Tell whether a constraint matches the namespace; cluster-scoped objects always match."""
    namespace = _namespace(facts)
    if not namespace:
        return True
    wanted, excluded = match.namespaces, match.excluded_namespaces
    return (not wanted or _any_like(wanted, namespace)) and not _any_like(excluded, namespace)


def _namespace(facts: Facts) -> str:
    """Return the namespace that the object names, or is: a file need not name any."""
    metadata = value_at(facts.subject, ("metadata",)) or {}
    return str(metadata.get("name" if facts.attributes.for_namespace else "namespace") or "")


def _labelled(match: ConstraintMatch, facts: Facts) -> bool:
    selector = match.label_selector
    if selector is None:
        return True
    objects: Iterable[Json] = (facts.object, facts.old_object)
    return any(selector.matches(labels_of(obj)) for obj in objects if obj is not None)


def _in_labelled_namespace(match: ConstraintMatch, facts: Facts) -> bool:
    selector = match.namespace_selector
    attributes = facts.attributes
    if selector is None or not _namespace(facts):
        return True
    if attributes.for_namespace:
        return selector.matches(labels_of(facts.subject))
    return selector.matches(labels_of(facts.namespaces(attributes.namespace)))


def _named(match: ConstraintMatch, facts: Facts) -> bool:
    metadata = value_at(facts.subject, ("metadata",)) or {}
    names = (metadata.get("name"), metadata.get("generateName"))
    return not match.name or any(_like(match.name, str(name)) for name in names if name)


def _from_outside(match: ConstraintMatch, _facts: Facts) -> bool:
    """Tell whether a constraint also matches original resources, not only generated ones."""
    return match.source != "Generated"


_RULES: Final = (
    _in_scope,
    _in_namespaces,
    _labelled,
    _in_labelled_namespace,
    _named,
    _from_outside,
)


def _any_like(patterns: Iterable[str], text: str) -> bool:
    return any(_like(pattern, text) for pattern in patterns)


def _like(pattern: str, text: str) -> bool:
    """Compare with a pattern that may have a `*` at its beginning, at its end, or at both."""
    inner = pattern.strip("*")
    match pattern.startswith("*"), pattern.endswith("*"):
        case True, True:
            return inner in text
        case True, False:
            return text.endswith(inner)
        case False, True:
            return text.startswith(inner)
        case _:
            return text == pattern
