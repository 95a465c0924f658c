"""Parts of `inject` that look into lists of the pod: containers' resources, and node affinity."""

from collections.abc import Mapping
from typing import Any

import msgspec

from policyd.api.policy import Affinity, Resources
from policyd.engine.export_expressions import NotExportableError
from policyd.engine.export_inject import Injection, constant
from policyd.engine.export_patch import PatchText, at, literal, quoted
from policyd.engine.export_places import both

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_AFFINITY = ("spec", "affinity", "nodeAffinity")


def resources(injection: Injection, patch: PatchText, given: Resources) -> None:
    """Set what containers ask for, where their authors did not say."""
    whole = at(patch.base, "spec", "resources")
    for field in ("initContainers", "containers"):
        containers = f"{at(patch.base, 'spec', field)}.orValue([])"
        path = f"{patch.path} + '/spec/{field}/' + string(i)"
        inner = PatchText("c", path)
        for name, amount in given.requests.items():
            _request(injection, inner, name, amount, whole)
        for name, amount in given.limits.items():
            _limit(injection, inner, name, amount, whole)
        loop = f"{containers}.transformList(i, c, {inner.text()}).flatten()"
        patch.include(f"({injection.when} ? {loop} : [])" if injection.when else loop)


def _request(injection: Injection, inner: PatchText, name: str, amount: object, whole: str) -> None:
    others = [at("c", "resources", "limits", name)]
    others += [f"{whole}{at('', side, name)}" for side in ("requests", "limits")]
    stated = " || ".join(f"{other}.hasValue()" for other in others)
    steps = ("resources", "requests", name)
    value = _amount(injection, amount)
    if injection.override:
        inner.put(value, *steps)
        return
    inner.put(value, *steps, when=f"!({stated})", absent=injection.missing(inner, *steps))


def _limit(injection: Injection, inner: PatchText, name: str, amount: object, whole: str) -> None:
    value = _amount(injection, amount)
    steps = ("resources", "limits", name)
    if injection.override:
        inner.put(value, *steps)
        return
    unstated = f"!{whole}{at('', 'limits', name)}.hasValue()"
    request = at("c", "resources", "requests", name)
    # The API server takes `[?name].orValue('0')` for a text whatever is there, but for `dyn`.
    stated = f"quantity(string({request}.orValue(dyn('0'))))"
    larger = f"{stated}.isGreaterThan(quantity(string({value})))"
    value = f"({larger} ? {request}.value() : dyn({value}))"
    inner.put(value, *steps, when=unstated, absent=injection.missing(inner, *steps))


def _amount(injection: Injection, amount: object) -> str:
    if isinstance(amount, msgspec.Struct):
        raise NotExportableError("a computed amount cannot be exported")
    return injection.certain(amount)


def affinity(injection: Injection, patch: PatchText, given: Affinity) -> None:
    """Draw the pods to nodes: what is required joins each term that the author wrote."""
    injection.refuse_override()
    wanted = constant(given)["nodeAffinity"]
    terms = [
        t for t in map(_conditions, wanted.get(_REQUIRED, {}).get("nodeSelectorTerms", ())) if t
    ]
    if terms:
        _require(injection, patch, terms)
    for preferred in wanted.get(_PREFERRED, ()):
        steps = (*_AFFINITY, _PREFERRED)
        same = f"o.?preference == optional.of({literal(preferred['preference'])})"
        absent = f"!{at(patch.base, *steps)}.orValue([]).exists(o, {same})"
        patch.append(literal(preferred), *steps, when=injection.when, absent=absent)


def _conditions(term: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out conditions that ask for one of no values."""
    kept = {
        field: [c for c in conditions if c["operator"] not in ("In", "NotIn") or c.get("values")]
        for field, conditions in term.items()
    }
    return {field: conditions for field, conditions in kept.items() if conditions}


def _require(injection: Injection, patch: PatchText, terms: list[dict[str, Any]]) -> None:
    steps = (*_AFFINITY, _REQUIRED, "nodeSelectorTerms")
    present = f"{at(patch.base, *steps)}.orValue([])"
    distinct = [term for index, term in enumerate(terms) if term not in terms[:index]]
    none = f"{present}.size() == 0"
    patch.put(literal(distinct), *steps, when=injection.when, absent=none)
    # One that changes nothing is enough by itself.
    satisfied = " || ".join(f"({_says_all('own', term)})" for term in terms)
    joined = ", ".join(f"dyn({_joined('own', term)})" for term in terms)
    changed = f"{present}.map(own, ({satisfied}) ? [dyn(own)] : [{joined}]).flatten().distinct()"
    some = both(injection.when, f"{present}.size() > 0", f"{present}.exists(own, !({satisfied}))")
    patch.replace(changed, *steps, when=some)


def _says_all(own: str, term: Mapping[str, Any]) -> str:
    """Return what tells whether a term speaks of all labels that are wanted already."""
    keys = {(field, c["key"]): None for field, conditions in term.items() for c in conditions}
    return " && ".join(
        f"{at(own, field)}.orValue([]).exists(e, e.key == {quoted(key)})" for field, key in keys
    )


def _joined(own: str, term: Mapping[str, Any]) -> str:
    """Return a term with the conditions added on labels of which it does not speak."""
    fields = []
    for field in ("matchExpressions", "matchFields"):
        if field not in term:
            fields.append(f"?'{field}': {at(own, field)}")
            continue
        present = f"{at(own, field)}.orValue([])"
        unsaid = f"!{present}.exists(e, e.key == x.key)"
        added = f"{literal(term[field])}.filter(x, {unsaid})"
        fields.append(f"'{field}': dyn({present} + {added})")
    return f"{{{', '.join(fields)}}}"
