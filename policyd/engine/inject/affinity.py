"""How node affinity joins what the object has.

Terms of a node selector are alternatives, and the conditions in a term must all hold. So what is
required joins every term that the author wrote, and only an object without terms takes them as they
are. A condition on a label that a term speaks of already stays the author's, unless overridden.
"""

from collections.abc import Mapping

from policyd.api.meta import Json
from policyd.engine.inject.merging import Edit, InjectError
from policyd.engine.objects.workloads import value_at
from policyd.patch.copying import same_json

_AFFINITY = ("spec", "affinity", "nodeAffinity")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_CONDITIONS = ("matchExpressions", "matchFields")

Term = Mapping[str, Json]


def add_affinity(edit: Edit, affinity: Mapping[str, Json]) -> None:
    """Draw the pods to nodes.

    Raises:
        InjectError: If the object's own affinity is misshapen.
    """
    wanted = affinity.get("nodeAffinity", {})
    required = value_at(wanted, (_REQUIRED, "nodeSelectorTerms"))
    if required:
        _require(edit, [term for term in map(_without_empty, required) if term])
    for preferred in wanted.get(_PREFERRED, ()):
        _prefer(edit, preferred)


def _require(edit: Edit, wanted: list[Term]) -> None:
    if not wanted:
        return
    path = (*_AFFINITY, _REQUIRED, "nodeSelectorTerms")
    present = edit.items(*path)
    joined = [term for own in present for term in _join(own, wanted, override=edit.override)]
    if not same_json(joined, present) or not present:
        edit.draft.set((*edit.at, *path), _distinct(joined or wanted))


def _join(own: Term, wanted: list[Term], *, override: bool) -> list[Term]:
    """Join each wanted term to the author's; one that changes nothing is enough by itself."""
    joined = [_both(own, term, override=override) for term in wanted]
    return [own] if any(same_json(term, own) for term in joined) else joined


def _both(own: Term, wanted: Term, *, override: bool) -> Term:
    merged = dict(own)
    for field in _CONDITIONS:
        conditions = wanted.get(field)
        if conditions:
            merged[field] = _merge(_conditions(own, field), conditions, override=override)
    return merged


def _merge(own: list[Json], wanted: list[Json], *, override: bool) -> list[Json]:
    """Add wanted conditions to a term's own; one label is spoken of by one side only."""
    kept, spoken_of = own, [condition.get("key") for condition in own]
    if override:
        keys = [condition["key"] for condition in wanted]
        kept = [c for c in own if c.get("key") not in keys or _listed(c, wanted)]
        spoken_of = []
    return kept + [
        condition
        for condition in wanted
        if condition["key"] not in spoken_of and not _listed(condition, kept)
    ]


def _conditions(term: Term, field: str) -> list[Json]:
    conditions = term.get(field) or []
    if not isinstance(conditions, list) or not all(isinstance(c, dict) for c in conditions):
        raise InjectError(f"`{field}` of the object's node affinity is not a list of objects")
    return conditions


def _prefer(edit: Edit, wanted: Mapping[str, Json]) -> None:
    path = (*_AFFINITY, _PREFERRED)
    for index, own in enumerate(edit.items(*path)):
        if same_json(own.get("preference"), wanted["preference"]):
            if edit.override:
                edit.draft.set((*edit.at, *path, index), wanted)
            return
    edit.draft.append((*edit.at, *path), wanted)


def _without_empty(term: Term) -> Term:
    """Leave out conditions whose computed values came to nothing."""
    kept: dict[str, Json] = {}
    for field in _CONDITIONS:
        conditions = [
            condition
            for condition in term.get(field, ())
            if condition["operator"] not in ("In", "NotIn") or condition.get("values")
        ]
        if conditions:
            kept[field] = conditions
    return kept


def _distinct(terms: list[Term]) -> list[Term]:
    distinct: list[Term] = []
    for term in terms:
        if not _listed(term, distinct):
            distinct.append(term)
    return distinct


def _listed(value: Json, values: list[Json] | list[Term]) -> bool:
    return any(same_json(value, other) for other in values)
