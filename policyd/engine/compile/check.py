"""Check what a schema cannot express: exclusive fields, quantities, label names."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import date

import msgspec

from policyd.api.inject import Expression, Inject, InjectedResources, InjectedToleration
from policyd.api.names import is_label_key, is_label_value
from policyd.api.policy import ExceptionTerms, MatchConstraints, MatchResources, Policy, Validation
from policyd.api.quantity import Quantity, QuantityError, parse_quantity
from policyd.api.rollout import RolloutStep
from policyd.api.selectors import LabelSelector
from policyd.engine.documents.findings import Finding
from policyd.engine.documents.reading import Document
from policyd.errors import did_you_mean
from policyd.patch.operations import Path

_FIELDS = msgspec.structs.fields(Inject)

_At = tuple[str, Path, str | None]
"""A message, a path and a hint."""


def check_selectors(
    constraints: MatchConstraints | MatchResources, document: Document, path: Path
) -> list[Finding]:
    """Yield the errors of the selectors at `path`."""
    return [
        document.finding(message, at, hint=hint)
        for message, at, hint in _selectors(constraints, path)
    ]


def _selectors(constraints: MatchConstraints | MatchResources, path: Path) -> Iterator[_At]:
    yield from _selector(constraints.namespace_selector, (*path, "namespaceSelector"))
    yield from _selector(constraints.object_selector, (*path, "objectSelector"))


def check_rollout(
    steps: Iterable[RolloutStep], document: Document, path: Path = ("spec", "rollout")
) -> list[Finding]:
    """Return the errors of the steps of a rollout."""
    return [document.finding(message, at, hint=hint) for message, at, hint in _rollout(steps, path)]


def _rollout(steps: Iterable[RolloutStep], path: Path) -> Iterator[_At]:
    before: list[RolloutStep] = []
    for index, step in enumerate(steps):
        yield from _selector(step.namespace_selector, (*path, index, "namespaceSelector"))
        by = next((i for i, other in enumerate(before) if _includes(other, step)), None)
        if by is not None:
            hint = "the first step that matches a request applies: put the narrower step first"
            message = f"never reached: step {by} matches every request that this one matches"
            yield message, (*path, index), hint
        before.append(step)


def _includes(one: RolloutStep, other: RolloutStep) -> bool:
    """Tell whether `one` matches everything that `other` matches."""
    everywhere = not one.namespaces and one.namespace_selector == LabelSelector()
    alike = (one.namespaces, one.namespace_selector) == (other.namespaces, other.namespace_selector)
    return one.percent >= other.percent and (everywhere or alike)


def check_policy(policy: Policy, document: Document) -> list[Finding]:
    """Return the errors in the values of a policy whose shape is valid."""
    return [
        document.finding(message, path, hint=hint, of_key=message.startswith("label"))
        for message, path, hint in _problems(policy)
    ]


def _problems(policy: Policy) -> Iterator[_At]:
    spec = policy.spec
    yield from _selectors(spec.match_constraints, ("spec", "matchConstraints"))
    for index, validation in enumerate(spec.validations):
        yield from _validation(validation, ("spec", "validations", index))
    names = {validation.name for validation in spec.validations}
    for index, exception in enumerate(spec.exceptions):
        yield from _exception(exception, names, ("spec", "exceptions", index))
    yield from _rollout(spec.rollout, ("spec", "rollout"))
    if spec.inject is not None:
        yield from _inject(spec.inject, ("spec", "inject"))


def _selector(selector: LabelSelector, path: Path) -> Iterator[_At]:
    for key, value in selector.match_labels.items():
        yield from _label(key, (value,), (*path, "matchLabels", key))
    for index, requirement in enumerate(selector.match_expressions):
        at = (*path, "matchExpressions", index)
        needs_values = requirement.operator in ("In", "NotIn")
        if needs_values and not requirement.values:
            yield f"`{requirement.operator}` needs `values`", at, None
        if not needs_values and requirement.values:
            yield f"`{requirement.operator}` takes no `values`", (*at, "values"), None
        yield from _label(requirement.key, requirement.values, at)


def _label(key: str, values: Iterable[str], path: Path) -> Iterator[_At]:
    """Yield invalid labels: a selector for one selects nothing."""
    if not is_label_key(key):
        yield f"label `{key}` is not a valid name", path, None
    for value in values:
        if not is_label_value(value):
            yield f"`{value}` is not a valid value of a label", path, None


def _validation(validation: Validation, path: Path) -> Iterator[_At]:
    if "\n" in validation.message.strip():
        hint = "put the advice into `remedy`"
        yield "a message is one line", (*path, "message"), hint
    if not validation.message and "\n" in validation.expression.strip():
        hint = "the expression has several lines and cannot replace the message"
        yield "field `message` is missing", path, hint


def _exception(exception: ExceptionTerms, names: set[str], path: Path) -> Iterator[_At]:
    for index, name in enumerate(exception.validations):
        if name not in names:
            hint = did_you_mean(name, names) or "give the validation a `name`"
            yield f"validation `{name}` not found", (*path, "validations", index), hint
    selectors = (exception.users, exception.groups, exception.namespaces, exception.expression)
    if not any((*selectors, exception.validations, exception.containers)):
        hint = "limit it by `users`, `groups`, `namespaces`, `containers`, `expression`"
        yield "the exception lifts everything", path, hint
    try:
        date.fromisoformat(exception.until or "2000-01-01")
    except ValueError:
        yield f"`{exception.until}` is not a date", (*path, "until"), "such as 2027-01-31"


def _inject(inject: Inject, path: Path) -> Iterator[_At]:
    if inject == Inject(override=inject.override):
        yield "nothing is injected", path, None
    yield from _keys(inject, path)
    if not isinstance(inject.tolerations, Expression):
        for index, toleration in enumerate(inject.tolerations):
            yield from _toleration(toleration, (*path, "tolerations", index))
    if inject.resources is not None:
        yield from _resources(inject.resources, (*path, "resources"))
    if inject.topology is not None and inject.topology.unconstrained is False:
        yield "`unconstrained: false` asks for nothing", (*path, "topology", "unconstrained"), None


def _keys(inject: Inject, path: Path) -> Iterator[_At]:
    for field in ("labels", "annotations", "objectLabels", "objectAnnotations", "nodeSelector"):
        for key in _entries(inject, field):
            if not is_label_key(key):
                yield f"label `{key}` is not a valid name", (*path, field, key), None


def _entries(inject: Inject, field: str) -> Mapping[str, object]:
    names = {f.encode_name: f.name for f in _FIELDS}
    entries: Mapping[str, object] = getattr(inject, names[field])
    return entries


def _toleration(toleration: InjectedToleration, path: Path) -> Iterator[_At]:
    if toleration.operator == "Exists" and toleration.value:
        yield "`Exists` takes no `value`", (*path, "value"), "use `operator: Equal`"
    if toleration.operator in ("", "Equal") and not toleration.key:
        hint = "`operator: Exists` alone tolerates every taint"
        yield "field `key` is missing", path, hint
    if toleration.toleration_seconds is not None and toleration.effect in (
        "NoSchedule",
        "PreferNoSchedule",
    ):
        where = (*path, "tolerationSeconds")
        yield "`tolerationSeconds` needs `effect: NoExecute`", where, None


def _resources(resources: InjectedResources, path: Path) -> Iterator[_At]:
    amounts: dict[tuple[str, str], Quantity] = {}
    for side in ("requests", "limits"):
        for name, amount in getattr(resources, side).items():
            if isinstance(amount, Expression):
                continue
            try:
                amounts[side, name] = parse_quantity(amount)
            except QuantityError:
                yield f"`{amount}` is not a quantity", (*path, side, name), "such as 500m or 4Gi"
    for (side, name), amount in amounts.items():
        if side == "requests" and amounts.get(("limits", name), amount) < amount:
            message = f"request of `{name}` exceeds its limit"
            yield message, (*path, "requests", name), None
