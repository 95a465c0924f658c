"""The part of `inject` that looks into the containers of a pod: what they ask for."""

import msgspec

from policyd.api.inject import InjectedResources
from policyd.engine.export.expressions import NotExportableError
from policyd.engine.export.inject import ExportedField
from policyd.engine.export.patch import PatchText, at


def resources(injection: ExportedField, patch: PatchText, given: InjectedResources) -> None:
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


def _request(
    injection: ExportedField, inner: PatchText, name: str, amount: object, whole: str
) -> None:
    others = [at("c", "resources", "limits", name)]
    others += [f"{whole}{at('', side, name)}" for side in ("requests", "limits")]
    stated = " || ".join(f"{other}.hasValue()" for other in others)
    steps = ("resources", "requests", name)
    value = _amount(injection, amount)
    if injection.override:
        inner.put(value, *steps)
        return
    inner.put(value, *steps, when=f"!({stated})", absent=injection.missing(inner, *steps))


def _limit(
    injection: ExportedField, inner: PatchText, name: str, amount: object, whole: str
) -> None:
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


def _amount(injection: ExportedField, amount: object) -> str:
    if isinstance(amount, msgspec.Struct):
        raise NotExportableError("a computed amount cannot be exported")
    return injection.certain(amount)
