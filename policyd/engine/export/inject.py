"""Export `inject` as one JSON patch in CEL: the same operations under the same conditions.

A field without an exact counterpart is refused by name.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from policyd.api.inject import Expression
from policyd.api.kueue.names import PRIORITY_CLASS, QUEUE_NAME
from policyd.cel.syntax.literals import CelText, json_literal, text_literal
from policyd.cel.types import Type, is_dyn
from policyd.engine.export.expressions import NotExportableError, Scope
from policyd.engine.export.patch import PatchText, as_json, at
from policyd.engine.export.places import both
from policyd.engine.inject.merging import TOPOLOGY
from policyd.engine.inject.templates import VALUE_KINDS, set_fields

CREATED = "request.operation == 'CREATE'"


@dataclass(frozen=True, slots=True)
class Computed:
    """A value in CEL; `there` tells whether there is one, empty if there always is."""

    value: str
    there: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedField:
    """One field on its way into one place.

    Attributes:
        scope: The meaning of names in its expressions.
        type_of: Returns the type of one of its expressions.
        override: Whether it overrides the author's value.
        when: A further condition.
    """

    scope: Scope
    type_of: Callable[[str], Type]
    override: bool = False
    when: str = ""

    def computed(self, value: object) -> Computed:
        """Return a value that is given, or that an expression computes, as a text."""
        if not isinstance(value, Expression):
            return Computed(json_literal(value))
        plain, type_ = f"({self.scope.rewrite(value.expression)})", self.type_of(value.expression)
        if type_.name == "optional_type":
            inner = f"{plain}.value()"
            return Computed(_as_text(inner, type_.parameters[0]), f"{plain}.hasValue()")
        there = f"{plain} != null" if is_dyn(type_) or type_.name == "null_type" else ""
        return Computed(_as_text(plain, type_), there)

    def certain(self, value: Any) -> str:  # noqa: ANN401 - as it is written
        """Return a value that is always there; null is an error.

        Raises:
            NotExportableError: If it may be left out.
        """
        computed = self.computed(value)
        if computed.there and not is_dyn(self.type_of(value.expression)):
            raise NotExportableError("a value that may be left out cannot stand here")
        return computed.value

    def missing(self, patch: PatchText, *steps: str) -> str:
        """Return the CEL that tells that the author left a field out; empty if it is overridden."""
        return "" if self.override else f"!{at(patch.base, *steps)}.hasValue()"

    def unnamed(self, patch: PatchText, *steps: str) -> str:
        """Return the CEL that tells that a name is missing or empty."""
        return "" if self.override else f"{at(patch.base, *steps)}.orValue('') == ''"

    def refuse_override(self) -> None:
        """Refuse an override that has to remove something first.

        Raises:
            NotExportableError: If it overrides the author's value.
        """
        if self.override:
            raise NotExportableError("`override` cannot be exported for this field")


def _as_text(value: str, type_: Type) -> str:
    return value if type_.name == "string" else f"string({value})"


Write = Callable[[ExportedField, PatchText, Any], None]


def _labels(injection: ExportedField, patch: PatchText, labels: Mapping[str, object]) -> None:
    _entries(injection, patch, labels, "metadata", "labels")


def _annotations(injection: ExportedField, patch: PatchText, given: Mapping[str, object]) -> None:
    _entries(injection, patch, given, "metadata", "annotations")


def _node_selector(injection: ExportedField, patch: PatchText, given: Mapping[str, object]) -> None:
    _entries(injection, patch, given, "spec", "nodeSelector")


def _entries(
    injection: ExportedField, patch: PatchText, given: Mapping[str, object], *steps: str
) -> None:
    """Set the entries of an object, each for itself."""
    for key, value in given.items():
        computed = injection.computed(value)
        missing = injection.missing(patch, *steps, key)
        when = both(injection.when, computed.there)
        patch.put(computed.value, *steps, key, when=when, absent=missing)


def _queue_name(injection: ExportedField, patch: PatchText, name: object) -> None:
    _name(injection, patch, name, "metadata", "labels", QUEUE_NAME)


def _workload_priority(injection: ExportedField, patch: PatchText, name: object) -> None:
    _name(injection, patch, name, "metadata", "labels", PRIORITY_CLASS)


def _name(injection: ExportedField, patch: PatchText, name: object, *steps: str) -> str:
    """Set a name; return the CEL that tells whether it is set."""
    computed = injection.computed(name)
    named = "" if isinstance(name, str) else f"{computed.value} != ''"
    when, absent = both(injection.when, computed.there, named), injection.unnamed(patch, *steps)
    patch.put(computed.value, *steps, when=when, absent=absent)
    return both(when, absent)


def named(injection: ExportedField, patch: PatchText, name: object, *, field: str) -> None:
    """Name something in a field of the pod spec."""
    _name(injection, patch, name, "spec", field)


def _priority_class(injection: ExportedField, patch: PatchText, name: object) -> None:
    """Name the class of the pods; the number that the API server took from another goes."""
    if injection.override:
        computed = injection.computed(name)
        other = f"{at(patch.base, 'spec', 'priorityClassName')}.orValue('') != {computed.value}"
        injection = _on(injection, when=both(injection.when, computed.there, other))
    when = _name(injection, patch, name, "spec", "priorityClassName")
    patch.remove("spec", "priority", when=when)
    patch.remove("spec", "preemptionPolicy", when=when)


def _on(injection: ExportedField, *, when: str) -> ExportedField:
    """Return an injection on other conditions."""
    return ExportedField(
        scope=injection.scope, type_of=injection.type_of, override=injection.override, when=when
    )


def _tolerations(injection: ExportedField, patch: PatchText, tolerations: object) -> None:
    injection.refuse_override()
    _refuse_computed(tolerations)
    wanted = [_toleration(injection, given) for given in _structs(tolerations)]
    for index, (value, covered) in enumerate(wanted):
        if value in [other for other, _ in wanted[:index]]:
            continue
        present = f"{at(patch.base, 'spec', 'tolerations')}.orValue([])"
        absent = f"!{present}.exists(t, {covered})"
        patch.append(value, "spec", "tolerations", when=injection.when, absent=absent)


def _toleration(injection: ExportedField, given: msgspec.Struct) -> tuple[str, str]:
    """Return a toleration, and the CEL that tells whether the toleration `t` covers it."""
    fields = set_fields(given)
    seconds = fields.pop("tolerationSeconds", None)
    texts = {name: injection.certain(value) for name, value in fields.items()}
    shown = ", ".join(f"{text_literal(name)}: dyn({value})" for name, value in texts.items())
    if seconds is not None:
        if isinstance(seconds, Expression):
            raise NotExportableError("`tolerationSeconds` must be a number to be exported")
        shown += f", 'tolerationSeconds': dyn({seconds})"
    key, effect, value = (texts.get(name, "''") for name in ("key", "effect", "value"))
    operator = texts.get("operator", "'Equal'")
    own = {name: f"t.?{name}.orValue('')" for name in ("key", "effect", "value")}
    own["operator"] = "t.?operator.orValue('Equal')"
    long = f" || t.tolerationSeconds == {seconds}" if seconds is not None else ""
    alike = f"{own['key']} == {key} && {own['operator']} == {operator} && {own['value']} == {value}"
    covers = (
        f"(!has(t.tolerationSeconds){long}) && {own['effect']} in ['', {effect}] && "
        f"({own['operator']} == 'Exists' ? {own['key']} in ['', {key}] : {alike})"
    )
    return f"{{{shown}}}", f"({covers}) || ({alike} && {own['effect']} == {effect})"


def _spread(injection: ExportedField, patch: PatchText, constraints: object) -> None:
    injection.refuse_override()
    _refuse_computed(constraints)
    seen = set()
    for given in _structs(constraints):
        value = spelled(injection, given)
        identity = (json_literal(value["topologyKey"]), json_literal(value["whenUnsatisfiable"]))
        if identity in seen:
            continue
        seen.add(identity)
        same = (
            f"o.?topologyKey.orValue('') == {identity[0]} && "
            f"o.?whenUnsatisfiable.orValue('') == {identity[1]}"
        )
        _append_unless(injection, patch, value, same, "spec", "topologySpreadConstraints")


def _gates(injection: ExportedField, patch: PatchText, gates: Sequence[msgspec.Struct]) -> None:
    for given in gates:
        value = spelled(injection, given)
        same = f"o.?name.orValue('') == {json_literal(value['name'])}"
        _append_unless(injection, patch, value, same, "spec", "schedulingGates")


def _append_unless(
    injection: ExportedField, patch: PatchText, value: Mapping[str, Any], same: str, *steps: str
) -> None:
    """Append to a list, unless an item `o` of it is the same."""
    absent = f"!{at(patch.base, *steps)}.orValue([]).exists(o, {same})"
    patch.append(json_literal(dict(value)), *steps, when=injection.when, absent=absent)


def _topology(injection: ExportedField, patch: PatchText, topology: msgspec.Struct) -> None:
    annotations = ("metadata", "annotations")
    given = [f"{at(patch.base, *annotations, key)}.hasValue()" for key in TOPOLOGY.values()]
    absent = "" if injection.override else f"!({' || '.join(given)})"
    for how, value in set_fields(topology).items():
        if how == "unconstrained" and isinstance(value, Expression):
            raise NotExportableError("a computed `unconstrained` cannot be exported")
        if value is False:
            continue
        computed = Computed("'true'") if value is True else injection.computed(value)
        when = both(injection.when, computed.there)
        for key in TOPOLOGY.values():
            if injection.override and key != TOPOLOGY[how]:
                patch.remove(*annotations, key, when=when)
        patch.put(computed.value, *annotations, TOPOLOGY[how], when=when, absent=absent)


def _refuse_computed(value: object) -> None:
    if isinstance(value, Expression):
        raise NotExportableError("a list computed as a whole cannot be exported")


def _structs(value: object) -> Sequence[msgspec.Struct]:
    return value if isinstance(value, tuple) else ()


def spelled(injection: ExportedField, value: msgspec.Struct) -> Any:  # noqa: ANN401 - JSON
    """Return a value as JSON with computed parts in CEL."""
    return _spelled(injection, as_json(value), "")


def _spelled(injection: ExportedField, value: Any, name: str) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, dict):
        if set(value) == {"expression"}:
            return CelText(_computed(injection, Expression(value["expression"]), name))
        return {key: _spelled(injection, part, key) for key, part in value.items()}
    if isinstance(value, list):
        return [_spelled(injection, part, "") for part in value]
    return value


def _computed(injection: ExportedField, given: Expression, name: str) -> str:
    """Return the CEL of a computed list, number or string.

    Raises:
        NotExportableError: If it may be left out, where there must be something.
    """
    kind = VALUE_KINDS.get(name, "text")
    if kind == "text":
        return injection.certain(given)
    text, type_ = (
        f"({injection.scope.rewrite(given.expression)})",
        injection.type_of(given.expression),
    )
    if type_.name == "optional_type":
        raise NotExportableError("a value that may be left out cannot stand here")
    return f"{text}.map(v, string(v))" if kind == "texts" else f"int({text})"


WRITERS: Final[dict[str, Write]] = {
    "queueName": _queue_name,
    "workloadPriorityClassName": _workload_priority,
    "objectLabels": _labels,
    "objectAnnotations": _annotations,
    "labels": _labels,
    "annotations": _annotations,
    "priorityClassName": _priority_class,
    "tolerations": _tolerations,
    "nodeSelector": _node_selector,
    "topologySpreadConstraints": _spread,
    "topology": _topology,
    "schedulingGates": _gates,
}
