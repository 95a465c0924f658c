"""Export injected affinity as a patch: required terms are added to each existing term.

Conditions whose computed values come to nothing are left out, which only the patch can tell; where
nothing is computed, that is decided here and the patch is shorter.
"""

from collections.abc import Mapping
from typing import Any, Final

from policyd.api.inject import InjectedAffinity
from policyd.cel.syntax.literals import CelText, json_literal, text_literal
from policyd.engine.export.inject import ExportedField, spelled
from policyd.engine.export.patch import PatchText, at
from policyd.engine.export.places import both

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_AFFINITY: Final = ("spec", "affinity", "nodeAffinity")
_CONDITIONS: Final = ("matchExpressions", "matchFields")


def affinity(injection: ExportedField, patch: PatchText, given: InjectedAffinity) -> None:
    """Add preferred and required affinity: required terms join each term of the author.

    Raises:
        NotExportableError: If a computed value may be left out.
    """
    injection.refuse_override()
    wanted = spelled(injection, given)["nodeAffinity"]
    terms = [
        t for t in map(_conditions, wanted.get(_REQUIRED, {}).get("nodeSelectorTerms", ())) if t
    ]
    if any(map(_has_computed_values, terms)):
        _require_computed(injection, patch, terms)
    elif terms:
        _require(injection, patch, terms)
    for preferred in wanted.get(_PREFERRED, ()):
        steps = (*_AFFINITY, _PREFERRED)
        same = f"o.?preference == optional.of({json_literal(preferred['preference'])})"
        absent = f"!{at(patch.base, *steps)}.orValue([]).exists(o, {same})"
        patch.append(json_literal(preferred), *steps, when=injection.when, absent=absent)


def _has_computed_values(term: Mapping[str, Any]) -> bool:
    return any(isinstance(c.get("values"), CelText) for given in term.values() for c in given)


def _conditions(term: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out conditions that ask for one of no values."""
    kept = {
        field: [c for c in conditions if c["operator"] not in ("In", "NotIn") or c.get("values")]
        for field, conditions in term.items()
    }
    return {field: conditions for field, conditions in kept.items() if conditions}


def _require(injection: ExportedField, patch: PatchText, terms: list[dict[str, Any]]) -> None:
    steps = (*_AFFINITY, _REQUIRED, "nodeSelectorTerms")
    present = f"{at(patch.base, *steps)}.orValue([])"
    distinct = [term for index, term in enumerate(terms) if term not in terms[:index]]
    none = f"{present}.size() == 0"
    patch.put(json_literal(distinct), *steps, when=injection.when, absent=none)
    # One that changes nothing is enough by itself.
    satisfied = " || ".join(f"({_requires_all('own', term)})" for term in terms)
    joined = ", ".join(f"dyn({_joined('own', term)})" for term in terms)
    changed = f"{present}.map(own, ({satisfied}) ? [dyn(own)] : [{joined}]).flatten().distinct()"
    some = both(injection.when, f"{present}.size() > 0", f"{present}.exists(own, !({satisfied}))")
    patch.replace(changed, *steps, when=some)


def _requires_all(own: str, term: Mapping[str, Any]) -> str:
    """Return the CEL that tells whether a term already requires all the labels."""
    keys = {(field, json_literal(c["key"])): None for field, given in term.items() for c in given}
    return " && ".join(
        f"{at(own, field)}.orValue([]).exists(e, e.key == {key})" for field, key in keys
    )


def _joined(own: str, term: Mapping[str, Any]) -> str:
    """Return a term with the conditions added on labels of which it does not speak."""
    fields = []
    for field in _CONDITIONS:
        if field not in term:
            fields.append(f"?'{field}': {at(own, field)}")
            continue
        present = f"{at(own, field)}.orValue([])"
        unsaid = f"!{present}.exists(e, e.key == x.key)"
        added = f"{json_literal(term[field])}.filter(x, {unsaid})"
        fields.append(f"'{field}': dyn({present} + {added})")
    return f"{{{', '.join(fields)}}}"


def _require_computed(
    injection: ExportedField, patch: PatchText, terms: list[dict[str, Any]]
) -> None:
    """Require terms of which some may be empty when the patch is evaluated."""
    steps = (*_AFFINITY, _REQUIRED, "nodeSelectorTerms")
    present = f"{at(patch.base, *steps)}.orValue([])"
    wanted = f"[{', '.join(map(_left, terms))}].filter(t, t.size() > 0)"
    asked = both(injection.when, f"{wanted}.size() > 0")
    none = f"{present}.size() == 0"
    patch.put(f"{wanted}.distinct()", *steps, when=asked, absent=none)
    unsaid = "!own[?f].orValue([]).exists(e, e.key == x.key)"
    fields = json_literal(list(_CONDITIONS))
    requires_all = f"!{fields}.exists(f, t[?f].orValue([]).exists(x, {unsaid}))"
    satisfied = f"{wanted}.exists(t, {requires_all})"
    changed = (
        f"{present}.map(own, {satisfied} ? [dyn(own)] : {wanted}.map(t, dyn({_merged()})))"
        ".flatten().distinct()"
    )
    some = f"{present}.exists(own, !{satisfied})"
    patch.replace(changed, *steps, when=both(asked, f"{present}.size() > 0", some))


def _left(term: Mapping[str, Any]) -> str:
    """Return a term without requirements that have no values."""
    fields = []
    for field, conditions in term.items():
        given = f"[{', '.join(f'dyn({json_literal(c)})' for c in conditions)}]"
        some = f"{given}.filter(x, !(x.operator in ['In', 'NotIn']) || x.values.size() > 0)"
        fields.append(f"?{text_literal(field)}: [{some}].filter(s, s.size() > 0)[?0]")
    return f"{{{', '.join(fields)}}}"


def _merged() -> str:
    """Return `own` with the conditions of `t` added on labels of which it does not speak."""
    fields = []
    for field in _CONDITIONS:
        own, wanted = (f"{one}[?{text_literal(field)}]" for one in ("own", "t"))
        unsaid = f"!{own}.orValue([]).exists(e, e.key == x.key)"
        joined = f"{own}.orValue([]) + {wanted}.orValue([]).filter(x, {unsaid})"
        fields.append(f"?{text_literal(field)}: [{joined}].filter(s, s.size() > 0)[?0]")
    return f"{{{', '.join(fields)}}}"
